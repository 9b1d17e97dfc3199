"""Whether a rank that trains has stopped making steps. Pure."""

from __future__ import annotations

from typing import Final

from hpcsampler.ext._timeline import UNCOVERED, USER_PRODUCTIVE
from hpcsampler.protocol.phases import Phase

STEPS: Final = 10
"""Without a step for as long as so many usually take, a training stands still."""
LEAST_S: Final = 5.0
"""But not before that: of steps that take milliseconds, ten are over in a hiccup of the file system."""
TAKES_ITS_TIME: Final = frozenset(
    {UNCOVERED, Phase.CHECKPOINT, Phase.COMPILE, Phase.EVALUATION, Phase.STARTUP, USER_PRODUCTIVE},
)
"""What may last as long as it does without a step (categories of a timeline): there nothing is said. Input, callbacks,
collectives, the step itself and Python between steps are none of these: there a rank may wait for ever."""


def stalled_s(*, without_step_s: float, usual_step_s: float | None, category: int) -> float | None:
    """For how long a rank has stood still, in seconds; None if it has not.

    without_step_s: since its last step, or since it left what takes its time. usual_step_s: median of its steps lately;
    None if it made less than two. category: what it is in, as of a timeline.
    """
    if usual_step_s is None or category in TAKES_ITS_TIME:
        return None
    return without_step_s if without_step_s >= max(LEAST_S, STEPS * usual_step_s) else None
