"""What a rank is doing, and why it isn't training, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..protocol.phases import Phase
from .bars import PHASE_OF_LABEL, productive_share, shares_of
from .cells import Glyphs, clean
from .numbers import count, duration, inner, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD_S = 2.0
"""Data older than this is shown as old: the daemon publishes several times a second."""
COVERED = 0.995
"""Coverage from which it shows as 100 %."""
_BUSY = 0.95
"""Productive share from which a rank without a cause is said to be at work."""
LONG_OPEN_S = 1.0
"""A phase that is open for longer is worth naming before any share of the past window."""

_CAUSE = {
    Phase.CHECKPOINT: "waits for a checkpoint",
    Phase.COMPILE: "traces and compiles",
    Phase.GC: "collects garbage",
    Phase.INPUT: "waits for input",
    Phase.COLLECTIVE: "waits in collectives",
    Phase.TRANSFER: "waits for copies",
    Phase.DEVICE: "waits for the device",
    Phase.CALLBACK: "runs callbacks",
    Phase.USER: "in its own phase",
    Phase.EVALUATION: "validates",
    Phase.STEP: "trains",
    Phase.STARTUP: "starts up",
    Phase.HOST: "in Python between steps",
}
_STATE_STYLE = {
    "starting": "info",
    "training": "good",
    "evaluating": "good",
    "stalled": "bad",
    "exited": "quiet",
    "killed": "bad",
}


def phase_name(label: object, glyphs: Glyphs) -> str:
    """A phase as it is called on the screen."""
    return clean(label, glyphs) or glyphs.absent


def state_cell(rank: Mapping[str, Any], age_s: float, glyphs: Glyphs) -> tuple[str, str]:
    """(text, style) of a rank's state.

    Old data is old before it is anything else, except for ranks that ended.
    """
    state = clean(rank.get("state"), glyphs)
    if not state:
        return glyphs.absent, "quiet"
    if is_gone(rank):
        return state, _STATE_STYLE[state]
    if age_s > OLD_S:
        return f"old {duration(age_s)}", "old"
    if rank.get("paused") is True:
        return "paused", "info"
    return state, _STATE_STYLE.get(state, "")


def is_lossy(rank: Mapping[str, Any]) -> bool:
    """Whether the rank's shares rest on less than all that happened."""
    coverage = number(rank, "coverage")
    return (number(rank, "dropped") or 0) > 0 or (coverage is not None and coverage < COVERED)


def is_gone(rank: Mapping[str, Any]) -> bool:
    """Whether the rank has ended: nothing new will come from it."""
    return rank.get("state") in ("exited", "killed")


def cause_cell(rank: Mapping[str, Any], glyphs: Glyphs) -> tuple[str, str]:
    """(text, style) of what holds the rank up, most telling part first, as the end may be cut."""
    opened = inner(rank, "open_phase")
    since = number(opened, "since_s")
    where = phase_name(opened.get("phase"), glyphs) if opened else ""
    if is_gone(rank):
        return _ended(rank, where, since)
    if rank.get("paused") is True:
        return "recording is paused", "info"
    cause = inner(rank, "top_cause")
    said = _cause(cause, glyphs)
    if rank.get("state") == "stalled" and where and since is not None and since >= LONG_OPEN_S:
        more = (
            _detail(cause, glyphs)
            if cause.get("phase") == opened.get("phase")
            else f"; {said}"
            if said
            else ""
        )
        return f"stuck in {where} for {duration(since)}{more}", "bad"
    if said:
        share = number(cause, "share") or 0.0
        return said, "" if share >= 0.05 else "quiet"  # noqa: PLR2004 - XProf's lower bound for a bottleneck
    return _without_cause(rank, where, since, glyphs)


def _ended(rank: Mapping[str, Any], where: str, since: float | None) -> tuple[str, str]:
    if rank.get("state") == "killed":
        after = f" after {duration(since)}" if since is not None else ""
        return (f"killed in {where}{after}" if where else "killed"), "bad"
    steps = number(rank, "step")
    return ("exited" if steps is None else f"exited after {count(steps)} steps"), "quiet"


def _detail(cause: Mapping[str, Any], glyphs: Glyphs) -> str:
    detail = clean(cause.get("detail"), glyphs).strip()
    return f" {glyphs.dash} {detail}" if detail else ""


def _cause(cause: Mapping[str, Any], glyphs: Glyphs) -> str:
    label = cause.get("phase")
    if not isinstance(label, str):
        return ""
    phase = PHASE_OF_LABEL.get(label)
    words = _CAUSE[phase] if phase else f"in {phase_name(label, glyphs)}"
    share = number(cause, "share")
    return words + (f" {percent(share)}" if share is not None else "") + _detail(cause, glyphs)


def _without_cause(
    rank: Mapping[str, Any],
    where: str,
    since: float | None,
    glyphs: Glyphs,
) -> tuple[str, str]:
    busy = productive_share(shares_of(rank.get("phases")))
    if busy is not None and busy >= _BUSY:
        return f"at work {percent(busy)}", "good"
    if rank.get("state") == "starting":
        return "starts up" + (f" for {duration(since)}" if since is not None else ""), "info"
    if where and since is not None and since >= LONG_OPEN_S:
        return f"in {where} for {duration(since)}", ""
    return glyphs.absent, "quiet"
