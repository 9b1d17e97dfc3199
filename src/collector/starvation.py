"""Who has to wait for a CPU, and why: the scheduler's account of each thread, pressure, and the limits of the cgroup.

All of it is what the kernel counts anyway. What it does not tell (no schedstat, no PSI, no limit that can be read) is
absent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpcsampler.protocol.snapshot import CgroupSnapshot, HostSnapshot

    from .ranks import RankState

TURNS: Final = 10
"""A rank's threads are read in one of so many looks, one a second: a training has a hundred, at some 10 µs each."""
THREADS_MOST: Final = 512
_ANCESTORS_MOST: Final = 8
_RESOURCES: Final = ("cpu", "io", "memory")


def waited_ns(schedstat: bytes) -> int:
    """Parse /proc/PID/task/TID/schedstat: ns that the thread was ready to run and had no CPU (the second field)."""
    return int(schedstat.split()[1])


def pressure_us(pressure: bytes) -> int:
    """Parse a file of /proc/pressure: µs since boot in which some task waited for the resource."""
    for line in pressure.splitlines():
        if line.startswith(b"some "):
            return int(line.rpartition(b"total=")[2])
    raise ValueError("no line of that kind")


@dataclass(frozen=True, slots=True)
class Limit:
    """What a cgroup's CPU limit did, as counted since the cgroup was made."""

    periods: int
    throttled: int
    """Periods in which its processes were stopped because they had used up what the period gives."""
    throttled_s: float
    """Seconds that they were stopped, of all CPUs together."""


def limit(cpu_stat: bytes) -> Limit | None:
    """Parse cpu.stat of a cgroup, v1 (throttled_time in ns) or v2 (throttled_usec); None if it counts no limit."""
    counts = {name: int(value) for name, value in (line.split() for line in cpu_stat.splitlines())}
    if b"nr_periods" not in counts or b"nr_throttled" not in counts:
        return None
    seconds = counts.get(b"throttled_usec", 0) / 1e6 + counts.get(b"throttled_time", 0) / 1e9
    return Limit(counts[b"nr_periods"], counts[b"nr_throttled"], seconds)


def limit_files(cgroups: str) -> list[str]:
    """The cpu.stat files of a process, given its /proc/PID/cgroup: its own cgroup's and those around it.

    A limit may be set on any of them: on the container, on the job, on the step.
    """
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base = "/sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            base = "/sys/fs/cgroup/cpu"
        else:
            continue
        parts = [part for part in path.split("/") if part not in {"", ".."}]
        found = [f"{base}/{'/'.join(parts[:depth])}/cpu.stat".replace("//", "/") for depth in range(len(parts), -1, -1)]
        if any(os.access(file, os.R_OK) for file in found):
            return found[:_ANCESTORS_MOST]
    return []


class NodePressure:
    """Reads pressure and limits once a second or so, from kept descriptors.

    The limits are those of this daemon's cgroup: of the ranks too, unless they are in another one.
    """

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        for resource in _RESOURCES:
            self._open(resource, f"/proc/pressure/{resource}")
        with suppress(OSError):
            for path in limit_files(Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace")):
                self._open(path, path)
        self._at_ns = 0
        self._pressure_us: dict[str, int] = {}
        self._limits: dict[str, Limit] = {}

    def _open(self, name: str, path: str) -> None:
        with suppress(OSError):
            self._files[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, now_ns: int) -> HostSnapshot:
        """What happened since the last call; the first has nothing to say."""
        pressures: dict[str, int] = {}
        limits: dict[str, Limit] = {}
        for name, fd in self._files.items():
            with suppress(OSError, ValueError, IndexError):  # compiled in but off: reading fails
                content = os.pread(fd, 4096, 0)
                if name in _RESOURCES:
                    pressures[name] = pressure_us(content)
                elif (found := limit(content)) is not None:
                    limits[name] = found
        seconds = (now_ns - self._at_ns) / 1e9
        snapshot: HostSnapshot = {}
        if seconds > 0:
            psi = {
                name: min(max((us - self._pressure_us[name]) / 1e6 / seconds, 0.0), 1.0)
                for name, us in pressures.items() if name in self._pressure_us
            }
            if psi:
                snapshot["psi"] = psi
            if (cgroup := tightest(self._limits, limits, seconds)) is not None:
                snapshot["cgroup"] = cgroup
        self._at_ns, self._pressure_us, self._limits = now_ns, pressures, limits
        return snapshot

    def close(self) -> None:
        """Let go of the descriptors."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def tightest(before: Mapping[str, Limit], after: Mapping[str, Limit], seconds: float) -> CgroupSnapshot | None:
    """Of several cgroups, what the one did that stopped its processes in most of its periods; None if none is known."""
    found: CgroupSnapshot | None = None
    for name in before.keys() & after.keys():
        periods = after[name].periods - before[name].periods
        share = (after[name].throttled - before[name].throttled) / periods if periods > 0 else 0.0
        if found is None or share > found["throttled"]:
            stopped_s = max(0.0, after[name].throttled_s - before[name].throttled_s)
            found = {"throttled": min(max(share, 0.0), 1.0), "throttled_s_per_s": stopped_s / seconds}
    return found


@dataclass(frozen=True, slots=True)
class _Waits:
    at_ns: int
    ns: Mapping[int, int]
    """By thread."""


@dataclass(slots=True)
class _Followed:
    tasks: int
    """Descriptor of /proc/PID/task: of this very process, even if its pid is in use again."""
    before: _Waits | None


class RunDelay:
    """Follows how long the ranks' threads wait for a CPU."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self._turn = 0

    def look(self, living: Iterable[RankState], now_ns: int) -> None:
        """Set `run_delay` of the ranks whose turn it is. Forget those that have gone."""
        self._turn += 1
        watched = {state.hello.rank_key: state for state in living if state.watched}
        for key in self._followed.keys() - watched.keys():
            os.close(self._followed.pop(key).tasks)
        for turn, (key, state) in enumerate(watched.items()):
            followed = self._followed.get(key)
            if followed is None:
                with suppress(OSError):
                    tasks = os.open(f"/proc/{state.hello.pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    self._followed[key] = _Followed(tasks, _waits(tasks, now_ns))
            elif (self._turn + turn) % TURNS == 0:
                waits = _waits(followed.tasks, now_ns)
                state.run_delay = run_delay(followed.before, waits)
                followed.before = waits

    def close(self) -> None:
        """Let go of all processes."""
        for followed in self._followed.values():
            os.close(followed.tasks)
        self._followed.clear()


def run_delay(before: _Waits | None, after: _Waits | None) -> float | None:
    """Seconds per second that a process's threads waited for a CPU, all together; None if that is not known.

    A thread counts if it was there all the time.
    """
    if before is None or after is None or after.at_ns <= before.at_ns or not after.ns:
        return None
    waited = sum(max(0, ns - before.ns[thread]) for thread, ns in after.ns.items() if thread in before.ns)
    return waited / (after.at_ns - before.at_ns)


def _waits(tasks: int, now_ns: int) -> _Waits | None:
    found = {}
    try:
        threads = os.listdir(tasks)
    except OSError:
        return None
    for thread in threads[:THREADS_MOST]:
        with suppress(OSError, ValueError, IndexError):  # ended, or a kernel that does not count
            fd = os.open(f"{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=tasks)
            try:
                found[int(thread)] = waited_ns(os.read(fd, 128))
            finally:
                os.close(fd)
    return _Waits(now_ns, found)
