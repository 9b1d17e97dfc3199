"""A stage of an input pipeline, as a `pipeline` message carries it: a list of its fields in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Final

STAGES_MOST: Final = 64
STAGE_TEXT_MOST: Final = 200
"""Longest name of a stage, in characters."""
_COUNT_MOST: Final = (1 << 63) - 1


class Role(IntEnum):
    """What a stage does, as far as tf.data's model tells."""

    PREPARES = 0
    READS = 1
    """A source."""
    BOTH = 2
    """Reads and prepares in one: a generator, a data service, a map whose function opens files."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, between two readings a few seconds apart. None: unknown."""

    stage: str
    """tf.data's name, without its version: ParallelMap."""
    name: str
    """The user's: of the dataset or of its function; `in NAME` inside an interleave of that name; may be empty."""
    self_ms: float | None
    """Its own time for one of its elements, without its inputs' and without waiting."""
    parallelism: float
    autotuned: bool
    ceiling_per_s: float | None
    """Batches per second that it could yield by itself."""
    per_batch: float | None
    """Its elements in one batch."""
    buffered: int
    buffer_size: int | None
    bytes_per_s: float | None
    """What it yields."""
    role: Role
    segment: int
    """Stages of one segment share a thread, so their times add up. 0 is the consumer's own thread."""

    def called(self, name: str, *, reads: bool) -> Stage:
        """The same with the user's name, and if its function reads files, with that role."""
        return replace(self, name=name[:STAGE_TEXT_MOST], role=Role.BOTH if reads else self.role)


_FIELDS: Final = {field.name: str(field.type) for field in fields(Stage)}


def pack(stage: Stage) -> list[Any]:
    """The fields of a stage, in their order."""
    return [getattr(stage, name) for name in _FIELDS]


def parse(row: object) -> Stage:
    """The stage that `pack` made a list of. Raises `ValueError` for anything else."""
    if not isinstance(row, list) or len(row) < len(_FIELDS):
        raise ValueError(f"a stage is not a list of {len(_FIELDS)}")
    values = dict(zip(_FIELDS, row, strict=False))  # later versions may append to it
    for name, kind in _FIELDS.items():
        if not _is_a(values[name], kind):
            raise ValueError(f"{name} of a stage is no {kind}")
    return Stage(**{**values, "role": Role(values["role"])})


def _is_a(value: object, kind: str) -> bool:
    if value is None:
        return kind.endswith("| None")
    if kind == "str":
        return isinstance(value, str) and len(value) <= STAGE_TEXT_MOST
    if kind == "bool":
        return isinstance(value, bool)
    if kind.startswith("float"):
        return is_rate(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value in {int(role) for role in Role} if kind == "Role" else 0 <= value <= _COUNT_MOST


def is_rate(value: object) -> bool:
    """Whether it is a finite float from 0 on."""
    return isinstance(value, float) and math.isfinite(value) and value >= 0
