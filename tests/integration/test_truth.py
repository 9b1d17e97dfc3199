"""The input share is the share that was injected, in every way to consume an iterator."""

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
from tests.integration.workloads import names
from tests.support.capture import Capture, RankCapture
from tests.support.environment import environment

WORKLOAD = Path(__file__).parent / "workloads" / "truth.py"
TOGETHER = 7
"""Ways that share a process, to save TensorFlow's start; each is attached on its own."""


@functools.cache
def outcome(group: int) -> dict[str, tuple[RankCapture, list[dict[str, Any]]]]:
    """Each way of a group: what its rank sent, and what the workload says is true."""
    ways = list(names.WAYS)[group * TOGETHER : (group + 1) * TOGETHER]
    with tempfile.TemporaryDirectory() as directory, Capture(Path(directory)) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD, *ways], env=environment(Path(directory)), stdout=subprocess.PIPE, timeout=800,
            check=True,
        )
        capture.wait_for(lambda: len([rank for rank in capture.ranks.values() if rank.bye]) == len(ways))
        ranks = sorted(capture.ranks.values(), key=lambda rank: rank.hello.attach_ns if rank.hello else 0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        way: (rank, [line for line in lines if line["way"] == way]) for way, rank in zip(ways, ranks, strict=True)
    }


@pytest.mark.timeout(900)  # the first way of a group runs them all
@pytest.mark.parametrize("way", names.WAYS)
def test_input_share_and_steps(way: str) -> None:
    rank, lines = outcome(list(names.WAYS).index(way) // TOGETHER)[way]
    waits_ms = {line["wait_ms"] for line in lines}
    assert waits_ms >= {0, 5, 20}
    for wait_ms in waits_ms:
        errors = []
        for line in (line for line in lines if line["wait_ms"] == wait_ms):
            whole = rank.between(*line["bounds_ns"])
            assert sum(whole.ns) == whole.wall_ns
            steps = whole.evaluation_steps if way in names.EVALUATES else whole.steps
            assert steps == line["steps"], line
            measured = rank.between(*line["measured_ns"])
            # At least what was injected, at most what the pipeline takes here by itself besides.
            least = line["blocked_s"] / (measured.wall_ns / 1e9)
            most = least + line["own_s"] / (measured.wall_ns / 1e9)
            share = measured.share(Phase.INPUT)
            errors.append(share - min(max(share, least), most))
        # A machine that is busy with something else makes the pipeline slower than it is by itself, now and then.
        # What is attributed wrongly is wrong in each round.
        assert min(errors, key=abs) == pytest.approx(0, abs=0.02), (wait_ms, errors)
