"""Numbers out of a snapshot, and numbers in words.

What is absent is None, and no number is ever made up for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIBI = 1024.0


def number(mapping: object, key: str) -> float | None:
    """The finite number at `key`, or None: it is absent, or no number."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def inner(mapping: object, key: str) -> Mapping[str, Any]:
    """The mapping at `key`; empty if there is none."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    return value if isinstance(value, dict) else {}


def items(mapping: object, key: str) -> list[Any]:
    """The list at `key`; empty if there is none."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    return value if isinstance(value, list) else []


def count(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}".replace(",", " ")


def percent(share: float) -> str:
    """A share, 0-1, in percent.

    `42 %`. What is there but rounds to nothing, or is not all but rounds to it, shows.
    """
    value = share * 100
    if 0 < value < 0.5:  # noqa: PLR2004 - rounds to 0
        return "<1 %"
    if 99.5 <= value < 99.995:  # noqa: PLR2004 - rounds to 100
        return "99 %"
    return f"{min(value, 99_999):.0f} %"


def fine_percent(share: float) -> str:
    """A small share, with the digits that an overhead needs: `0.02 %`."""
    value = share * 100
    if 0 < value < 0.01:  # noqa: PLR2004 - the last digit shown
        return "<0.01 %"
    return f"{value:.2f} %" if value < 10 else percent(share)  # noqa: PLR2004


def compact(value: float) -> str:
    """At most five characters: `0.08`, `1.23`, `81.2`, `1234`, `12.3k`."""
    value = abs(value)
    for unit in ("", "k", "M", "G", "T"):
        if value < 9.995:  # noqa: PLR2004 - rounds to 10.0
            return f"{value:.2f}{unit}"
        if value < 99.95:  # noqa: PLR2004 - rounds to 100
            return f"{value:.1f}{unit}"
        if value < (9999.5 if not unit else 999.5):
            return f"{value:.0f}{unit}"
        value /= 1000
    return ">999T"


def size(value: float) -> str:
    """Bytes in binary units, at most five characters: `512B`, `23.4G`."""
    value = abs(value)
    for unit in "BKMGTP":
        if value < 99.95 and unit != "B":  # noqa: PLR2004 - rounds to 100
            return f"{value:.1f}{unit}"
        if value < 999.5:  # noqa: PLR2004 - rounds to 1000
            return f"{value:.0f}{unit}"
        value /= _KIBI
    return ">999P"


def duration(seconds: float) -> str:
    """A time span in its largest two units: `3.2 s`, `42 s`, `5 min 3 s`, `2 h 14 min`, `3 d 4 h`."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:  # noqa: PLR2004 - rounds to 10.0
        return f"{seconds:.1f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (s, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{value} {unit}" for value, unit in parts[:2] if value)


def short_duration(seconds: float) -> str:
    """A time span in one unit, at most five characters: `0.2 s`, `42 s`, `5 m`, `2 h`, `3 d`."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:  # noqa: PLR2004 - rounds to 10.0
        return f"{seconds:.1f} s"
    for most, unit, name in ((99.5, 1.0, "s"), (5400.0, 60.0, "m"), (3 * 86400.0, 3600.0, "h")):
        if seconds < most:
            return f"{seconds / unit:.0f} {name}"
    return f"{min(seconds / 86400.0, 999):.0f} d"
