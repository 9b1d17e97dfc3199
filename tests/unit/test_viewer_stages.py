"""The table of a rank's pipeline stages."""

from __future__ import annotations

from hpcsampler.viewer.cells import ASCII, UNICODE
from hpcsampler.viewer.stages import stage_lines

SHOWN = [
    {"stage": "TFRecord", "parallelism": 1.0, "autotuned": False, "buffered": 0, "bottleneck": False},
    {"stage": "Map", "name": "decode", "parallelism": 2.0, "autotuned": True, "buffered": 3, "bottleneck": True,
     "self_ms": 12.3, "ceiling_per_s": 5.0, "bytes_per_s": 1e6},
    {"stage": "Batch", "parallelism": 1.0, "autotuned": False, "buffered": 0, "bottleneck": False, "self_ms": 0.1,
     "ceiling_per_s": 70.0, "buffer_size": 4},
]  # fmt: skip


def test_the_table_marks_the_bottleneck_and_fits() -> None:
    rank = {"phases": {"input": 0.3}, "pipeline": SHOWN, "input_split": {"fetch": 0.25, "prep": 0.75, "evidence": {}}}
    lines = [line.text for line in stage_lines(rank, 100, UNICODE)]
    assert "fetch 25 % prep 75 %" in lines[0]
    assert [line.strip().split()[0] for line in lines[1:]] == ["TFRecord", "▶", "Batch"]
    assert lines[2].endswith("bottleneck")
    assert "▶ Map decode" in stage_lines(rank, 80, UNICODE)[2].text  # the word gives way, not the line
    for cells in (10, 40, 80, 200):
        assert all(line.cells <= cells for line in stage_lines(rank, cells, ASCII))


def test_a_stage_that_nobody_waits_for_is_no_bottleneck() -> None:
    lines = [line.text for line in stage_lines({"phases": {"input": 0.01}, "pipeline": SHOWN}, 100, UNICODE)]
    assert lines[2].endswith("lowest ceiling")
    assert "▶" not in "".join(lines)


def test_what_is_no_pipeline_is_not_shown() -> None:
    assert stage_lines({}, 100, UNICODE) == []
    assert stage_lines({"pipeline": [None, 3, {"stage": 7}], "input_split": []}, 100, UNICODE)
