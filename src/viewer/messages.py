"""What must be said in a sentence: what is lost, what is wrong, what a rank has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cells import Glyphs, clean
from .findings import finding_lines
from .numbers import count, duration, inner, items, number, percent
from .words import COVERED, OLD_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..protocol.snapshot import Snapshot

_NAMED = 6
"""Ranks that a message names before it only counts them."""


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence and its style."""

    text: str
    style: str


def messages_of(
    snapshot: Snapshot, *, age_s: float, paused: bool, bad_frames: int, glyphs: Glyphs
) -> list[Message]:
    """All there is to say, the gravest first."""
    said: list[Message] = []
    if age_s > OLD_S and not paused:
        said.append(
            Message(
                f"daemon silent for {duration(age_s)}: reconnecting. A rank restarts one that has ended",
                "bad",
            ),
        )
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    said += _gpu_messages(snapshot, glyphs)
    said += _loss_messages(ranks, glyphs)
    said += _rejected_messages(snapshot, glyphs)
    if bad_frames:
        said.append(
            Message(
                f"{count(bad_frames)} messages from the daemon were no snapshots that this version reads",
                "middle",
            )
        )
    said += [Message(text, style) for text, style in finding_lines(snapshot, glyphs)]
    said += _note_messages(ranks, glyphs)
    status = clean(inner(snapshot, "daemon").get("gpu_status"), glyphs)
    if status and status != "ok":
        said.append(Message(f"GPU: {status}", "quiet"))
    return said


def _gpu_messages(snapshot: Snapshot, glyphs: Glyphs) -> list[Message]:
    said = []
    for gpu in items(snapshot, "gpus"):
        error = clean(gpu.get("error"), glyphs) if isinstance(gpu, dict) else ""
        if error:
            index = number(gpu, "index")
            said.append(Message(f"GPU {glyphs.absent if index is None else f'{index:.0f}'}: {error}", "bad"))
    return said


def _loss_messages(ranks: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> list[Message]:
    said = []
    dropped = [(rank, value) for rank in ranks if (value := number(rank, "dropped"))]
    if dropped:
        whole = count(sum(value for _, value in dropped))
        where = _ranks([rank for rank, _ in dropped], glyphs)
        said.append(Message(f"{whole} events dropped by {where}", "middle"))
    thin = [
        (value, rank) for rank in ranks if (value := number(rank, "coverage")) is not None and value < COVERED
    ]
    if thin:
        least = min(value for value, _ in thin)
        where = _ranks([rank for _, rank in thin], glyphs)
        how = (
            f"{percent(least)} of the window"
            if len(thin) == 1
            else f"as little as {percent(least)} of the window"
        )
        said.append(Message(f"shares of {where} cover {how}", "middle"))
    return said


def _note_messages(ranks: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> list[Message]:
    by_note: dict[str, list[Mapping[str, Any]]] = {}
    for rank in ranks:
        for note in items(rank, "notes"):
            if text := clean(note, glyphs).strip():
                by_note.setdefault(text, []).append(rank)
    return [Message(f"{_ranks(who, glyphs)}: {note}", "info") for note, who in by_note.items()]


def _ranks(ranks: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> str:
    if len(ranks) > _NAMED:
        return f"{len(ranks)} ranks"
    jobs = {clean(rank.get("job"), glyphs) for rank in ranks}
    names = []
    for rank in ranks:
        value = number(rank, "rank")
        name = glyphs.absent if value is None else f"{value:.0f}"
        names.append(
            name if len(jobs) == 1 else f"{name} of {clean(rank.get('job'), glyphs) or glyphs.absent}"
        )
    return ("rank " if len(names) == 1 else "ranks ") + ", ".join(names)


def _rejected_messages(snapshot: Snapshot, glyphs: Glyphs) -> list[Message]:
    reasons = inner(inner(snapshot, "daemon"), "rejected")
    counted = [(value, clean(reason, glyphs)) for reason in reasons if (value := number(reasons, reason))]
    if not counted:
        return []
    counted.sort(reverse=True)
    parts = ", ".join(f"{count(value)} {reason}" for value, reason in counted)
    return [
        Message(
            f"the daemon dropped {count(sum(value for value, _ in counted))} bad messages: {parts}", "middle"
        )
    ]
