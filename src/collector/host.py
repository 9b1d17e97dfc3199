"""The node: CPU, memory and load, from kept descriptors of /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcsampler.protocol.snapshot import HostSnapshot


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Of all cores together since boot."""

    busy: int
    total: int


def cpu_ticks(stat: bytes) -> CpuTicks:
    """From the first line of /proc/stat. Waiting for I/O is idle; guests are already in user time."""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(n) for n in stat.split(b"\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return CpuTicks(busy, busy + idle + iowait)


def memory_bytes(meminfo: bytes) -> tuple[int, int]:
    """`(used, total)` from /proc/meminfo: used is what programs could not get without swapping."""
    kib = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(b":")
        if name in {b"MemTotal", b"MemAvailable"}:
            kib[name] = int(rest.split()[0])
    total = kib[b"MemTotal"] * 1024
    return total - kib[b"MemAvailable"] * 1024, total


@dataclass
class HostSampler:
    """Reads the node's numbers once a second or so."""

    _files: dict[str, int] = field(default_factory=dict)
    _before: CpuTicks | None = None

    def read(self) -> HostSnapshot:
        """Give the node's numbers now; what can't be read is absent. The CPU is averaged since the last call."""
        found: HostSnapshot = {}
        if count := os.cpu_count():
            found["cpu_count"] = count
        try:
            ticks = cpu_ticks(self._pread("/proc/stat"))
            if self._before is not None and ticks.total > self._before.total:
                busy = (ticks.busy - self._before.busy) / (ticks.total - self._before.total)
                found["cpu_percent"] = 100.0 * min(max(busy, 0.0), 1.0)
            self._before = ticks
        except (OSError, ValueError):
            pass  # a sandbox without /proc/stat: absent, as is all below that can't be read
        try:
            found["memory_used_bytes"], found["memory_total_bytes"] = memory_bytes(self._pread("/proc/meminfo"))
        except (OSError, ValueError, KeyError):
            pass
        try:
            found["load_1m"] = float(self._pread("/proc/loadavg").split()[0])
        except (OSError, ValueError, IndexError):
            pass
        return found

    def _pread(self, path: str) -> bytes:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # The first lines are all that is needed of /proc/stat, which is long on a node of many cores.
        return os.pread(self._files[path], 2048, 0)

    def close(self) -> None:
        """Let go of the descriptors."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
