"""The runtime directory: where a user's daemon on this node keeps its sockets, its locks and its log."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import RuntimeDirectoryError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOCKET_PATH_MAX = 107
"""Longest path of a Unix socket on Linux: sun_path holds 108 bytes with its closing zero."""
_LONGEST_NAME = "snapshots.sock"


@dataclass(frozen=True, slots=True)
class RuntimeDirectory:
    """Names inside the directory. Nothing is made or touched by making this object."""

    path: Path

    @property
    def events_address(self) -> str:
        """Where the daemon takes events: ranks connect a DEALER here."""
        return f"ipc://{self.path / 'events.sock'}"

    @property
    def snapshots_address(self) -> str:
        """Where the daemon publishes snapshots: viewers connect a SUB here."""
        return f"ipc://{self.path / 'snapshots.sock'}"

    @property
    def control_address(self) -> str:
        """Where the daemon answers questions: whoever has one connects a DEALER here."""
        return f"ipc://{self.path / 'control.sock'}"

    @property
    def daemon_lock(self) -> Path:
        """Held with `flock` by the running daemon; holds its pid as text."""
        return self.path / "daemon.lock"

    @property
    def spawn_lock(self) -> Path:
        """Held with `flock` by whoever is starting a daemon, so that eight ranks start one."""
        return self.path / "spawn.lock"

    @property
    def log(self) -> Path:
        """What a daemon in the background has to say."""
        return self.path / "daemon.log"


def locate(environ: Mapping[str, str], uid: int) -> RuntimeDirectory:
    """The directory for a user with this environment. Looks at nothing but its arguments.

    In this order: $HPCSAMPLER_RUNTIME_DIR, systemd's $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/hpcsampler,
    /tmp/hpcsampler-UID.
    """
    if chosen := environ.get("HPCSAMPLER_RUNTIME_DIR"):
        return RuntimeDirectory(Path(os.path.abspath(os.path.expanduser(chosen))))  # noqa: PTH100, PTH111 - no links resolved
    if service := environ.get("RUNTIME_DIRECTORY"):
        return RuntimeDirectory(Path(service.split(":")[0]))
    if session := environ.get("XDG_RUNTIME_DIR"):
        return RuntimeDirectory(Path(session) / "hpcsampler")
    return RuntimeDirectory(Path(f"/tmp/hpcsampler-{uid}"))  # noqa: S108 - mode and owner are checked before use


def prepare(directory: RuntimeDirectory) -> None:
    """Make the directory (0700) if it is not there, and check that it is safe and usable.

    Raises `RuntimeDirectoryError` with one line that says what to do: path too long for a socket, not a directory,
    another user's, open to others, read-only, no space.
    """
    _check_length(directory)
    path = directory.path
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise RuntimeDirectoryError(
            f"the runtime directory {path} is not a directory: remove that file or set HPCSAMPLER_RUNTIME_DIR",
        ) from None
    except OSError as error:
        raise _unmakeable(directory, error.errno or errno.EIO) from None
    check(directory)
    probe = path / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * 4096)
    except OSError as error:
        raise RuntimeDirectoryError(
            f"can't write to the runtime directory {path} ({error.strerror}): free some space or set"
            " HPCSAMPLER_RUNTIME_DIR to another directory",
        ) from None
    finally:
        with contextlib.suppress(OSError):  # read-only: said above
            probe.unlink(missing_ok=True)


def foresee(directory: RuntimeDirectory) -> bool:
    """Raise `RuntimeDirectoryError` if `prepare` would. Makes no directory; tells whether there is one already."""
    _check_length(directory)
    path = directory.path
    if os.path.lexists(path):
        prepare(directory)
        return True
    # From below, the first that is there: all else would be made in it.
    nearest = next(parent for parent in path.parents if os.path.lexists(parent))
    if not nearest.is_dir():
        raise _unmakeable(directory, errno.ENOTDIR)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _unmakeable(directory, errno.EACCES)
    return False


def _check_length(directory: RuntimeDirectory) -> None:
    bytes_taken = len(os.fsencode(directory.path / _LONGEST_NAME))
    if bytes_taken > _SOCKET_PATH_MAX:
        raise RuntimeDirectoryError(
            f"the runtime directory {directory.path} is too long for a socket ({bytes_taken} bytes with its"
            f" sockets, at most {_SOCKET_PATH_MAX}): set HPCSAMPLER_RUNTIME_DIR to a shorter path",
        )


def _unmakeable(directory: RuntimeDirectory, number: int) -> RuntimeDirectoryError:
    return RuntimeDirectoryError(
        f"can't make the runtime directory {directory.path} ({os.strerror(number)}): set HPCSAMPLER_RUNTIME_DIR to a"
        " directory that you can write to",
    )


def check(directory: RuntimeDirectory) -> None:
    """Raise `RuntimeDirectoryError` unless the directory is there, this user's own, and closed to others."""
    path = directory.path
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise RuntimeDirectoryError(
            f"no runtime directory {path}: nothing of hpcsampler runs here yet (hpcsampler daemon start)",
        ) from None
    except OSError as error:
        raise RuntimeDirectoryError(f"can't look at the runtime directory {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise RuntimeDirectoryError(
            f"the runtime directory {path} is not a directory: remove it or set HPCSAMPLER_RUNTIME_DIR",
        )
    if status.st_uid != os.getuid():
        raise RuntimeDirectoryError(
            f"the runtime directory {path} belongs to user {status.st_uid}, not to you ({os.getuid()}):"
            " set HPCSAMPLER_RUNTIME_DIR to a directory of your own",
        )
    if status.st_mode & 0o077:
        # A place that all share, as /tmp, and which root finds to be its own, is not for one program to close.
        shared = status.st_mode & stat.S_ISVTX
        raise RuntimeDirectoryError(
            f"the runtime directory {path} is open to others (mode {stat.S_IMODE(status.st_mode):04o}):"
            f" set HPCSAMPLER_RUNTIME_DIR to a folder of your own, such as {path / f'hpcsampler-{os.getuid()}'}"
            + ("" if shared else f", or chmod 700 {path} if nothing else uses it"),
        )
