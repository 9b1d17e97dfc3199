"""Rows of the table: which rank stands beside which GPU, and in what order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .bars import productive_share, shares_of
from .numbers import inner, items, number
from .words import OLD_S, is_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..protocol.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Row:
    """A rank on a GPU, a rank without one, or a GPU without a rank."""

    key: str
    """Names the row across snapshots."""
    gpu: Mapping[str, Any]
    """Empty if there is none."""
    rank: Mapping[str, Any]
    """Empty if there is none."""
    shares: Mapping[str, float]
    age_s: float
    """Of the rank's data: the age of the snapshot is in it. 0 without a rank."""

    @property
    def old(self) -> bool:
        """Whether what it shows is not of now, though the rank hasn't ended."""
        return self.age_s > OLD_S and not is_gone(self.rank)

    @property
    def faded(self) -> bool:
        """Whether its numbers are of the past: it is old, or its rank has ended."""
        return self.old or is_gone(self.rank)


def rows_of(snapshot: Snapshot, age_s: float) -> list[Row]:
    """All rows.

    Each GPU with its ranks, then the ranks without a GPU. `age_s` is that of the snapshot itself.
    """
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    gpus = [gpu for gpu in items(snapshot, "gpus") if isinstance(gpu, dict)]
    rows: list[Row] = []
    placed: set[int] = set()
    for gpu in gpus:
        mine = [at for at, rank in enumerate(ranks) if _uses(rank, gpu)]
        placed.update(mine)
        rows += [_row(gpu, ranks[at], age_s, len(rows)) for at in mine] or [_row(gpu, {}, age_s, len(rows))]
    for at, rank in enumerate(ranks):
        if at not in placed:
            rows.append(_row({}, rank, age_s, len(rows)))
    return rows


def _uses(rank: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    key, uuid = rank.get("rank_key"), gpu.get("uuid")
    return (key is not None and key in items(gpu, "rank_keys")) or (
        uuid is not None and uuid in items(rank, "gpus")
    )


def _row(gpu: Mapping[str, Any], rank: Mapping[str, Any], age_s: float, place: int) -> Row:
    own = number(rank, "age_s") or 0.0
    names = (gpu.get("uuid"), rank.get("rank_key"))
    key = "\0".join(str(name) for name in names if name is not None) or f"row {place}"
    return Row(key, gpu, rank, shares_of(rank.get("phases")), own + age_s if rank else 0.0)


def ordered(rows: Iterable[Row], sort: str, *, reverse: bool) -> list[Row]:
    """The rows by `sort`. Those without the number stay last either way; equals stay in their place."""
    rows = sorted(rows, key=_place if sort != "rank" else _rank_place)
    if sort in ("gpu", "rank"):
        return rows[::-1] if reverse else rows
    known: list[tuple[float, Row]] = []
    unknown: list[tuple[float, Row]] = []
    for row in rows:
        value = _badness(row, sort)
        (unknown if value is None else known).append((value or 0.0, row))
    known.sort(key=lambda pair: pair[0], reverse=not reverse)
    return [row for _, row in known + unknown]


def _place(row: Row) -> tuple[float, bool, str, float, str]:
    index = number(row.gpu, "index")
    return (math.inf if index is None else index, *_rank_place(row))


def _rank_place(row: Row) -> tuple[bool, str, float, str]:
    """Those that have ended after all that have not: whoever looks wants to see what runs."""
    rank = number(row.rank, "rank")
    return is_gone(row.rank), str(row.rank.get("job", "")), math.inf if rank is None else rank, row.key


def _badness(row: Row, sort: str) -> float | None:
    """The larger, the earlier a row stands. Ranks that ended are no longer anyone's problem."""
    if is_gone(row.rank):
        return None
    if sort == "stall":
        busy = productive_share(row.shares)
        return None if busy is None else 1.0 - busy
    if sort == "util":
        value = number(row.gpu, "utilization") if row.gpu else number(inner(row.rank, "cpu"), "percent")
    else:
        value = number(row.rank, {"rate": "steps_per_s", "goodput": "goodput"}[sort])
    return None if value is None else -value


def first_visible(first: int, selected: int, page: int, total: int) -> int:
    """The row at the top: as near to `first` as keeps the selected one on the page and the page full."""
    first = min(first, max(selected, 0))
    first = max(first, selected - page + 1)
    return max(0, min(first, total - page))
