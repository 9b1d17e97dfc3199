"""The phases that partition a rank's wall time, in order of precedence.

At each instant the open phase with the lowest number wins; what no phase covers is `HOST`. The order follows
XProf's event precedence (an all-reduce that overlaps an input wait counts as input), with checkpoint, compile,
callback and straggler added. `ext/phases.h` has the numbers, too.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What a rank is doing: "the rank is …" `meaning`.

    The number is both the id on the wire and the precedence (1 wins over 2). `letter` is one ASCII letter, unique,
    for bars that are readable without colour.
    """

    letter: str
    meaning: str

    def __new__(cls, number: int, letter: str, meaning: str) -> Phase:  # noqa: PYI034 - `Self` is in typing from 3.11 on only
        """One row of the table."""
        phase = int.__new__(cls, number)
        phase._value_ = number
        phase.letter = letter
        phase.meaning = meaning
        return phase

    CHECKPOINT = 1, "K", "blocked while a checkpoint is written or restored"
    COMPILE = 2, "X", "tracing or compiling a tf.function"
    GC = 3, "G", "inside a Python garbage collection"
    INPUT = 4, "I", "waiting for the next batch of the input pipeline"
    COLLECTIVE = 5, "C", "in a collective that nothing hides"
    TRANSFER = 6, "T", "blocked on a copy between host and device"
    DEVICE = 7, "D", "waiting for a result that the device is computing"
    CALLBACK = 8, "B", "in a Keras callback"
    USER = 9, "U", "in a phase of the user's own"
    EVALUATION = 10, "E", "in validation or prediction"
    STEP = 11, "S", "in the training step"
    STARTUP = 12, "u", "before its first step"
    HOST = 13, "h", "in Python between steps"

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
    YIELDS = 64
    """A compile inside a graph that runs: what that waits for, input and collectives, is charged to itself."""


FIRST_USER_PHASE = 1024
"""Phase ids from here on are names that the user made up, announced in a `names` message."""

ROLE_TRAIN = 1
"""Value of an `INPUT` point: gradients are computed from what this iterator yields."""

COLLECTIVE_KEYS = 1 << 30
"""The key of a `COLLECTIVE` event is this plus the number of the group, the same on all ranks: apart from the keys of
iterators."""


def collective_value(members: int, place: int, ordinal: int) -> int:
    """The value of a `COLLECTIVE` event. 0: it has no running number, so that no two of them can be told apart.

    members: of the group (replicas), 15 bits. place: tells the places in the program apart, 16 bits. ordinal: the
    running number of the collective in its group, 32 bits. Members and ordinal are the same on all ranks.
    """
    return (members & 0x7FFF) << 48 | (place & 0xFFFF) << 32 | (ordinal & 0xFFFFFFFF)


def collective_parts(value: int) -> tuple[int, int, int]:
    """`(members, place, ordinal)` of the value of a `COLLECTIVE` event."""
    return value >> 48 & 0x7FFF, value >> 32 & 0xFFFF, value & 0xFFFFFFFF


PAUSED = 1
RESUMED = 0
"""Values of a `HOST` point: recording stops or goes on here, so the time between is not covered."""

PRODUCTIVE_PHASES = frozenset({Phase.DEVICE, Phase.EVALUATION, Phase.STEP})
"""Goodput = time in these (and in user phases said to be productive) / covered time since attach."""
