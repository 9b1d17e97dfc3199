"""Waiting for a CPU, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcsampler.collector import starvation
from hpcsampler.collector.ranks import RankState
from hpcsampler.collector.starvation import (
    TURNS,
    Limit,
    NodePressure,
    RunDelay,
    limit,
    limit_files,
    pressure_us,
    tightest,
    waited_ns,
)
from tests.support.ranks import hello

BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("runs", flush=True)
while True: pass
"""


def test_what_the_kernel_says_is_read() -> None:
    assert waited_ns(b"288254412 318141 15\n") == 318141
    assert pressure_us(b"some avg10=4.47 avg60=42.16 avg300=34.76 total=2343623041\nfull avg10=0.00 total=0\n") == (
        2343623041
    )
    with pytest.raises(ValueError, match="no line"):
        pressure_us(b"")
    assert limit(b"nr_periods 10\nnr_throttled 5\nthrottled_time 2000000000\n") == Limit(10, 5, 2.0)
    assert limit(b"usage_usec 5\nnr_periods 10\nnr_throttled 5\nthrottled_usec 2000000\n") == Limit(10, 5, 2.0)
    assert limit(b"usage_usec 5\nuser_usec 3\nsystem_usec 2\n") is None  # a root of v2: nothing limits it


def test_the_limit_that_stops_most_is_told() -> None:
    before = {"own": Limit(10, 0, 0.0), "around": Limit(10, 0, 0.0)}
    after = {"own": Limit(20, 1, 0.1), "around": Limit(20, 5, 0.5)}
    assert tightest(before, after, 1.0) == {"throttled": 0.5, "throttled_s_per_s": 0.5}
    assert tightest(before, before, 1.0) == {"throttled": 0.0, "throttled_s_per_s": 0.0}
    assert tightest({}, after, 1.0) is None


def test_limits_around_the_own_cgroup_are_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starvation.os, "access", lambda *_: True)
    assert limit_files("0::/job/step\n") == [
        "/sys/fs/cgroup/job/step/cpu.stat", "/sys/fs/cgroup/job/cpu.stat", "/sys/fs/cgroup/cpu.stat",
    ]
    assert limit_files("5:cpuset:/\n4:cpu,cpuacct:/docker/1\n0::/\n") == [
        "/sys/fs/cgroup/cpu/docker/1/cpu.stat", "/sys/fs/cgroup/cpu/docker/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat",
    ]
    assert limit_files("") == []


def test_pressure_is_a_share_and_absent_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    pressure = NodePressure()
    assert pressure.read(time.monotonic_ns()) == {} or Path("/proc/pressure/cpu").exists()
    found = pressure.read(time.monotonic_ns() + 1)
    for share in found.get("psi", {}).values():
        assert 0 <= share <= 1
    pressure.close()
    monkeypatch.setattr(starvation.os, "open", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    silent = NodePressure()
    assert silent.read(1) == silent.read(2) == {}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count")
def test_a_process_that_shares_one_core_with_another_waits_for_half_of_the_time() -> None:
    core = min(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen([sys.executable, "-c", BUSY, str(core)], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        ranks = []
        for number, process in enumerate(busy):
            state = RankState(hello(number, pid=process.pid), b"", 0, 0)
            state.watched = True
            ranks.append(state)
        delay = RunDelay()
        delay.look(ranks, time.monotonic_ns())
        time.sleep(2)
        for _ in range(TURNS):
            delay.look(ranks, time.monotonic_ns())
        # Whoever else is on this core makes it more.
        for state in ranks:
            assert state.run_delay is not None
            assert 0.35 <= state.run_delay <= 1.0
    finally:
        for process in busy:
            process.kill()
            process.communicate()
    delay.look([], time.monotonic_ns())
    assert not delay._followed
    delay.close()


def test_a_process_that_is_gone_has_no_delay() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state = RankState(hello(0, pid=process.pid), b"", 0, 0)
    state.watched = True
    delay = RunDelay()
    delay.look([state], 1)
    process.communicate(b"\n")
    for i in range(TURNS):
        delay.look([state], 2 + i)
    assert state.run_delay is None
    delay.close()
