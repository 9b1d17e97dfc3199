"""One process, attached: its ring, its hooks and its sender, from `attach()` to the end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .. import runtime
from .. import settings as settings_module
from ..ext import _events
from ..protocol.identity import Identity, identify
from .hooks import HookSet
from .own import OwnFigures
from .sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.snapshot import RankSnapshot
    from .names import Names

_EXIT_S = 0.15
"""Longest that the end of the program waits for the last events to leave."""


class Session:
    """Everything that `attach()` starts. Made by `start`, ended by `close`."""

    _hooks: HookSet | None = None
    """Of the process, not of a session: after a fork the child has its parent's hooks in place already."""

    def __init__(self, sender: Sender, hooks: HookSet, own: OwnFigures) -> None:
        self._sender = sender
        self._installed = hooks
        self._closed = False
        self._own = own
        atexit.register(self._at_exit)

    @classmethod
    def start(
        cls,
        names: Names,
        *,
        job: str | None,
        rank: int | None,
        world_size: int | None,
        daemon: str | None,
        on_fork: Callable[[], None],
    ) -> Session | None:
        """Attach this process. None if the settings say that sampling is off. Raises `HpcsamplerError`."""
        settings = settings_module.load(os.environ, job=job, rank=rank, world_size=world_size, daemon=daemon)
        if not settings.enabled:
            return None
        program = _program()
        identity: Identity = identify(
            os.environ, program=program, job=settings.job, rank=settings.rank, world_size=settings.world_size,
        )
        directory = runtime.locate(os.environ, os.getuid())
        if not settings.daemon.startswith("ipc://"):
            runtime.prepare(directory)
        _events.open_ring(settings.ring_events)
        while _events.drain():
            pass  # what a former session could not send is not of this one
        cost_ns = _events.event_cost_ns()
        _events.set_driver(threading.get_ident())
        if cls._hooks is None:
            cls._hooks = HookSet(names)
        hooks = cls._hooks
        hooks.install()
        sender = Sender(identity, program, directory, settings, names, hooks, cost_ns)
        session = cls(sender, hooks, OwnFigures(directory.snapshots_address, sender.rank_key))
        _AfterFork.register(session, on_fork)
        _events.record(True)
        sender.start()
        return session

    def snapshot(self, wait_s: float) -> RankSnapshot | None:
        """What the daemon knows of this rank."""
        since_ns = _events.now_ns()
        _events.wake()  # what is recorded until here leaves now
        return self._own.read(since_ns, wait_s)

    def close(self, reason: str, wait_s: float = 1.0) -> None:
        """Stop recording, let the last events leave for at most `wait_s`, put back what was wrapped."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        _events.record(False)
        self._sender.stop(reason, wait_s)
        self._own.close()
        self._installed.restore()

    def _at_exit(self) -> None:
        # Nothing is put back: the interpreter is going, and other exit handlers may still run the model.
        if not self._closed:
            self._closed = True
            _events.record(False)
            self._sender.stop("exit", _EXIT_S)

    def abandon(self) -> None:
        """In a forked child: all of this is the parent's.

        Touch nothing of it, and never be collected, for closing an inherited socket would disturb the parent's.
        """
        atexit.unregister(self._at_exit)
        _AfterFork.orphans.append(self)


class _AfterFork:
    """What a forked child must do; registered once per process, because Python can't unregister it."""

    orphans: list[object] = []  # noqa: RUF012 - of the process
    _registered = False
    _current: tuple[Session, Callable[[], None]] | None = None

    @classmethod
    def register(cls, session: Session, on_fork: Callable[[], None]) -> None:
        cls._current = (session, on_fork)
        if not cls._registered:
            cls._registered = True
            os.register_at_fork(after_in_child=cls._in_child)

    @classmethod
    def _in_child(cls) -> None:
        if cls._current is not None:
            session, on_fork = cls._current
            cls._current = None
            session.abandon()
            on_fork()


_said: set[str] = set()


def say_once(text: str) -> None:
    """One warning for the user. Where warnings are made errors, a line on stderr: it must not end the training."""
    if text in _said:
        return
    _said.add(text)
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        print(text, file=sys.stderr)


def _program() -> str:
    """What runs here, as its user would call it: `train.py`, `-m package`."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and getattr(spec, "name", None):
        return f"-m {str(spec.name).removesuffix('.__main__')}"
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in {"", "-c"} else "python"
