"""CPU, memory and I/O of one process, from kept descriptors of /proc: 4 µs a reading, and never another's.

A kept descriptor belongs to the process that it was opened for: once that is gone, reading fails, even if its
pid is in use again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpcsampler.protocol.snapshot import RankCpu

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process has used so far, and holds now."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    cpu_ticks: int
    rss_bytes: int
    read_bytes: int | None
    """From storage, as the kernel accounts it (the page cache is free); None where it may not be read."""
    write_bytes: int | None
    stack: int
    """Where its stack begins; 0 where that may not be read, and once it ends."""


class ProcessFiles:
    """The kept descriptors of one process."""

    def __init__(self, pid: int) -> None:
        """Open them. Raises `OSError` if there is no such process."""
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._io: int | None = os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._io = None

    def read(self, now_ns: int) -> Reading | None:
        """Take a reading at `now_ns`; None once the process is gone."""
        try:
            fields = stat_fields(os.pread(self._stat, 2048, 0))
        except OSError:
            return None
        read_bytes = write_bytes = None
        if self._io is not None:
            try:
                counts = dict(line.split(b": ") for line in os.pread(self._io, 1024, 0).splitlines())
                read_bytes, write_bytes = int(counts[b"read_bytes"]), int(counts[b"write_bytes"])
            except (OSError, KeyError, ValueError):
                os.close(self._io)
                self._io = None
        return Reading(
            now_ns, int(fields[11]) + int(fields[12]), int(fields[21]) * PAGE_BYTES, read_bytes, write_bytes,
            int(fields[25]),
        )

    def close(self) -> None:
        """Let go of the descriptors."""
        os.close(self._stat)
        if self._io is not None:
            os.close(self._io)


def stat_fields(stat: bytes) -> list[bytes]:
    """Split /proc/PID/stat from field 3 (the state) on; a program's name may hold any character."""
    return stat[stat.rindex(b")") + 2 :].split()


def start_ticks(pid: int, *, ended: bool = True) -> int | None:
    """Look up when process `pid` began, in clock ticks since boot; None if it is not there.

    ended: also of one that has ended and that its parent has not waited for.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = stat_fields(os.read(fd, 2048))
        return int(fields[19]) if ended or fields[0] != b"Z" else None
    except OSError:
        return None
    finally:
        os.close(fd)


def runs_another_program(first: Reading, now: Reading) -> bool:
    """Tell whether a process has called `exec` between two readings, which makes a stack in another place.

    Its name and its command line would not do: a process may change those of its own while it goes on.
    """
    return now.stack != first.stack and bool(now.stack and first.stack)


def usage(before: Reading, after: Reading) -> RankCpu:
    """Rates between two readings; absent what was not read."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    found: RankCpu = {
        "percent": 100.0 * (after.cpu_ticks - before.cpu_ticks) / TICKS_PER_S / seconds,
        "rss_bytes": after.rss_bytes,
    }
    if before.read_bytes is not None and after.read_bytes is not None:
        found["read_bytes_per_s"] = (after.read_bytes - before.read_bytes) / seconds
    if before.write_bytes is not None and after.write_bytes is not None:
        found["write_bytes_per_s"] = (after.write_bytes - before.write_bytes) / seconds
    return found
