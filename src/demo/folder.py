"""The folder of one demo: sockets, locks and logs. Its demo holds it, so that the next one can tell what is left over.

A demo that is killed removes nothing. What it left is told by its lock, which is free then, and not by a pid, which
another process may have by now.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ..launch import try_lock

_PREFIX = "hpcsampler-demo-"
_LOCK = "demo.lock"


class DemoFolder:
    """Made in the folder for temporary files, for its owner alone, and held until this process ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Held before it has the name by which others look for it: none ever finds it free.
        unnamed = self.path / f".{_LOCK}"
        self._held = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try_lock(self._held)
        unnamed.rename(self.path / _LOCK)

    def keep(self) -> None:
        """Leave it to the user, who was told of the logs in it: no later demo removes it."""
        (self.path / _LOCK).unlink(missing_ok=True)
        os.close(self._held)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def remove_left_over() -> None:
    """Remove what killed demos of this user left; a daemon that still runs in such a folder then ends by itself."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            held = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if try_lock(held):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(held)
