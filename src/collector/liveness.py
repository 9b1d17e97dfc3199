"""Whether a rank still lives: from its process where that can be seen, else from its silence."""

from __future__ import annotations

import errno
import os
import select
from typing import Final, Literal

from .process import start_ticks

Ending = Literal["exited", "killed"]

GRACE_S: Final = 0.4
"""What a process sent just before it ended may arrive after its end was seen: its goodbye above all."""
SILENCE_S: Final = 15.0
"""A rank whose process can't be seen (another pid namespace) says hello every few seconds while it lives."""


def verdict(*, said_bye: bool, watched: bool, dead_s: float | None, silent_s: float) -> Ending | None:
    """How a rank has ended, or None while it lives.

    said_bye: it said goodbye. watched: its process can be seen. dead_s: seconds since that was seen to be
    gone, None while it is there. silent_s: seconds since its last message.
    """
    if said_bye:
        return "exited"
    if watched:
        return "killed" if dead_s is not None and dead_s >= GRACE_S else None
    return "killed" if silent_s >= SILENCE_S else None


class ProcessWatch:
    """Tells which of the watched processes have ended, without asking each."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, str] = {}
        self._fds: dict[str, int] = {}
        # Kernels before 5.3 have no pidfd: there each process is looked up.
        self._looked_up: dict[str, tuple[int, int]] = {}

    def add(self, key: str, pid: int, ticks: int) -> bool:
        """Watch process `pid` under a name. False if it is not there, or not the one that began at `ticks`.

        ticks: field 22 of /proc/PID/stat.
        """
        self.remove(key)
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError) as error:
            if getattr(error, "errno", errno.ENOSYS) != errno.ENOSYS or start_ticks(pid) != ticks:
                return False
            self._looked_up[key] = (pid, ticks)
            return True
        except (OverflowError, ValueError):
            return False
        # Looked up after opening: if it matches now, the descriptor is of that very process.
        if start_ticks(pid) != ticks:
            os.close(fd)
            return False
        self._epoll.register(fd, select.EPOLLIN)
        self._keys[fd] = key
        self._fds[key] = fd
        return True

    def remove(self, key: str) -> None:
        """Stop watching; harmless if it never began."""
        self._looked_up.pop(key, None)
        fd = self._fds.pop(key, None)
        if fd is not None:
            del self._keys[fd]
            self._epoll.unregister(fd)
            os.close(fd)

    def ended(self) -> list[str]:
        """Names whose process has ended; each is told once."""
        keys = [self._keys[fd] for fd, _ in self._epoll.poll(0)]
        looked_up = self._looked_up.items()
        keys += [key for key, (pid, ticks) in looked_up if start_ticks(pid, ended=False) != ticks]
        for key in keys:
            self.remove(key)
        return keys

    def close(self) -> None:
        """Let go of all descriptors."""
        for key in list(self._fds):
            self.remove(key)
        self._epoll.close()
