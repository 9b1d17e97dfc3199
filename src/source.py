"""Where snapshots come from, for viewers and for ranks themselves: a SUB socket that keeps the newest one only."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import zmq

from .errors import HpcsamplerError
from .protocol.snapshot import TOPIC, decode_snapshot

if TYPE_CHECKING:
    from .protocol.snapshot import Snapshot

_LARGEST_BYTES = 64 << 20
"""A message that is longer is no snapshot; the socket then drops the connection and makes it anew."""
_RECONNECT_MS = 100
_RECONNECT_MOST_MS = 500
_FUTURE_NS = 1_000_000_000
"""A snapshot from further ahead than this is from another clock: of another boot, or another machine."""


class SnapshotSource:
    """Connects to a daemon that may not be there yet, may go and may come back.

    ZeroMQ reconnects by itself.
    """

    def __init__(self, address: str) -> None:
        self.bad_frames = 0
        """Messages that were no snapshots."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.CONFLATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_BYTES)
        self._socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise HpcsamplerError(
                f"can't connect to {address} ({os.strerror(error.errno or 0)}): choose the daemon's"
                " directory by --runtime-dir or HPCSAMPLER_RUNTIME_DIR",
            ) from None

    def poll(self) -> Snapshot | None:
        """The newest snapshot that has come since the last call; None if there was none. Never waits."""
        try:
            frame = self._socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None
        try:
            return decode_snapshot(frame)
        except ValueError:
            self.bad_frames += 1
            return None

    def wait(self, timeout_s: float) -> Snapshot | None:
        """The next snapshot; None if none comes within `timeout_s`."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            if self._socket.poll(max(int(left * 1000), 1)) and (snapshot := self.poll()) is not None:
                return snapshot
        return None

    def close(self) -> None:
        """Let go of the socket, at once."""
        self._socket.close()
        self._context.term()


def made_at_ns(snapshot: Snapshot, received_ns: int) -> int:
    """When the snapshot was made, on this machine's monotonic clock.

    The daemon's clock is the same one, unless a snapshot came from elsewhere: then the time it was received
    counts.
    """
    made = snapshot.get("monotonic_ns")
    if not isinstance(made, int) or not 0 < made <= received_ns + _FUTURE_NS:
        return received_ns
    return min(made, received_ns)
