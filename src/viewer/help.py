"""The help screen: the keys, what the letters of a bar mean, what a number is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.phases import PRODUCTIVE_PHASES
from .bars import BAR_ORDER, style_of
from .cells import Glyphs, fit, wrap
from .history import BUCKET_S
from .order import SORTS
from .style import Line, Segment, clip

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY_CELLS = 12
_NAME_CELLS = 11
"""The longest name of a phase, and a space."""


@dataclass(frozen=True, slots=True)
class HelpPage:
    """What of the help is visible."""

    lines: tuple[Line, ...]
    first: int
    """The line at the top, as near to the one that was asked for as there is text."""


def help_page(first: int, cells: int, height: int, glyphs: Glyphs) -> HelpPage:
    """The help from line `first`, with its own keys in the last line."""
    lines = help_lines(cells, glyphs)
    if len(lines) > height - 1:
        lines = [line for line in lines if line.segments]
    page = max(height - 1, 0)
    first = max(min(first, len(lines) - page), 0)
    shown = lines[first : first + page]
    footer = [Segment("Esc", "key"), Segment(" back", "quiet")]
    if len(lines) > page:
        footer += [
            Segment(f"  {glyphs.up}{glyphs.down}", "key"),
            Segment(f" {first + 1}-{first + len(shown)} of {len(lines)}", "quiet"),
        ]
    blank = [Line()] * (page - len(shown))
    return HelpPage(
        tuple(clip(line, cells, glyphs) for line in [*shown, *blank, Line(tuple(footer))][:height]), first
    )


def help_lines(cells: int, glyphs: Glyphs) -> list[Line]:
    """All of it, for a screen of `cells`; the screen may be lower than this is long."""
    keys = [
        ("q", "quit"),
        ("? h Esc", "this page, and back"),
        ("p Space", "hold the screen, go on"),
        ("+ -", "update faster, slower"),
        ("s", "next order of the rows"),
        ("r", "reverse the order"),
        (f"{glyphs.up} {glyphs.down} j k", "select a row"),
        ("PgUp PgDn", "by pages; Home, End"),
    ]
    lines = [_heading("Keys"), *_two_columns(keys, cells, glyphs), Line()]
    lines.append(_heading("Bars: what a rank can be in; those that are seen stand above the table"))
    for phase in BAR_ORDER:
        productive = phase in PRODUCTIVE_PHASES
        lines.append(
            Line(
                (
                    Segment(f" {phase.letter} ", style_of(phase.label)),
                    Segment(" " + fit(phase.label, _NAME_CELLS, glyphs)),
                    Segment(
                        fit("productive" if productive else "stall", _NAME_CELLS, glyphs),
                        "good" if productive else "middle",
                    ),
                    Segment(phase.meaning),
                ),
            ),
        )
    lines += [Line(), _heading("Numbers")]
    for text in (
        "goodput: productive part of the time since attach(). p50/p99: ms per step.",
        f"trend: stalled share, {BUCKET_S:g} s a character, newest at the right. {glyphs.absent} is unknown.",
        f"orders: {', '.join(SORTS)}; by numbers, the worst first.",
    ):
        lines += [Line((Segment(line),)) for line in wrap(text, cells, glyphs)]
    return lines


def _heading(text: str) -> Line:
    return Line((Segment(text, "heading"),))


def _two_columns(keys: Sequence[tuple[str, str]], cells: int, glyphs: Glyphs) -> list[Line]:
    """Keys in one column; in two where the screen is wide enough, read downwards."""
    columns = 2 if cells >= 80 else 1  # noqa: PLR2004 - the least width that holds two
    rows = -(-len(keys) // columns)
    lines = []
    for at in range(rows):
        segments = []
        for key, text in keys[at::rows]:
            segments += [
                Segment(fit(f" {key}", _KEY_CELLS, glyphs), "key"),
                Segment(fit(text, cells // columns - _KEY_CELLS, glyphs)),
            ]
        lines.append(Line(tuple(segments)))
    return lines
