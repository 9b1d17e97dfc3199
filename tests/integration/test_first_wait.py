"""A loop over a dataset inside a function waits for its first element, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcsampler.protocol.phases import Phase
from tests.support.capture import Capture
from tests.support.environment import environment

WORKLOAD = Path(__file__).parent / "workloads" / "first_wait.py"


def test_a_loop_that_carries_nothing_waits_for_its_first_element(tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD], env=environment(tmp_path), stdout=subprocess.PIPE, timeout=100, check=True,
        )
        rank = capture.only_rank()
    begin_ns, first_ns, end_ns = map(int, done.stdout.split())
    span = rank.between(begin_ns, end_ns)
    assert span.steps == 4
    assert span.ns[Phase.INPUT] / span.wall_ns == pytest.approx((first_ns - begin_ns) / span.wall_ns, abs=0.05)
