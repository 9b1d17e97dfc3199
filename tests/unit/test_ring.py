"""The ring: in a process of its own each time, because a process has only one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import os, sys, threading, time
from hpcsampler.ext import _events as e
from tests.support.records import parse
e.set_driver(threading.get_ident())
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)],
        stdout=subprocess.PIPE, text=True, timeout=60, check=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    return done.stdout


def test_events_come_out_as_they_went_in() -> None:
    run("""
        e.open_ring(64); e.record(True)
        before = e.now_ns()
        e.emit(4, 1, 7, -5, 2); e.emit(4, 2)
        (t1, *first), (t2, *second) = parse(e.drain())
        assert first == [-5, 7, 4, 1, 2] and second == [0, 0, 4, 2, 0]
        assert before <= t1 <= t2 <= e.now_ns()
        assert e.drain() == b""
    """)


def test_without_a_ring_and_while_not_recording_events_vanish() -> None:
    run("""
        e.emit(4, 1); e.record(True); assert not e.recording()
        e.open_ring(64); e.emit(4, 1); assert e.emitted() == 0 and e.drain() == b""
    """)


def test_a_full_ring_drops_the_newest_and_counts_them() -> None:
    run("""
        e.open_ring(64); e.record(True)
        for i in range(100): e.emit(4, 3, i)
        assert e.dropped() == 36
        assert [key for _, _, key, *_ in parse(e.drain())] == list(range(64))
        e.emit(4, 3, 100); assert [key for _, _, key, *_ in parse(e.drain())] == [100]
    """)


def test_many_producers_and_one_consumer_lose_nothing_unsaid() -> None:
    out = run("""
        e.open_ring(1024); e.record(True)
        N, THREADS = 20000, 8
        got, stop = [], threading.Event()
        def produce(number):
            for i in range(N): e.emit(4, 3, number, i)
        def consume():
            while not stop.is_set(): got.append(e.drain())
            got.append(e.drain())
        sys.setswitchinterval(1e-5)
        consumer = threading.Thread(target=consume); consumer.start()
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(THREADS)]
        [t.start() for t in threads]; [t.join() for t in threads]; stop.set(); consumer.join()
        events = [event for records in got for event in parse(records)]
        assert len(events) + e.dropped() == N * THREADS, (len(events), e.dropped())
        for number in range(THREADS):
            values = [v for _, v, key, *_ in events if key == number]
            assert values == sorted(values) and len(values) == len(set(values))
            assert all(flags == 1 for *_, flags in events)
        print(len(events))
    """)
    assert int(out) > 0


def test_a_forked_child_does_not_record_and_the_parent_loses_nothing() -> None:
    run("""
        e.open_ring(64); e.record(True); e.emit(4, 1, 1)
        pid = os.fork()
        if pid == 0:
            ok = not e.recording()
            e.record(True); ok &= not e.recording()   # not even when asked, without a ring of its own
            e.emit(4, 1, 2)
            e.open_ring(64); e.record(True); e.emit(4, 1, 3)
            ok &= [key for _, _, key, *_ in parse(e.drain())] == [3]
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert [key for _, _, key, *_ in parse(e.drain())] == [1]
    """)


def test_only_powers_of_two_are_taken() -> None:
    from hpcsampler.ext import _events

    with pytest.raises(ValueError, match="power of two"):
        _events.open_ring(100)
