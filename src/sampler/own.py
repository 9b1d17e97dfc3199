"""What the daemon knows of this very process: a rank that looks at its own figures."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import zmq

from ..protocol.snapshot import TOPIC, decode_snapshot

if TYPE_CHECKING:
    from ..protocol.snapshot import RankSnapshot


class OwnFigures:
    """Subscribes to the daemon's snapshots when it is first asked, and keeps the newest. Safe from any thread."""

    def __init__(self, address: str, rank_key: str) -> None:
        self._address = address
        self._rank_key = rank_key
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._newest: RankSnapshot | None = None
        self._newest_ns = 0

    def read(self, since_ns: int, wait_s: float) -> RankSnapshot | None:
        """The newest figures; waits at most `wait_s` for some that reach until `since_ns` (CLOCK_MONOTONIC)."""
        end = time.monotonic() + wait_s
        with self._lock:
            if self._socket is None:
                self._socket = self._connect()
            while True:
                self._take(self._socket)
                left_ms = (end - time.monotonic()) * 1000
                if self._newest_ns >= since_ns or left_ms <= 0:
                    break
                self._socket.poll(int(left_ms) + 1)
            if self._newest is None:
                return None
            found = self._newest.copy()
            found["age_s"] = max(0.0, (time.monotonic_ns() - self._newest_ns) / 1e9)
            return found

    def close(self) -> None:
        """Let go of the socket, at once."""
        with self._lock:
            if self._context is not None:
                self._context.destroy(linger=0)
            self._context = self._socket = self._newest = None
            self._newest_ns = 0

    def _connect(self) -> zmq.Socket[bytes]:
        self._context = zmq.Context()
        made = self._context.socket(zmq.SUB)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.CONFLATE, 1)
        made.setsockopt(zmq.RECONNECT_IVL, 100)
        made.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        made.setsockopt(zmq.SUBSCRIBE, TOPIC)
        made.connect(self._address)
        return made

    def _take(self, source: zmq.Socket[bytes]) -> None:
        """Look at the snapshot that has come, if one has."""
        try:
            snapshot = decode_snapshot(source.recv(zmq.DONTWAIT))
        except (zmq.Again, ValueError):
            return
        for rank in snapshot["ranks"]:
            if rank["rank_key"] == self._rank_key:
                self._newest = rank
                self._newest_ns = snapshot["monotonic_ns"] - int(rank["age_s"] * 1e9)
