"""Starting the node's daemon, and telling whether one runs: for the sampler and for `hpcsampler daemon`."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from . import runtime
from .errors import RuntimeDirectoryError
from .ext import _detach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .runtime import RuntimeDirectory

LOG_BYTES: Final = 1 << 20
"""A log that has grown beyond this starts anew."""
_POLL_S: Final = 0.02

# What a training has in its environment for itself and would do harm in a daemon: which GPUs it may see,
# libraries preloaded into it, the size of its thread pools, what Python does at start and end.
_DROPPED = frozenset({"CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONINSPECT"})
_DROPPED_PREFIXES = ("OMP_", "KMP_", "GOMP_", "TF_")
# Of our own only what is the daemon's, not the rank's: a daemon must never attach to itself.
_KEPT = frozenset({
    "HPCSAMPLER_CONFIG", "HPCSAMPLER_PUBLISH_MS", "HPCSAMPLER_GPU_MS", "HPCSAMPLER_LINGER_S", "HPCSAMPLER_MTBF_H",
})


def daemon_pid(directory: RuntimeDirectory) -> int | None:
    """Pid of the daemon of this directory; None if none runs, or if it can't take connections yet.

    Looks at the lock without waiting. What can't be read counts as no daemon.
    """
    try:
        fd = os.open(directory.daemon_lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock, so that two who look don't see each other. Whoever starts a daemon tries again for a
        # moment, so that a look doesn't turn it away either.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
    except OSError:
        return None
    else:
        # Not by closing alone: a process forked in between shares the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        return None
    finally:
        os.close(fd)


def ensure_daemon(directory: RuntimeDirectory, *, linger_s: float | None, wait_s: float) -> bool:
    """Start a daemon unless one runs. True if one takes connections, False if none does within `wait_s` s.

    linger_s: how long the daemon stays after its last rank and viewer have gone; None: until it is stopped.
    Eight processes may call this at once: one daemon starts. Raises `RuntimeDirectoryError` where the
    directory can't be used, and `OSError` where no program can be started.
    """
    if daemon_pid(directory) is not None:
        runtime.check(directory)
        return True
    runtime.prepare(directory)
    deadline = time.monotonic() + wait_s
    try:
        fd = os.open(directory.spawn_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeDirectoryError(
            f"can't open {directory.spawn_lock} ({error.strerror}): remove it or set HPCSAMPLER_RUNTIME_DIR",
        ) from None
    try:
        while not try_lock(fd):
            if daemon_pid(directory) is not None:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        try:
            if daemon_pid(directory) is None:
                _start(directory, linger_s)
            while daemon_pid(directory) is None:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
            return True
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def daemon_environment(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """Environment of a daemon that a process with `environ` starts from the working directory `directory`.

    PYTHONPATH stays, made absolute: the daemon works in `/` and must find the same package.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED
        and not name.startswith(_DROPPED_PREFIXES)
        and (not name.startswith("HPCSAMPLER_") or name in _KEPT)
    }
    if path := kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(os.path.join(directory, part) for part in path.split(os.pathsep))  # noqa: PTH118 - joins as a string
    # Nothing that lies in `/` may shadow a module.
    kept["PYTHONSAFEPATH"] = "1"
    return kept


def _start(directory: RuntimeDirectory, linger_s: float | None) -> None:
    if not sys.executable:
        raise FileNotFoundError(errno.ENOENT, "no Python executable: run `hpcsampler daemon start`")
    arguments = [sys.executable, "-m", "hpcsampler", "daemon", "run", "--background"]
    arguments += ["--runtime-dir", str(directory.path)]
    if linger_s is not None:
        arguments += ["--linger", f"{linger_s:g}"]
    try:
        here = os.getcwd()  # noqa: PTH109 - start-up without pathlib's cost
    except FileNotFoundError:
        here = "/"
    with _log(directory.log) as log:
        _detach.start_detached(arguments, daemon_environment(os.environ, here), log)


@contextmanager
def _log(path: Path) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)  # a daemon without a log is better than none
    try:
        if os.fstat(fd).st_size > LOG_BYTES:
            os.ftruncate(fd, 0)
        yield fd
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the `flock` of an open file for oneself alone, without waiting. False if another holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
