"""A program that runs without `attach()` runs with it, and does the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.capture import Capture
from tests.support.environment import environment

WORKLOADS = Path(__file__).parent / "workloads"

PROGRAMS = (
    ("fit", "fit_with_xla", "fit_several_steps_per_execution", "fit_eagerly"),
    ("custom_eager_loop", "custom_eager_loop_xla", "custom_next_in_function", "custom_next_in_function_xla"),
    ("custom_loop_over_dataset", "custom_loop_over_dataset_xla", "custom_loop_over_iterator",
     "custom_loop_over_iterator_xla"),
    ("fit_with_callbacks_and_checkpoints",),
    ("distributed",),
    ("errors_reach_the_program",),
)


def output(directory: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(directory), stdout=subprocess.PIPE, text=True, timeout=400,
        check=True,
    )
    return done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize("programs", PROGRAMS, ids=lambda programs: programs[0])
def test_results_are_the_same_to_the_bit(programs: tuple[str, ...], tmp_path: Path) -> None:
    program = ",".join(programs)
    without = output(tmp_path, WORKLOADS / "seeded.py", program)
    with Capture(tmp_path) as capture:
        attached = output(tmp_path, WORKLOADS / "seeded.py", program, "attach")
        rank = capture.only_rank()
    assert attached == without
    assert all(name in without for name in programs)
    # It was watched all the while: else this test would show nothing.
    assert rank.timeline().counts["events"] > 10


def test_a_saved_model_made_while_attached_loads_without_hpcsampler(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    output(tmp_path, WORKLOADS / "saving.py", "save", saved)
    assert json.loads(output(tmp_path, WORKLOADS / "saving.py", "load", saved)) == {
        "marks": 0, "hpcsampler": False, "predicted": 6.0, "trained": [1.0, 2.0], "looped": 3,
    }


def test_detach_restores_what_was_wrapped(tmp_path: Path) -> None:
    assert json.loads(output(tmp_path, WORKLOADS / "restoring.py")) == {"changed": [], "left": [], "hooks_seen": True}
