"""The node: CPU, memory and load, from kept descriptors of /proc."""

from __future__ import annotations

import os
from contextlib import suppress
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
    """Parse the first line of /proc/stat. Waiting for I/O is idle; guests are already in user time."""
    ticks = stat.split(b"\n", 1)[0].split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(number) for number in ticks)
    busy = user + nice + system + irq + softirq + steal
    return CpuTicks(busy, busy + idle + iowait)


def memory_bytes(meminfo: bytes) -> tuple[int, int]:
    """Parse /proc/meminfo: `(used, total)`, where used is what programs could not get without swapping."""
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
        """Give the node's numbers; what can't be read is absent. The CPU is averaged since the last call."""
        found: HostSnapshot = {}
        if count := os.cpu_count():
            found["cpu_count"] = count
        # In a sandbox any of these files may be missing.
        with suppress(OSError, ValueError):
            ticks = cpu_ticks(self._pread("/proc/stat"))
            if self._before is not None and ticks.total > self._before.total:
                busy = (ticks.busy - self._before.busy) / (ticks.total - self._before.total)
                found["cpu_percent"] = 100.0 * min(max(busy, 0.0), 1.0)
            self._before = ticks
        with suppress(OSError, ValueError, KeyError):
            used, total = memory_bytes(self._pread("/proc/meminfo"))
            found["memory_used_bytes"], found["memory_total_bytes"] = used, total
        with suppress(OSError, ValueError, IndexError):
            found["load_1m"] = float(self._pread("/proc/loadavg").split()[0])
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
