"""The table of phases, and its numbers in C."""

from __future__ import annotations

import re
from pathlib import Path

from hpcsampler.ext import _events
from hpcsampler.protocol import phases

HEADER = Path(__file__).parents[2] / "src" / "ext" / "phases.h"


def test_c_has_the_same_numbers() -> None:
    in_c = {name: int(value) for name, value in re.findall(r"HPS_(\w+) = (\d+)", HEADER.read_text())}
    in_python = {
        **{phase.name: phase.value for phase in phases.Phase},
        **{kind.name: kind.value for kind in phases.Kind},
        **{name: value for name, value in vars(phases.Flag).items() if name.isupper()},
        "FIRST_USER_PHASE": phases.FIRST_USER_PHASE, "ROLE_TRAIN": phases.ROLE_TRAIN,
        "PAUSED": phases.PAUSED, "RESUMED": phases.RESUMED,
    }
    assert in_c == in_python
    assert _events.FIRST_USER_PHASE == phases.FIRST_USER_PHASE


def test_letters_are_unique() -> None:
    letters = [phase.letter for phase in phases.Phase]
    assert len(set(letters)) == len(letters)
