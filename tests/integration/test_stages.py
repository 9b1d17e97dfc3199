"""The stage that is slow is the one that is named, at the speed that it allows."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import zmq

from hpcsampler.collector.pipeline import bottleneck, full_name, input_split
from tests.support.capture import Capture, RankCapture
from tests.support.daemons import DaemonProcess, Viewer
from tests.support.environment import environment
from tests.support.versions import STAGES

WORKLOAD = Path(__file__).parent / "workloads" / "stages.py"
SLOW = {
    "first": "ParallelMap decode",
    "middle": "ParallelMap resize",
    "last": "Map decode",
    "fused": "MapAndBatch decode",
    "interleave": "Map in read_shard",
    "flat_map": "Map in read_shard",
    "generator": "Generator",
    "cache_being_filled": "ParallelMap decode",
    "cache_full": "MapAndBatch decode",
    "shuffle": "ParallelMap decode",
    "filtered": "ParallelMap decode",
    "batch_then_map": "ParallelMap decode",
    "data_service": "DataService",
    "compressed_records": "TFRecord",
    "files_read_in_a_map": "MapAndBatch load",
}
OTHERS = ("asleep", "not_tuned")


@functools.cache
def outcome() -> dict[str, tuple[RankCapture, list[float]]]:
    """Each way: what its rank sent, and when its batches came."""
    ways = [*SLOW, *OTHERS] if STAGES else [*OTHERS]
    with tempfile.TemporaryDirectory() as directory, Capture(Path(directory)) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD, *ways], env=environment(Path(directory)), stdout=subprocess.PIPE, timeout=400,
            check=True,
        )
        capture.wait_for(lambda: len([rank for rank in capture.ranks.values() if rank.bye]) == len(ways))
        ranks = sorted(capture.ranks.values(), key=lambda rank: rank.hello.attach_ns if rank.hello else 0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["way"] for line in lines] == ways
    return {line["way"]: (rank, line["times_s"]) for line, rank in zip(lines, ranks, strict=True)}


pytestmark = pytest.mark.timeout(500)  # the first one runs them all
told = pytest.mark.skipif(not STAGES, reason="this TensorFlow does not tell what its stages do")


@told
@pytest.mark.parametrize("way", SLOW)
def test_the_slow_stage_is_named_with_what_it_allows(way: str) -> None:
    rank, times = outcome()[way]
    assert len(rank.pipelines) >= 3
    errors = []
    for (begin, _), (end, pipeline) in pairwise(rank.pipelines):
        slowest = bottleneck(pipeline, 1.0)
        if slowest is None:
            continue  # of a source that has just been opened nothing is known; then nothing is named
        stage = pipeline.stages[slowest]
        assert full_name(stage) == SLOW[way]
        assert stage.ceiling_per_s is not None
        seen = [t for t in times if begin < t <= end]
        errors.append(stage.ceiling_per_s / ((len(seen) - 1) / (seen[-1] - seen[0])) - 1)
    # A machine that is busy with something else keeps a pipeline from what it could do, now and then.
    assert min(errors, key=abs) == pytest.approx(0, abs=0.15), errors


@told
def test_stages_are_told_from_source_to_end() -> None:
    pipeline = outcome()["middle"][0].pipelines[-1][1]
    names = [full_name(stage) for stage in pipeline.stages]
    assert names == ["Range", "ParallelMap add", "ParallelMap resize", "Shuffle", "MapAndBatch add", "Prefetch"]
    shuffle = pipeline.stages[3]
    assert shuffle.buffered in {7, 8}
    assert pipeline.stages[2].parallelism == 2
    assert [stage.per_batch for stage in pipeline.stages] == [4, 4, 4, 4, 1, 1]


@told
def test_what_sleeps_without_being_counted_is_not_blamed_on_another_stage() -> None:
    rank, _ = outcome()["asleep"]
    assert rank.pipelines[-1][1].stages
    assert bottleneck(rank.pipelines[-1][1], 1.0) is None


def test_without_autotuning_there_are_no_stages_and_nothing_fails() -> None:
    rank, times = outcome()["not_tuned"]
    assert rank.pipelines == []
    assert len(times) > 100


@told
@pytest.mark.parametrize(
    ("way", "fetch"), [("compressed_records", 1.0), ("first", 0.0), ("last", 0.0), ("cache_full", 0.0)],
)
def test_waiting_is_split_into_reading_and_preparing(way: str, fetch: float) -> None:
    pipeline = outcome()[way][0].pipelines[-1][1]
    split = input_split(pipeline, bottleneck(pipeline, 0.9), 0.9, None)
    assert split is not None
    assert split["fetch"] == pytest.approx(fetch, abs=0.1)
    assert split["prep"] == pytest.approx(1 - fetch, abs=0.1)


@told
@pytest.mark.parametrize("way", ["files_read_in_a_map", "generator", "data_service"])
def test_what_reads_and_prepares_in_one_is_not_split(way: str) -> None:
    pipeline = outcome()[way][0].pipelines[-1][1]
    split = input_split(pipeline, bottleneck(pipeline, 0.9), 0.9, None)
    assert split is not None
    assert "fetch" not in split
    assert split["evidence"]["undivided"] == SLOW[way]


@contextmanager
def training(way: str) -> Iterator[Viewer]:
    """A viewer of a daemon that a training says its waits to."""
    daemon = DaemonProcess()
    context = zmq.Context()
    viewer = Viewer(context, daemon.directory.snapshots_address)
    rank = subprocess.Popen([sys.executable, WORKLOAD.parent / "fed.py", way], env=environment(daemon.directory.path))
    try:
        yield viewer
    finally:
        rank.kill()
        rank.wait()
        viewer.close()
        context.destroy(linger=0)
        daemon.close()


@told
@pytest.mark.parametrize("way", ["keras", "eager"])
def test_a_training_that_waits_is_told_which_stage_it_waits_for(way: str) -> None:
    with training(way) as viewer:
        rank = viewer.until(
            lambda s: s["ranks"] and s["ranks"][0].get("top_cause", {}).get("detail") == "ParallelMap decode"
            and "input_split" in s["ranks"][0],
            "the slow stage is named", 60,
        )["ranks"][0]
    assert rank["top_cause"]["phase"] == "input"
    marked = [stage for stage in rank["pipeline"] if stage["bottleneck"]]
    assert [(stage["stage"], stage.get("name")) for stage in marked] == [("ParallelMap", "decode")]
    assert marked[0]["parallelism"] == 2
    assert marked[0]["self_ms"] == pytest.approx(20, rel=0.5)
    assert rank["input_split"]["prep"] == pytest.approx(1, abs=0.1)


def test_a_loop_inside_a_function_has_no_stages_and_keeps_its_cause() -> None:
    with training("function") as viewer:
        rank = viewer.until(
            lambda s: s["ranks"] and s["ranks"][0].get("step", 0) > 100 and "top_cause" in s["ranks"][0],
            "it trains", 60,
        )["ranks"][0]
    assert rank["top_cause"]["phase"] == "input"
    assert "pipeline" not in rank
    assert "input_split" not in rank
