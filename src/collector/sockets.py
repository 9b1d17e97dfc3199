"""The daemon's sockets: events come in through one, snapshots go out through another, the third takes questions."""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import zmq

from hpcsampler.errors import RuntimeDirectoryError
from hpcsampler.protocol.control import MAX_REQUEST_BYTES
from hpcsampler.protocol.messages import MAX_MESSAGE_BYTES
from hpcsampler.protocol.snapshot import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from hpcsampler.runtime import RuntimeDirectory

QUEUED_MESSAGES: Final = 32
"""Messages that wait for the daemon, of each rank: a rank sends some ten a second, so this is seconds."""
QUEUED_SNAPSHOTS: Final = 4
"""Snapshots that wait for a viewer that does not read."""
_SUBSCRIPTIONS: Final = 64
"""Subscriptions taken in at a time: whoever floods the daemon with them must not keep it from its work."""
_QUESTIONS: Final = 16
"""Questions taken in at a time."""
_LINGER_MS: Final = 100
_BACKLOG: Final = 1024
"""Connections that wait to be accepted: all ranks of a large node come at once."""


class Sockets:
    """All sockets, bound. Single-threaded."""

    def __init__(self, directory: RuntimeDirectory) -> None:
        """Bind. Raises `RuntimeDirectoryError` where that can't be. Former sockets' files must be gone."""
        self._context = zmq.Context()
        try:
            self._events = self._bind(zmq.ROUTER, directory.events_address)
            self._snapshots = self._bind(zmq.XPUB, directory.snapshots_address)
            self._control = self._bind(zmq.ROUTER, directory.control_address)
            self._control.set(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise RuntimeDirectoryError(
                f"can't make the sockets in {directory.path}: {error.strerror}",
            ) from None
        self.has_viewers = False
        # Kept: a socket's own `poll` makes one for each call.
        self._subscriptions = zmq.Poller()
        self._subscriptions.register(self._snapshots, zmq.POLLIN)

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.set(zmq.LINGER, _LINGER_MS)
        made.set(zmq.BACKLOG, _BACKLOG)
        if kind == zmq.ROUTER:
            made.set(zmq.RCVHWM, QUEUED_MESSAGES)
            # Twice what a message may have: what is a little too long is still taken, counted and said. The
            # connection of whoever sends more is closed.
            made.set(zmq.MAXMSGSIZE, 2 * MAX_MESSAGE_BYTES)
            made.set(zmq.SNDHWM, QUEUED_MESSAGES)
        else:
            made.set(zmq.SNDHWM, QUEUED_SNAPSHOTS)
            # Tell of each subscription, not only of a topic's first: each new viewer is served at once.
            made.set(zmq.XPUB_VERBOSE, 1)
            made.set(zmq.MAXMSGSIZE, 1024)  # all that viewers send is subscriptions
        made.bind(address)
        return made

    def wait(self, seconds: float) -> bool:
        """Sleep until a viewer subscribes, at most `seconds`. True if a new one has."""
        new = False
        timeout_ms = max(0, math.ceil(seconds * 1000))
        for _ in range(_SUBSCRIPTIONS):
            if not self._subscriptions.poll(timeout_ms):
                break
            timeout_ms = 0
            frame = self._snapshots.recv()
            if frame[1:] == TOPIC:
                # 1 comes with each subscription, 0 when the last of them is gone.
                self.has_viewers = frame[:1] == b"\x01"
                new |= self.has_viewers
        return new

    def receive(self, take: Callable[[list[bytes]], None], budget_s: float) -> float | None:
        """Hand all messages that have come to `take`, for at most about `budget_s` seconds.

        Returns how full the fullest of the ranks' queues was, 0 to 1 or a little more; None if some may be
        left.
        """
        deadline = time.monotonic() + budget_s
        counts: Counter[bytes] = Counter()
        while True:
            try:
                # `recv_multipart` asks for an option after each frame, which costs more than to receive it. After
                # the routing id there is always another frame, and that one knows whether it is the last.
                peer = self._events.recv(zmq.NOBLOCK)
                payload = self._events.recv(zmq.NOBLOCK, copy=False)
                more = self._events.recv_multipart(zmq.NOBLOCK) if payload.more else ()
            except zmq.Again:
                return max(counts.values(), default=0) / QUEUED_MESSAGES
            take([peer, payload.bytes, *more])
            counts[peer] += 1
            if time.monotonic() >= deadline:
                return None

    def questions(self) -> list[tuple[bytes, bytes]]:
        """Who asks, and what, as bytes."""
        found = []
        for _ in range(_QUESTIONS):
            try:
                frames = self._control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(frames) == 2:  # noqa: PLR2004 - routing id and payload
                found.append((frames[0], frames[1]))
        return found

    def answer(self, who: bytes, data: bytes) -> None:
        """Send an answer to whoever asked. One that has gone, or does not read, misses it."""
        with suppress(zmq.Again):
            self._control.send_multipart([who, data], zmq.NOBLOCK)

    def tell(self, peer: bytes, data: bytes) -> None:
        """Send something to a rank. One that has gone, or does not read, misses it."""
        with suppress(zmq.Again):
            self._events.send_multipart([peer, data], zmq.NOBLOCK)

    def publish(self, frame: bytes) -> None:
        """Send a snapshot to all viewers. One that does not read misses it."""
        self._snapshots.send(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None,
    ) -> None:
        self._context.destroy(linger=_LINGER_MS)
