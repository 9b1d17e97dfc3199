"""What the daemon knows of this very process: a rank that looks at its own figures."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ..errors import HpcsamplerError
from ..source import SnapshotSource

if TYPE_CHECKING:
    from ..protocol.snapshot import RankSnapshot, Snapshot


_IN_VAIN_S = 0.5
"""After a wait of so long, or longer, in which nothing came, none is waited for until something comes."""


class OwnFigures:
    """Subscribes to the daemon's snapshots when it is first asked, and keeps the newest. Safe from any thread."""

    def __init__(self, address: str, rank_key: str) -> None:
        self._address = address
        self._rank_key = rank_key
        self._lock = threading.Lock()
        self._source: SnapshotSource | None = None
        self._newest: RankSnapshot | None = None
        self._newest_ns = 0
        self._silent = False
        """There was a wait in vain: a loop that asks each epoch must not be held up each time."""

    def read(self, since_ns: int, wait_s: float) -> RankSnapshot | None:
        """The newest figures; waits at most `wait_s` for some that reach until `since_ns` (CLOCK_MONOTONIC)."""
        end = time.monotonic() + wait_s
        with self._lock:
            if self._source is None:
                try:
                    self._source = SnapshotSource(self._address)
                except HpcsamplerError:
                    return None  # no daemon can be there: attach() has said so
            self._take(self._source.poll())
            while not self._silent and self._newest_ns < since_ns and (left_s := end - time.monotonic()) > 0:
                snapshot = self._source.wait(left_s)
                self._take(snapshot)
                self._silent = snapshot is None and wait_s >= _IN_VAIN_S
            if self._newest is None:
                return None
            found = self._newest.copy()
            found["age_s"] = max(0.0, (time.monotonic_ns() - self._newest_ns) / 1e9)
            return found

    def close(self) -> None:
        """Let go of the socket, at once."""
        with self._lock:
            if self._source is not None:
                self._source.close()
            self._source = self._newest = None
            self._newest_ns = 0
            self._silent = False

    def _take(self, snapshot: Snapshot | None) -> None:
        """Look at the snapshot that has come, if one has."""
        if snapshot is None:
            return
        self._silent = False
        for rank in snapshot["ranks"]:
            if rank["rank_key"] == self._rank_key:
                self._newest = rank
                self._newest_ns = snapshot["monotonic_ns"] - int(rank["age_s"] * 1e9)
