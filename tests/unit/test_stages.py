"""From recorded models of tf.data to stages, and from stages to what the wait for data is made of."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest

from hpcsampler.collector.pipeline import LivePipeline, bottleneck, full_name, input_split
from hpcsampler.protocol.messages import Pipeline, ProtocolError, decode, encode
from hpcsampler.protocol.stages import STAGES_MOST, Role, Stage
from hpcsampler.sampler.pipeline import node_of
from hpcsampler.sampler.stages import Judged, Node, Reading, Written, judge, kind_of, readable

RECORDED = json.loads((Path(__file__).parent / "golden" / "pipelines.json").read_text(encoding="utf-8"))
"""Of TensorFlow 2.21 on two cores: two models of each pipeline 1.5 s apart, and what it yielded meanwhile."""
SLOW = {
    "mid": "ParallelMap resize",
    "interleave": "Map in lambda zoo.py:20",
    "flat_map": "Map in lambda zoo.py:22",
    "cache": "MapAndBatch f",
    "gen": "Generator",
    "mapbatch": "MapAndBatch f",
    "filter": "Map f",
    "last": "Map f",
}


def reading(model: dict) -> Reading:
    nodes = {int(number): Node(*row[:-1], tuple(row[-1])) for number, row in model["nodes"].items()}
    return Reading(model["at_ns"], model["root"], nodes)


def test_the_threads_that_run_are_counted_not_those_that_tfdata_thinks_of() -> None:
    """As TensorFlow 2.21 told of a MapAndBatch that ran on two threads."""
    def node(*parameters: SimpleNamespace) -> Node:
        return node_of(SimpleNamespace(
            name="MapAndBatch", node_class=3, num_elements=9, processing_time=9, bytes_produced=0, buffered_elements=0,
            ratio=4.0, inputs=[2], parameters=list(parameters),
        ))

    def parameter(name: str, value: float, state_value: float, *, tunable: bool) -> SimpleNamespace:
        return SimpleNamespace(name=name, value=value, state_value=state_value, tunable=tunable)

    assert node(parameter("parallelism", 1.0, 2.0, tunable=True)).parallelism == 2.0
    assert node(parameter("parallelism", 3.0, 0.0, tunable=False)).parallelism == 3.0
    assert node(parameter("buffer_size", 2.0, 4.0, tunable=True)).buffer_size == 4.0
    assert node().parallelism is None


def judged(name: str, *, first_too: bool = True) -> Judged:
    recorded = RECORDED[name]
    written = [Written(*row) for row in recorded["written"]]
    before, now = map(reading, recorded["models"])
    return judge(judge(None, before, written, 2) if first_too else None, now, written, 2)


def lowest(stages: list[Stage]) -> Stage:
    return min((stage for stage in stages if stage.ceiling_per_s), key=lambda stage: stage.ceiling_per_s or 0)


@pytest.mark.parametrize("name", RECORDED)
def test_the_slow_stage_has_the_ceiling_that_was_seen(name) -> None:
    stage = lowest(judged(name).stages)
    assert full_name(stage) == SLOW[name]
    assert stage.ceiling_per_s == pytest.approx(RECORDED[name]["batches_per_s"], rel=0.15)


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_reading_goes_by_all_that_was_counted(name) -> None:
    stages = judged(name, first_too=False).stages
    assert all(stage.bytes_per_s is None for stage in stages)
    if name == "flat_map":
        # The source that is open now has yielded nothing yet, and those before it are gone with their counts.
        assert bottleneck(pipeline(*stages, rate=RECORDED[name]["batches_per_s"]), 1.0) is None
    else:
        assert full_name(lowest(stages)) == SLOW[name]


def node(name: str = "Map", kind: int = 3, elements: int = 0, ms: float = 0.0, inputs: tuple = (), **more) -> Node:
    values = {"bytes_produced": 0, "buffered": 0, "parallelism": None, "autotuned": False, "buffer_size": None,
              "ratio": 1.0, **more}
    return Node(name=name, kind=kind, elements=elements, processing_ns=int(ms * 1e6), inputs=inputs, **values)


def chain(*nodes: Node) -> dict[int, Node]:
    """From the root down."""
    return {
        number: Node(**{**{field: getattr(one, field) for field in Node.__slots__},
                        "inputs": (number + 1,) if number < len(nodes) else ()})
        for number, one in enumerate(nodes, 1)
    }


def test_what_a_stage_did_long_ago_does_not_count() -> None:
    before = Reading(0, 1, chain(node("Root", elements=100), node("Map", elements=100, ms=100), node("Range")))
    now = Reading(10**9, 1, chain(node("Root", elements=150), node("Map", elements=150, ms=1100), node("Range")))
    stage = judge(judge(None, before), now).stages[-1]
    assert stage.self_ms == pytest.approx(20)
    assert stage.ceiling_per_s == pytest.approx(50)


def test_a_stage_that_yields_nothing_for_a_while_keeps_its_last_time() -> None:
    first = judge(None, Reading(0, 1, chain(node("Root"), node("Map", elements=10, ms=100), node("Range"))))
    fresh = Reading(10**9, 1, {1: node("Root", inputs=(7,)), 7: node("Map", inputs=(8,)), 8: node("Range")})
    assert judge(first, fresh).stages[-1].self_ms == pytest.approx(10)


def test_a_batch_takes_as_many_elements_as_the_ratios_say() -> None:
    found = judge(None, Reading(0, 1, chain(
        node("Root", elements=10), node("BatchV2", elements=10, ms=10, ratio=32.0),
        node("Filter", 5, elements=320, ms=32, ratio=0.0), node("Map", elements=640, ms=640), node("Range"),
    ))).stages
    assert [stage.per_batch for stage in found][1:] == [64, 32, 1]
    assert [stage.ceiling_per_s for stage in found][1:] == pytest.approx([1000 / 64, 10_000 / 32, 1000])


def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    nodes = chain(node("Root"), node("ParallelMapV2", 4, elements=100, ms=1000, parallelism=16.0), node("Range"))
    assert judge(None, Reading(0, 1, nodes), threads=4).stages[-1].ceiling_per_s == pytest.approx(400)
    assert judge(None, Reading(0, 1, nodes), threads=64).stages[-1].ceiling_per_s == pytest.approx(1600)


def test_a_name_that_could_be_anothers_is_given_to_none() -> None:
    maps = Reading(0, 1, chain(node("Root"), node("Map"), node("Map"), node("Range")))
    a, b, c = (Written("Map", name, reads=False) for name in "abc")
    inner = Written("Map", "", reads=False, internal=True)
    assert [stage.name for stage in judge(None, maps, [a, b]).stages] == ["", "a", "b"]
    assert [stage.name for stage in judge(None, maps, [a, inner, b]).stages] == ["", "a", "b"]
    assert [stage.name for stage in judge(None, maps, [a, b, c]).stages] == ["", "", ""]


def test_names_are_those_that_people_know() -> None:
    assert [readable(name) for name in ("ParallelMapV2", "BatchV2", "TFRecordDatasetV2", "MemoryCacheImpl")] == [
        "ParallelMap", "Batch", "TFRecord", "Cache",
    ]
    assert kind_of("_ParallelMapDataset") == kind_of("ParallelMapV2") == kind_of("Map") == "Map"


def test_a_pipeline_of_very_many_stages_keeps_the_slowest() -> None:
    maps = [node("Map", elements=10, ms=10 + number) for number in range(100)]
    found = judge(None, Reading(0, 1, chain(node("Root"), *maps, node("Range")))).stages
    assert len(found) == STAGES_MOST
    assert max(stage.self_ms or 0 for stage in found) == pytest.approx(10.9)


def stage(name: str, ceiling: float | None, role: Role = Role.PREPARES, segment: int = 1) -> Stage:
    return Stage(name, "", 1.0, 1.0, False, ceiling, 1.0, 0, None, 1e6, role, segment)


def pipeline(*stages: Stage, rate: float | None = 10.0, alone: bool = True) -> Pipeline:
    return Pipeline("rank", 1, [1], alone, rate, list(stages))


def test_a_stage_too_fast_to_be_waited_for_is_no_bottleneck() -> None:
    fast = pipeline(stage("Batch", 1000.0), rate=10.0)
    assert bottleneck(fast, 0.9) is None
    assert bottleneck(fast, 0.0) == 0  # nothing waits: it is what would be slow next
    # A training that waits a tenth of its time for what is not read ahead is bound to a stage ten times as fast.
    assert bottleneck(pipeline(stage("Batch", 100.0), rate=10.0), 0.1) == 0


@pytest.mark.parametrize(
    ("stages", "fetch"),
    [
        # 80 ms a batch, 20 of them computing. Read and prepared in one thread, both are waited for one after the other.
        ([stage("TFRecord", 1000 / 30, Role.READS), stage("Map", 1000 / 50)], 0.5),
        ([stage("TFRecord", 1000 / 80, Role.READS), stage("Map", 1000 / 5, segment=2)], 1.0),
        ([stage("TFRecord", 1000 / 5, Role.READS), stage("Map", 1000 / 80, segment=2)], 0.0),
        # Side by side, reading costs what it takes longer than preparing: (80 - 50) of (80 - 20).
        ([stage("TFRecord", 1000 / 80, Role.READS), stage("Map", 1000 / 50, segment=2)], 0.5),
        # In the thread of the training itself all is waited for, however short.
        ([stage("TFRecord", 1000 / 15, Role.READS, 0), stage("Map", 1000 / 45, segment=0)], 0.25),
    ],
)
def test_fetching_is_what_would_go_away_if_reading_took_no_time(stages, fetch) -> None:
    one = pipeline(*stages, rate=12.5)
    split = input_split(one, bottleneck(one, 0.75), 0.75, {"read_bytes_per_s": 5.0})
    assert split is not None
    assert split["fetch"] == pytest.approx(fetch)
    assert split["fetch"] + split["prep"] == pytest.approx(1)
    assert split["evidence"]["compute_ms"] == pytest.approx(20)
    assert split["evidence"]["read_bytes_per_s"] == 5.0


def test_without_a_wait_there_is_nothing_to_split() -> None:
    one = pipeline(stage("TFRecord", 20.0, Role.READS))
    assert input_split(one, 0, 0.01, None) is None
    assert input_split(one, None, 0.9, None) is None


def test_the_bottleneck_is_marked_and_what_is_unknown_is_absent() -> None:
    shown = LivePipeline(pipeline(stage("TFRecord", None), stage("Map", 5.0)), 0).shown(1)
    assert [one["bottleneck"] for one in shown] == [False, True]
    assert "ceiling_per_s" not in shown[0]
    assert "buffer_size" not in shown[0]


@pytest.mark.parametrize("field", [*range(12)])
@pytest.mark.parametrize("wrong", ["x" * 201, -1, -1.0, float("nan"), float("inf"), [], {}, 2**64 - 1])
def test_a_forged_stage_is_refused(field, wrong) -> None:
    items = msgpack.unpackb(encode(pipeline(stage("Map", 1.0))))
    items[-1][0][field] = wrong
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(items))
