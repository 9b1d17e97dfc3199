"""One daemon per user and node: a lock that is held for life."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hpcsampler.errors import HpcsamplerError, RuntimeDirectoryError
from hpcsampler.launch import try_lock

if TYPE_CHECKING:
    from hpcsampler.runtime import RuntimeDirectory

_SOCKETS: Final = ("events.sock", "snapshots.sock", "control.sock")
_TRY_S: Final = 0.3
"""Others who only look hold the lock for microseconds: whoever holds it longer is a daemon."""


class AlreadyRunning(HpcsamplerError):  # noqa: N818 - says what is, as the user reads it
    """Another daemon holds the lock."""


class Singleton:
    """The lock of one runtime directory. While held, its sockets are this process's to make and to remove."""

    def __init__(self, directory: RuntimeDirectory) -> None:
        """Take the lock. Raises `AlreadyRunning`, and `RuntimeDirectoryError` where there can be no lock."""
        self._directory = directory
        try:
            self._fd = os.open(
                directory.daemon_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600,
            )
        except OSError as error:
            raise RuntimeDirectoryError(
                f"can't open {directory.daemon_lock} ({error.strerror}): remove it or set"
                " HPCSAMPLER_RUNTIME_DIR",
            ) from None
        deadline = time.monotonic() + _TRY_S
        while not try_lock(self._fd):
            if time.monotonic() >= deadline:
                text = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
                os.close(self._fd)
                raise AlreadyRunning(f"already running (pid {text or 'not yet known'})")
            time.sleep(0.01)
        os.ftruncate(self._fd, 0)  # the pid of one that was killed

    def clear_sockets(self) -> None:
        """Remove what a killed daemon left. Raises `RuntimeDirectoryError` if anything else is in the way."""
        for path in (self._directory.path / name for name in _SOCKETS):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISSOCK(mode):
                raise RuntimeDirectoryError(f"{path} is in the way and is no socket: remove it")
            path.unlink()

    def announce(self) -> None:
        """Write the pid: from now on others count on the sockets."""
        try:
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise RuntimeDirectoryError(
                f"can't write {self._directory.daemon_lock} ({error.strerror}): free some space",
            ) from None

    def holds_directory(self) -> bool:
        """Tell whether this lock is still in the directory: else that was removed, and another may start."""
        try:
            there = self._directory.daemon_lock.lstat()
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        """Remove the sockets and the pid, and let go of the lock."""
        # In a directory that has become read-only it can't be done: the next daemon clears what is left.
        with suppress(OSError, RuntimeDirectoryError):
            if self.holds_directory():
                self.clear_sockets()
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)

