"""Collectives of real workers are seen on each, under the same name, and change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcsampler.protocol.phases import Phase, collective_parts
from tests.support.capture import Capture
from tests.support.environment import environment
from tests.support.workers import Workers

MIRRORED = Path(__file__).parent / "workloads" / "mirrored.py"
GRAPHS = Path(__file__).parent / "workloads" / "collective_graphs.py"


@pytest.mark.timeout(500)
def test_arrivals_are_seen_on_all_ranks_under_one_name_and_results_are_the_same_to_the_bit(tmp_path: Path) -> None:
    with Workers(tmp_path, ["none", "compute"]) as workers:
        without = workers.outputs()
    with Capture(tmp_path) as capture:
        with Workers(tmp_path, ["none", "compute"], "attach", HPCSAMPLER_DAEMON="never") as workers:
            attached = workers.outputs()
        capture.wait_for(lambda: len([rank for rank in capture.ranks.values() if rank.bye]) == 2)
        ranks = {rank.hello.rank: rank.timeline() for rank in capture.ranks.values() if rank.hello}
    assert attached == without
    assert len(set(attached)) == 1
    of = {rank: {record[:2]: record for record in timeline.collectives(0, 0)[1]} for rank, timeline in ranks.items()}
    assert of[0].keys() == of[1].keys()
    assert len(of[0]) >= 24  # of twelve steps: the gradient's and the loss's
    waits_ms = []
    for name, (_, value, replicas, _, arrived_ns, left_ns) in of[0].items():
        _, _, _, _, slow_ns, slow_left_ns = of[1][name]
        assert (collective_parts(value)[0], replicas) == (2, 1)
        # Nobody leaves before everybody has arrived.
        assert max(arrived_ns, slow_ns) < min(left_ns, slow_left_ns)
        waits_ms.append(max(0, slow_ns - arrived_ns) / 1e6)
    assert sum(wait > 10 for wait in waits_ms) >= 10  # the gradient's waits for the one that is slowed by 20 ms
    # That wait is what the fast rank's time goes to, beside the step.
    assert ranks[0].totals_ns()[Phase.COLLECTIVE] >= 12 * 10e6


def output(directory: Path, *arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(directory), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, timeout=120, check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_replicas_of_one_process_do_not_wait_for_each_others_marks(tmp_path: Path) -> None:
    """Marks in the order of the program would hang them; and what XLA refuses, it refuses in the same words."""
    without = output(tmp_path, GRAPHS)
    attached = output(tmp_path, GRAPHS, "attach")
    marks = attached.pop("marks")
    assert attached == without
    assert marks == [4, True]


def test_replicas_of_one_mirrored_strategy_wait_for_each_other_in_collectives(tmp_path: Path) -> None:
    """From the first replica's arrival on: that one's device has nothing to do."""
    with Capture(tmp_path) as capture:
        line = output(tmp_path, MIRRORED)
        capture.wait_for(lambda: any(rank.bye for rank in capture.ranks.values()))
    (rank,) = capture.ranks.values()
    span = rank.between(*line["bounds_ns"])
    waited = line["waited_s"] / (span.wall_ns / 1e9)
    assert waited > 0.15
    assert waited - 0.02 < span.share(Phase.COLLECTIVE) < waited + 0.12  # and what the reduction itself takes
    made = [record for record in rank.timeline().collectives(0, 0)[1] if record[2] == 2]
    assert len(made) >= 40
