"""What happens now and then in a rank and is worth a record of its own: checkpoints and traces.

Time spent in them is in the events, too; a record says what no event has room for.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_MOST: Final = 400
"""Longest text in an incident, in characters."""
INCIDENTS_MOST: Final = 64
"""Incidents in one message."""
_I64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class CheckpointIncident:
    """One checkpoint that was written or restored. A later one with the same ordinal completes it."""

    ordinal: int
    """Counted in its rank since attach."""
    at_ns: int
    """CLOCK_MONOTONIC when it began."""
    writer: str
    """What was called: `Model.save`, `ModelCheckpoint`, `CheckpointManager.save`."""
    path: str
    format: str
    restored: bool
    background: bool
    """Written by a thread beside the training."""
    blocked_s: float
    """How long the training could not go on."""
    background_s: float | None
    """How long the thread beside it wrote; None while it does, and for what is not written that way."""
    complete_s: float | None
    """From its begin until all was written; None until then."""
    files: int | None
    """None where they can't be seen: on a remote store, or not written yet."""
    bytes: int | None


@dataclass(frozen=True, slots=True)
class TraceIncident:
    """One trace of a `tf.function`."""

    at_ns: int
    function: str
    ordinal: int
    """1 for the first trace of that function."""
    seconds: float
    """Traces within it included."""
    nested: bool
    """Within another trace, whose seconds include it."""
    retrace: bool
    changed: str
    """For a retrace what was different from the trace that was most alike; else empty."""


Incident: TypeAlias = CheckpointIncident | TraceIncident


def pack(incident: Incident) -> dict[str, Any]:
    """The map that stands for an incident in a message."""
    kind = next(kind for kind, known in _KINDS.items() if isinstance(incident, known))
    return {"kind": kind, **asdict(incident)}


def parse(content: object) -> Incident:
    """The incident in a map. Raises `ValueError` for whatever is none; keys that are not known are let be."""
    if not isinstance(content, dict):
        raise ValueError("an incident is no map")  # noqa: TRY004 - of a message, all is a value
    kind = content.get("kind")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ValueError("an incident of an unknown kind")
    values: dict[str, Any] = {}
    for field in fields(known):
        value = content.get(field.name)
        if not _CHECKS[str(field.type)](value):
            raise ValueError(f"{field.name} of an incident is not of its type or range")
        values[field.name] = value
    return known(**values)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _I64


def _is_float(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MOST


_KINDS: Final[dict[str, type[CheckpointIncident | TraceIncident]]] = {
    "checkpoint": CheckpointIncident, "trace": TraceIncident,
}
_CHECKS: Final[dict[str, Callable[[object], bool]]] = {
    "int": _is_int,
    "int | None": lambda value: value is None or _is_int(value),
    "float": _is_float,
    "float | None": lambda value: value is None or _is_float(value),
    "str": _is_text,
    "bool": lambda value: isinstance(value, bool),
}
