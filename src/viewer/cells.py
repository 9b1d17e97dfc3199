"""Text in terminal cells: what of a foreign string may reach the terminal, how wide it is, and how it is cut.

Names in a snapshot come from other processes. Whatever they hold, a terminal must get neither an escape
sequence nor a character whose width is in doubt.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 400
"""Characters of a foreign string that are looked at: more than any screen shows of it."""
_IN_ASCII = {"→": "->", "…": "...", "—": "-", "–": "-"}  # noqa: RUF001 - these are meant
"""What the daemon's own sentences have beyond ASCII."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters beyond ASCII that the screen uses, or what stands in for them."""

    ascii: bool
    absent: str
    dash: str
    dot: str
    advice: str
    """Leads from what is to what to do."""
    ellipsis: str
    cursor: str
    up: str
    down: str
    warning: str
    trend: str
    """From the lowest to the highest."""


UNICODE = Glyphs(
    ascii=False,
    absent="–",  # noqa: RUF001 - a dash is meant
    dash="—",
    dot="·",
    advice="→",
    ellipsis="…",
    cursor="▶",
    up="↑",
    down="↓",
    warning="▲",
    trend="▁▂▃▄▅▆▇█",
)
ASCII = Glyphs(
    ascii=True,
    absent="-",
    dash="-",
    dot="|",
    advice="->",
    ellipsis="~",
    cursor=">",
    up="^",
    down="v",
    warning="!",
    trend="_.-=+*#",
)


def clean(text: object, glyphs: Glyphs) -> str:
    """`text` with nothing in it that moves a cursor, hides, reorders or joins characters, on one line.

    Controls become `?`; combining and format characters (joiners, direction overrides) go, as terminals
    disagree on the cells they take. In ASCII mode every other character becomes `?`, but for those of the
    daemon's own sentences. What is no text is empty.
    """
    return _clean(text[:_LONGEST], glyphs) if isinstance(text, str) else ""


@lru_cache(maxsize=4096)
def _clean(text: str, glyphs: Glyphs) -> str:
    kept = []
    for character in unicodedata.normalize("NFC", text):
        category = unicodedata.category(character)
        if category in {"Mn", "Me", "Cf"}:
            continue
        if category in {"Zs", "Zl", "Zp"}:
            kept.append(" ")
        elif category[0] == "C" or (glyphs.ascii and not character.isascii()):
            kept.append(_IN_ASCII.get(character, "?"))
        else:
            kept.append(character)
    return "".join(kept)


def _cells(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@lru_cache(maxsize=8192)
def width(text: str) -> int:
    """Cells that a clean `text` takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, cells: int, glyphs: Glyphs) -> str:
    """At most `cells` of a clean `text`: where some is lost, the last cell says so."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    kept, room = [], cells - 1
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + glyphs.ellipsis


def fit(text: str, cells: int, glyphs: Glyphs, *, right: bool = False) -> str:
    """`text` cut or padded to exactly `cells`."""
    text = cut(text, cells, glyphs)
    padding = " " * (cells - width(text))
    return padding + text if right else text + padding


def wrap(text: str, cells: int, glyphs: Glyphs) -> list[str]:
    """A clean `text` in lines of at most `cells`, broken between words where that can be."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if width(longer) <= cells:
            line = longer
            continue
        if line:
            lines.append(line)
        line = cut(word, cells, glyphs)
    return [*lines, line] if line else lines


def glyphs_for(encoding: str | None, environ: Mapping[str, str], *, force_ascii: bool) -> Glyphs:
    """What the terminal can show.

    Python takes C and POSIX for UTF-8; a terminal whose user set them may not.
    """
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    utf8 = (encoding or "").lower().replace("-", "") == "utf8" and locale not in ("C", "POSIX")
    return UNICODE if utf8 and not force_ascii else ASCII
