"""The input share is the share that was injected, in every way to consume an iterator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcsampler.protocol.phases import Phase
from tests.integration.workloads import names
from tests.support.capture import Capture
from tests.support.environment import environment

WORKLOAD = Path(__file__).parent / "workloads" / "truth.py"


@pytest.mark.parametrize("way", names.WAYS)
def test_input_share_and_steps(way: str, tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD, way], env=environment(tmp_path), stdout=subprocess.PIPE, timeout=240, check=True,
        )
        rank = capture.only_rank()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["wait_ms"] for line in lines] == [0, 5, 20]
    for line in lines:
        span = rank.between(line["begin_ns"], line["end_ns"])
        assert sum(span.ns) == span.wall_ns
        injected = line["blocked_s"] / (span.wall_ns / 1e9)
        assert span.share(Phase.INPUT) == pytest.approx(injected, abs=0.02), line
        steps = span.evaluation_steps if way in names.EVALUATES else span.steps
        assert steps == line["steps"], line
