"""What the viewer remembers of each rank.

The productive share of the last minutes, for the trend beside its bar.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .bars import productive_share, shares_of
from .numbers import items, number

if TYPE_CHECKING:
    from ..protocol.snapshot import Snapshot

BUCKET_S = 5.0
"""Seconds that one character of a trend stands for.

Half the window, so that neighbours are not the same data.
"""
BUCKETS = 60
"""Most that a trend can show: five minutes."""
_FORGET_AFTER = 2 * BUCKETS
"""Buckets after which a rank that has gone is forgotten."""


@dataclass(slots=True)
class _Trail:
    values: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=BUCKETS))
    """(bucket, productive share), the last of each bucket."""


@dataclass(slots=True)
class History:
    """Grows with each snapshot; asked by the frame."""

    bucket: int = -1
    """The newest one with data."""
    trails: dict[str, _Trail] = field(default_factory=dict)

    def add(self, snapshot: Snapshot, at_s: float) -> None:
        """Take in a snapshot that was current at `at_s`, in seconds of a clock that never steps."""
        self.bucket = max(self.bucket, int(at_s / BUCKET_S))
        for rank in items(snapshot, "ranks"):
            key = rank.get("rank_key") if isinstance(rank, dict) else None
            age = number(rank, "age_s")
            share = productive_share(shares_of(rank.get("phases"))) if isinstance(key, str) else None
            if not isinstance(key, str) or share is None or (age is not None and age > BUCKET_S):
                continue
            values = self.trails.setdefault(key, _Trail()).values
            if values and values[-1][0] == self.bucket:
                values.pop()
            values.append((self.bucket, share))
        if len(self.trails) > 2 * len(items(snapshot, "ranks")) + BUCKETS:
            self._forget()

    def _forget(self) -> None:
        oldest = self.bucket - _FORGET_AFTER
        self.trails = {key: trail for key, trail in self.trails.items() if trail.values[-1][0] >= oldest}

    def series(self, rank_key: str, count: int, until: int) -> list[float | None]:
        """The last `count` values up to bucket `until`, oldest first; None where there was no data."""
        trail = self.trails.get(rank_key)
        known = dict(trail.values) if trail else {}
        return [known.get(bucket) for bucket in range(until - count + 1, until + 1)]
