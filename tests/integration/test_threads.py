"""Steps and waits of trainings that use threads and several iterators."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hpcsampler.protocol.phases import Phase
from tests.support.capture import Capture, RankCapture
from tests.support.environment import environment

WORKLOAD = Path(__file__).parent / "workloads" / "threads.py"


@functools.cache
def outcome() -> tuple[RankCapture, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory, Capture(Path(directory)) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD], env=environment(Path(directory)), stdout=subprocess.PIPE, timeout=120,
            check=True,
        )
        rank = capture.only_rank()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return rank, {line["way"]: line for line in lines}


@pytest.mark.parametrize("way", [
    "loop_in_a_thread", "fit_in_a_thread_and_then_a_loop", "two_iterators_in_one_function",
    "data_that_ends_in_a_function_on_a_thread",
])
def test_steps(way: str) -> None:
    rank, lines = outcome()
    assert rank.between(*lines[way]["bounds_ns"]).steps == lines[way]["steps"]


def test_data_that_ends_on_a_thread_is_no_wait_for_ever() -> None:
    rank, lines = outcome()
    _, end_ns = lines["data_that_ends_in_a_function_on_a_thread"]["bounds_ns"]
    assert rank.between(end_ns - 900_000_000, end_ns).share(Phase.INPUT) == 0
