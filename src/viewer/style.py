"""How things look: styled text, and the styles by name. No terminal and no toolkit is known here.

Colours are of the fixed part of the 256-colour palette, which no terminal theme redefines. Text colours are
of middle lightness, so that they read on a light and on a dark background; a cell of a bar has both a
background and a letter that contrasts with it. Nothing is said by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..protocol.phases import PRODUCTIVE_PHASES, Phase
from .cells import Glyphs, cut, width

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Segment:
    """Text in one style. The text is clean and has no line break."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen."""

    segments: tuple[Segment, ...] = ()

    @property
    def text(self) -> str:
        """Without the styles."""
        return "".join(segment.text for segment in self.segments)

    @property
    def cells(self) -> int:
        """How wide it is."""
        return sum(width(segment.text) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Look:
    """A style: numbers of the 256-colour palette, None is the terminal's own."""

    color: int | None = None
    background: int | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False
    underline: bool = False
    marked: bool = False
    """Reversed where there are no colours: an alarm stays one, and what of a bar is stalled stands out."""


_BLACK, _WHITE, _GREY, _GREEN, _AMBER, _RED, _BLUE = 16, 231, 244, 28, 166, 196, 32

_BAR_LOOK: dict[Phase, Look] = {
    # Productive time is green.
    Phase.STEP: Look(_BLACK, 71),
    Phase.DEVICE: Look(_WHITE, 22),
    Phase.EVALUATION: Look(_BLACK, 115),
    # Stalls are anything but green, the frequent ones furthest apart.
    Phase.INPUT: Look(_BLACK, 208),
    Phase.COLLECTIVE: Look(_WHITE, 25),
    Phase.CHECKPOINT: Look(_WHITE, 90),
    Phase.COMPILE: Look(_BLACK, 220),
    Phase.GC: Look(_BLACK, 205),
    Phase.TRANSFER: Look(_BLACK, 80),
    Phase.CALLBACK: Look(_WHITE, 94),
    Phase.USER: Look(_BLACK, 141),
    Phase.STARTUP: Look(_BLACK, 250),
    Phase.HOST: Look(_WHITE, 240),
}
PHASE_LOOK = {phase: replace(look, marked=phase not in PRODUCTIVE_PHASES) for phase, look in _BAR_LOOK.items()}

LOOKS: dict[str, Look] = {
    "": Look(),
    "bold": Look(bold=True),
    "title": Look(bold=True),
    "heading": Look(bold=True, underline=True),
    "quiet": Look(_GREY),
    "old": Look(_GREY),
    "key": Look(_BLUE, bold=True),
    "good": Look(_GREEN),
    "middle": Look(_AMBER),
    "bad": Look(_RED, bold=True),
    "info": Look(_BLUE),
    "cursor": Look(_BLUE, bold=True),
    "alarm": Look(_WHITE, _RED, bold=True, marked=True),
    "notice": Look(_BLACK, 220, bold=True, marked=True),
    "unknown": Look(_BLACK, 250),
    **{f"phase:{phase.label}": look for phase, look in PHASE_LOOK.items()},
}
"""Every style that a `Segment` may name."""


def level(share: float) -> str:
    """Style of a utilisation, 0-1, split at 10 and 75 % as people know it from nvitop."""
    return "bad" if share < 0.10 else "middle" if share < 0.75 else "good"  # noqa: PLR2004 - said above


def colorless(look: Look) -> Look:
    """`look` on a terminal that shall show no colour: what is marked is reversed, and what was grey is dim."""
    return Look(
        bold=look.bold,
        dim=look.color == _GREY,
        reverse=look.marked,
        underline=look.underline,
    )


def _codes(look: Look) -> str:
    codes = [
        code
        for code, on in (("1", look.bold), ("2", look.dim), ("4", look.underline), ("7", look.reverse))
        if on
    ]
    if look.color is not None:
        codes.append(f"38;5;{look.color}")
    if look.background is not None:
        codes.append(f"48;5;{look.background}")
    return ";".join(codes)


def to_text(lines: Iterable[Line]) -> str:
    """The lines without colour."""
    return "".join(line.text.rstrip() + "\n" for line in lines)


def to_ansi(lines: Iterable[Line], *, color: bool = True) -> str:
    """The lines with SGR sequences, each line complete in itself."""
    parts = []
    for line in lines:
        for segment in line.segments:
            look = LOOKS[segment.style]
            codes = _codes(look if color else colorless(look))
            parts.append(f"\x1b[{codes}m{segment.text}\x1b[0m" if codes else segment.text)
        parts.append("\n")
    return "".join(parts)


def clip(line: Line, cells: int, glyphs: Glyphs) -> Line:
    """The line at no more than `cells`: on a screen too narrow even for the least."""
    if line.cells <= cells:
        return line
    kept, room = [], cells
    for segment in line.segments:
        if width(segment.text) >= room:
            kept.append(Segment(cut(segment.text, room, glyphs), segment.style))
            break
        kept.append(segment)
        room -= width(segment.text)
    return Line(tuple(kept))
