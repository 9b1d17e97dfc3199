"""How a rank's end is told from its silence, and what its process used."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hpcsampler.collector.attendance import Attendance
from hpcsampler.collector.host import HostSampler, cpu_ticks, memory_bytes
from hpcsampler.collector.liveness import GRACE_S, SILENCE_S, ProcessWatch, verdict
from hpcsampler.collector.process import (
    ProcessFiles,
    Reading,
    runs_another_program,
    start_ticks,
    stat_fields,
    usage,
)
from hpcsampler.collector.ranks import RankState
from tests.support.daemons import until
from tests.support.ranks import hello

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("said_bye", "watched", "dead_s", "silent_s", "ending"),
    [
        (False, True, None, 3600.0, None),
        (False, True, 0.0, 0.0, None),
        (False, True, GRACE_S, 0.0, "killed"),
        (True, True, GRACE_S, 0.0, "exited"),
        (True, True, None, 0.0, "exited"),
        (False, False, None, SILENCE_S - 0.1, None),
        (False, False, None, SILENCE_S, "killed"),
    ],
)
def test_verdict(said_bye, watched, dead_s, silent_s, ending) -> None:
    assert verdict(said_bye=said_bye, watched=watched, dead_s=dead_s, silent_s=silent_s) == ending


def no_pidfd(_pid: int) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize("old_kernel", [False, True])
def test_the_end_of_a_process_is_seen_once(
    sleeper: subprocess.Popen[bytes], old_kernel: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if old_kernel:
        monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    watch = ProcessWatch()
    assert watch.add("a", sleeper.pid, start_ticks(sleeper.pid))
    assert watch.ended() == []
    sleeper.kill()
    found: list[str] = []
    until(lambda: found.extend(watch.ended()) or found, "the end is seen")
    assert found == ["a"]
    assert watch.ended() == []
    watch.close()


def test_a_reused_or_forged_pid_is_not_watched() -> None:
    watch = ProcessWatch()
    assert not watch.add("reused", os.getpid(), start_ticks(os.getpid()) + 1)
    for pid in (0, -1, 1 << 22, 1 << 63, 1 << 64):
        assert not watch.add("forged", pid, 1)
    watch.close()


def test_goodbye_wins_over_a_death_seen_first(sleeper: subprocess.Popen[bytes]) -> None:
    attendance = Attendance()
    now = time.monotonic_ns()
    identity = hello(0, pid=sleeper.pid, start_ticks=start_ticks(sleeper.pid))
    state = RankState(identity, b"peer", now, now)
    attendance.arrived(state, now)
    sleeper.kill()
    until(lambda: attendance.look([state], now) or state.dead_since_ns is not None, "the death is seen")
    assert state.ending is None
    later = now + int(GRACE_S * 1e9)
    attendance.look([state], later)
    assert state.ending == "killed"
    state.said_bye = True
    attendance.look([state], later)
    assert state.ending == "exited"
    attendance.close()


def test_a_program_name_may_hold_anything() -> None:
    assert stat_fields(b"1 (a) b) R (c) R 17 0\n")[0] == b"R"


def test_usage_is_per_second_and_absent_where_unread() -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    before = Reading(0, 0, 1000, 0, None, 1)
    after = Reading(2 * 10**9, 3 * hertz, 2000, 5_000, None, 1)
    assert usage(before, after) == {"percent": 150.0, "rss_bytes": 2000, "read_bytes_per_s": 2500.0}


def test_readings_end_with_the_process(sleeper: subprocess.Popen[bytes]) -> None:
    files = ProcessFiles(sleeper.pid)
    reading = files.read(1)
    assert reading is not None
    assert reading.rss_bytes > 100_000
    sleeper.kill()
    sleeper.wait()
    assert files.read(2) is None
    files.close()


@pytest.mark.parametrize(("first", "now", "another"), [(7, 7, False), (7, 9, True), (0, 9, False), (7, 0, False)])
def test_another_program_has_its_stack_in_another_place(first: int, now: int, another: bool) -> None:
    before, after = (Reading(0, 0, 0, None, None, stack) for stack in (first, now))
    assert runs_another_program(before, after) == another


def test_the_nodes_cpu_and_memory() -> None:
    ticks = cpu_ticks(b"cpu  100 10 50 800 40 5 5 10 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert (ticks.busy, ticks.total) == (180, 1020)
    assert memory_bytes(b"MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 60 kB\n") == (40960, 102400)
    host = HostSampler()
    assert "cpu_percent" not in host.read()
    until(lambda: "cpu_percent" in host.read(), "the node's CPU is known")
    assert 0 < host.read()["memory_used_bytes"] < host.read()["memory_total_bytes"]
    host.close()
