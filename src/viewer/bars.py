"""Bars and trends: shares to cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.phases import PRODUCTIVE_PHASES, Phase
from .numbers import number
from .style import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .cells import Glyphs

PHASE_OF_LABEL: dict[str, Phase] = {phase.label: phase for phase in Phase}
BAR_ORDER: tuple[Phase, ...] = (
    *sorted(PRODUCTIVE_PHASES, reverse=True),
    *(phase for phase in Phase if phase not in PRODUCTIVE_PHASES),
)
"""Productive time first, so that its end is the goodput of the window at a glance.

Then stalls by precedence.
"""
_PLACE = {phase.label: place for place, phase in enumerate(BAR_ORDER)}
_UNKNOWN_LETTER = "?"


def shares_of(phases: object) -> dict[str, float]:
    """The shares in a snapshot's `phases`, those that are positive numbers, in the order of the bar.

    A label that this viewer does not know (a newer daemon's) is kept, at the end.
    """
    if not isinstance(phases, dict):
        return {}
    found = [
        (label, share)
        for label in phases
        if isinstance(label, str) and (share := number(phases, label)) is not None and share > 0
    ]
    found.sort(key=lambda pair: _PLACE.get(pair[0], len(_PLACE)))
    return dict(found)


def productive_share(shares: Mapping[str, float]) -> float | None:
    """Of the window, the part in productive phases; None without data."""
    total = sum(shares.values())
    if total <= 0:
        return None
    return sum(shares.get(phase.label, 0.0) for phase in PRODUCTIVE_PHASES) / total


def letter_of(label: str) -> str:
    """The letter of a phase in a bar."""
    phase = PHASE_OF_LABEL.get(label)
    return phase.letter if phase else _UNKNOWN_LETTER


def style_of(label: str) -> str:
    """The style of a phase in a bar."""
    return f"phase:{label}" if label in PHASE_OF_LABEL else "unknown"


def apportion(shares: Mapping[str, float], cells: int) -> dict[str, int]:
    """`cells` divided in proportion to `shares`: exactly all of them, each within one cell of its share.

    Largest remainders (Hamilton): what rounds down to no cell can still get one.
    """
    total = sum(shares.values())
    if total <= 0 or cells <= 0:
        return {}
    exact = {label: share / total * cells for label, share in shares.items()}
    whole = {label: int(value) for label, value in exact.items()}
    left = cells - sum(whole.values())
    for label in sorted(exact, key=lambda label: whole[label] - exact[label])[:left]:
        whole[label] += 1
    return whole


def stacked_bar(shares: Mapping[str, float], cells: int, *, faded: bool = False) -> tuple[Segment, ...]:
    """A bar of exactly `cells`, every cell the letter of its phase; no segment without data."""
    parts = apportion(shares, cells)
    return tuple(
        Segment(letter_of(label) * size, "old" if faded else style_of(label))
        for label, size in parts.items()
        if size
    )


def trend(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """One character per value, 0-1, the higher the more; a space where there was none."""
    steps = glyphs.trend
    top = len(steps) - 1
    return "".join(
        " " if value is None else steps[round(min(max(value, 0.0), 1.0) * top)] for value in values
    )


def mean_shares(all_shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of several ranks' shares, those without data left out, in the order of the bar."""
    total: dict[str, float] = {}
    ranks = 0
    for shares in all_shares:
        if shares:
            ranks += 1
            for label, share in shares.items():
                total[label] = total.get(label, 0.0) + share
    return shares_of({label: share / ranks for label, share in total.items()})
