"""The phases that partition a rank's wall time, in order of precedence.

At each instant the open phase with the lowest number wins; what no phase covers is `HOST`. The order follows
XProf's event precedence (an all-reduce that overlaps an input wait counts as input), with checkpoint, compile,
callback and straggler added.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """What a rank is doing. The number is both the id on the wire and the precedence (1 wins over 2)."""

    CHECKPOINT = 1
    COMPILE = 2
    GC = 3
    INPUT = 4
    COLLECTIVE = 5
    TRANSFER = 6
    DEVICE = 7
    CALLBACK = 8
    USER = 9
    EVALUATION = 10
    STEP = 11
    STARTUP = 12
    HOST = 13

    @property
    def label(self) -> str:
        """The name as it stands in a snapshot: lower case."""
        return self.name.lower()


class Kind(IntEnum):
    """What an event says about its phase."""

    BEGIN = 1
    END = 2
    POINT = 3
    COUNTER = 4


class Flag:
    """Bits of an event's `flags`."""

    OTHER_THREAD = 1
    """Not from the thread that drives the steps: reported beside the partition, never in it."""
    GRAPH = 2
    """From a mark inside a compiled graph. An error can skip its end, so a second begin replaces the first."""
    PRODUCTIVE = 4
    """A user phase that the user counts as productive."""
    EXACT = 8
    """The end of a step whose `value` is the number of steps, whatever the iterators say."""
    ABORT = 16
    """Ends every open interval that graph marks of this phase began: an error left the graph."""
    FLOAT = 32
    """`value` holds the 64 bits of a float."""


FIRST_USER_PHASE = 1024
"""Phase ids from here on are names that the user made up, announced in a `names` message."""

ROLE_TRAIN = 1
"""Value of an `INPUT` point: gradients are computed from what this iterator yields."""

PAUSED = 1
RESUMED = 0
"""Values of a `HOST` point: recording stops or goes on here, so the time between is not covered."""

PRODUCTIVE_PHASES = frozenset({Phase.DEVICE, Phase.EVALUATION, Phase.STEP})
"""Goodput = time in these (and in user phases said to be productive) / covered time since attach."""


@dataclass(frozen=True, slots=True)
class PhaseText:
    """How a phase is shown to people."""

    letter: str
    """One ASCII letter, unique, for bars without colour."""
    meaning: str
    """Completes the sentence "the rank is …"."""


PHASE_TEXT: dict[Phase, PhaseText] = {
    Phase.CHECKPOINT: PhaseText("K", "blocked while a checkpoint is written or restored"),
    Phase.COMPILE: PhaseText("X", "tracing or compiling a tf.function"),
    Phase.GC: PhaseText("G", "inside a Python garbage collection"),
    Phase.INPUT: PhaseText("I", "waiting for the next batch of the input pipeline"),
    Phase.COLLECTIVE: PhaseText("C", "in a collective that nothing hides"),
    Phase.TRANSFER: PhaseText("T", "blocked on a copy between host and device"),
    Phase.DEVICE: PhaseText("D", "waiting for a result that the device is computing"),
    Phase.CALLBACK: PhaseText("B", "in a Keras callback"),
    Phase.USER: PhaseText("U", "in a phase of the user's own"),
    Phase.EVALUATION: PhaseText("E", "in validation"),
    Phase.STEP: PhaseText("S", "in the training step"),
    Phase.STARTUP: PhaseText("u", "before its first step"),
    Phase.HOST: PhaseText("h", "in Python between steps"),
}
