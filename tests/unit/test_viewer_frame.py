"""The screen as a function: what people see of a snapshot. Golden files: UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hpcsampler.viewer.cells import ASCII, UNICODE
from hpcsampler.viewer.frame import Frame, View, compose
from hpcsampler.viewer.history import BUCKET_S, History
from hpcsampler.viewer.order import SORTS
from hpcsampler.viewer.style import to_ansi, to_text
from tests.support import snapshots

GOLDEN = Path(__file__).parent / "golden"
SHOTS = {
    "gpus": snapshots.eight_gpus,
    "ranks": snapshots.two_cpu_ranks,
    "troubled": snapshots.troubled,
    "hostile": snapshots.hostile,
    "many": snapshots.many_ranks,
    "eventful": snapshots.eventful,
}


def text(shot, **view) -> str:
    return to_text(compose(shot, View(**{"width": 120, "age_s": 0.2, **view})).lines)


def row_text(shot, rank: int, **view) -> str:
    """The lines of one rank in a table of two lines a row."""
    lines = text(shot, **view).splitlines()
    return "\n".join(lines[4 + 2 * rank : 6 + 2 * rank])


def golden(name: str, got: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(got, encoding="utf-8")
    assert got == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("shot", SHOTS)
@pytest.mark.parametrize("size", [(80, 24), (120, 30), (200, 50)])
def test_looks_as_it_did(shot, size) -> None:
    width, height = size
    golden(f"{shot}-{width}x{height}", text(SHOTS[shot](), width=width, height=height))


def test_one_frame_without_a_screen_looks_as_it_did() -> None:
    golden("gpus-once-100", text(snapshots.eight_gpus(), width=100))


def test_ascii_has_nothing_else() -> None:
    for make in SHOTS.values():
        assert text(make(), glyphs=ASCII, height=40).isascii()
    golden("troubled-ascii", text(snapshots.troubled(), glyphs=ASCII, height=30))


def test_what_of_a_bar_is_stalled_stands_out_without_colour() -> None:
    lines = compose(snapshots.two_cpu_ranks(), View(width=80, height=24)).lines
    bare = to_ansi(lines, color=False)
    assert "38;5" not in bare
    assert "48;5" not in bare
    assert re.search(r" S+\x1b\[7mI+\x1b\[0m", bare)


def test_without_colour_nothing_is_lost() -> None:
    """Colours add nothing that the text does not say: taken out of the ANSI, the text is the same."""
    lines = compose(snapshots.troubled(), View(width=120, height=30)).lines
    bare = re.sub(r"\x1b\[[0-9;]*m", "", to_ansi(lines))
    assert [line.rstrip() for line in bare.splitlines()] == to_text(lines).splitlines()


def test_says_why_a_rank_waits() -> None:
    assert "waits for input 37 % — ParallelMap decode" in row_text(snapshots.eight_gpus(), 0)


def test_says_what_a_killed_rank_was_in() -> None:
    said = row_text(snapshots.eight_gpus(), 7)
    assert "killed in input after 3.2 s" in said


def test_says_that_a_rank_exited() -> None:
    shot = snapshots.snapshot([snapshots.rank(state="exited", age_s=100.0)])
    assert "exited after 12 345 steps" in row_text(shot, 0)
    assert "old" not in row_text(shot, 0)


def test_a_rank_that_has_ended_stands_below_those_that_run() -> None:
    ended = snapshots.rank(0, state="exited", rank_key="a", program="first.py")
    runs = snapshots.rank(0, rank_key="b", program="second.py")
    shot = snapshots.snapshot([ended, runs])
    assert "training" in row_text(shot, 0)
    assert "exited" in row_text(shot, 1)


def test_says_where_a_stalled_rank_is_stuck() -> None:
    assert "stuck in collective for 6.9 s" in row_text(snapshots.eight_gpus(), 3)


def test_a_rank_at_work_has_no_cause() -> None:
    assert "at work 99 %" in row_text(snapshots.eight_gpus(), 1)


def test_old_data_is_visibly_old() -> None:
    fresh, old = text(snapshots.eight_gpus(), age_s=1.9), text(snapshots.eight_gpus(), age_s=5.0)
    assert "data 1.9 s old" in fresh
    assert "OLD" not in fresh
    assert "daemon silent" not in fresh
    assert "OLD 5.0 s" in old
    assert "old 5.1 s" in old
    assert "daemon silent for 5.0 s: reconnecting" in old
    styles = {
        segment.style
        for line in compose(snapshots.eight_gpus(), View(width=120, age_s=5.0)).lines[4:18]
        for segment in line.segments
        if segment.text.strip()
    }
    assert not any(style.startswith("phase:") for style in styles)
    assert "good" not in styles


def test_one_old_rank_is_old_on_its_own() -> None:
    shot = snapshots.troubled()
    assert "old 5.6 s" in row_text(shot, 1)
    assert "training" in row_text(shot, 2)


def test_paused_shows_when_the_picture_was_taken_and_no_alarm() -> None:
    said = text(snapshots.two_cpu_ranks(), age_s=42.0, paused=True)
    assert "PAUSED 42 s ago" in said
    assert "silent" not in said
    assert "old" not in said


def test_unknown_numbers_are_dashes_not_zeros() -> None:
    bare = {"rank_key": "a", "job": "x", "rank": 0, "state": "training"}
    row = row_text(snapshots.snapshot([bare], host={}, daemon={}), 0)
    assert UNICODE.absent in row
    assert "0 %" not in row
    assert "0.0" not in row.replace("age", "")[:60]


def test_drops_and_coverage_are_said() -> None:
    said = text(snapshots.eight_gpus())
    assert "1 204 dropped" in said
    assert "1 204 events dropped by rank 6" in said
    assert "shares of rank 6 cover 83 % of the window" in said


def test_notes_and_rejects_and_gpu_trouble_are_said() -> None:
    said = text(snapshots.troubled())
    assert "rank 6: functions traced before attach() hold no marks until retraced" in said
    assert "the daemon dropped 14 bad messages: 12 truncated, 2 unknown schema" in said
    assert "GPU 7: GPU is lost" in said
    assert "GPU: no NVIDIA driver here" in text(snapshots.two_cpu_ranks())


def test_the_same_note_of_many_ranks_is_said_once() -> None:
    shot = snapshots.snapshot([snapshots.rank(at, notes=["same"]) for at in range(4)])
    assert text(shot).count("same") == 1
    assert "ranks 0, 1, 2, 3: same" in text(shot)


def test_ranks_without_a_gpu_stand_beside_those_with_one() -> None:
    shot = snapshots.snapshot(
        [snapshots.rank(0, gpus=["GPU-00000000"]), snapshots.rank(1)],
        [snapshots.gpu(0), snapshots.gpu(1, rank_keys=[])],
    )
    frame = compose(shot, View(width=120, height=40))
    assert len(frame.keys) == 3
    assert "no training uses this GPU" in to_text(frame.lines)


def test_one_rank_on_many_gpus_has_a_row_for_each() -> None:
    shot = snapshots.snapshot(
        [snapshots.rank(0)], [snapshots.gpu(at, rank_keys=["node01-4700-1"]) for at in range(4)]
    )
    assert len(compose(shot, View(width=120, height=40)).keys) == 4


def test_nobody_yet_says_what_to_do() -> None:
    assert "hpcsampler.attach()" in text(snapshots.snapshot([]))
    waiting = text(None, place="/run/user/1000/hpcsampler", height=24)
    assert "/run/user/1000/hpcsampler" in waiting
    assert "hpcsampler daemon start" in waiting


def test_messages_that_were_no_snapshots_are_counted() -> None:
    assert "3 messages from the daemon were no snapshots" in text(snapshots.two_cpu_ranks(), bad_frames=3)


def test_every_row_can_be_reached() -> None:
    shot = snapshots.many_ranks()
    first = compose(shot, View(width=80, height=24))
    for at in (0, 5, 18, 19, 200, 511):
        frame = compose(shot, View(width=80, height=24, selected=first.keys[at]))
        assert frame.selected == at
        assert frame.first <= at < frame.first + frame.page
        assert len(frame.lines) == 24
        assert sum("▶" in line.text for line in frame.lines) == 1


def test_scrolling_moves_no_more_than_it_must() -> None:
    shot = snapshots.many_ranks()
    keys = compose(shot, View(width=80, height=24)).keys
    frame = compose(shot, View(width=80, height=24, selected=keys[100], first=95))
    assert frame.first == 95
    assert compose(shot, View(width=80, height=24, selected=keys[94], first=95)).first == 94


@pytest.mark.parametrize("sort", SORTS)
def test_orders_keep_every_row(sort) -> None:
    shot = snapshots.troubled()
    keys = set(compose(shot, View(width=100)).keys)
    for reverse in (False, True):
        frame = compose(shot, View(width=100, sort=sort, reverse=reverse))
        assert set(frame.keys) == keys


def order(sort: str, **view) -> list[int]:
    shot = snapshots.eight_gpus()
    frame: Frame = compose(shot, View(width=100, sort=sort, **view))
    return [int(key.split("-")[-2]) - 4700 for key in frame.keys]


def test_orders_by_a_number_have_the_worst_first() -> None:
    assert order("gpu") == list(range(8))
    assert order("gpu", reverse=True) == list(range(7, -1, -1))
    assert order("util")[:2] == [4, 3]
    assert order("stall")[0] == 4
    assert order("goodput")[0] == 4
    assert order("rate")[0] == 3


def test_ranks_without_the_number_and_ended_ones_stay_last() -> None:
    assert order("rate")[-2:] == [4, 7]
    assert order("rate", reverse=True)[-2:] == [4, 7]


@pytest.mark.parametrize("shot", SHOTS)
def test_goodput_is_seen_on_the_smallest_usual_screen(shot) -> None:
    lines = text(SHOTS[shot](), width=80, height=24).splitlines()
    assert "goodput" in lines[3]
    assert "where the last 10 s went" in lines[3] or "top cause" in lines[3]


def test_the_legend_has_the_letters_of_ranks_that_have_ended() -> None:
    ended = snapshots.rank(0, state="exited", phases={"step": 0.8, "callback": 0.2}, age_s=100.0)
    assert "S  step 80 %   B  callback 20 %" in text(snapshots.snapshot([ended])).splitlines()[2]
    living = snapshots.rank(1, phases={"step": 0.5, "input": 0.5})
    legend = text(snapshots.snapshot([ended, living])).splitlines()[2]
    assert legend.split("  ")[0] == "time"
    assert "S  step 50 %   I  input 50 %   B  callback" in legend
    assert "callback 0" not in legend


def test_the_legend_gives_up_its_title_before_a_letter() -> None:
    legend = text(snapshots.eight_gpus(), width=80, height=24).splitlines()[2]
    assert legend.startswith("S step")
    assert text(snapshots.two_cpu_ranks(), width=80, height=24).splitlines()[2].startswith("all ranks")


def test_several_marks_stand_in_the_detail_the_most_frequent_first() -> None:
    marks = {
        "stage": {"count": 1, "last": 2},
        "loss": {"count": 900, "last": 0.25},
        "accuracy": {"count": 900, "last": 0.5},
    }
    shot = snapshots.snapshot([snapshots.rank(0, marks=marks)])
    assert "marks  loss 0.25  accuracy 0.5  stage 2\n" in text(shot, height=24)
    many = {f"value_{at}": {"count": 1, "last": at} for at in range(40)}
    said = text(snapshots.snapshot([snapshots.rank(0, marks=many)]), width=80, height=24)
    line = next(line for line in said.splitlines() if line.startswith("marks"))
    shown = line.count("value_")
    assert shown >= 4
    assert line.endswith(f"({40 - shown} more)")


def test_of_the_detail_as_much_is_shown_as_has_room() -> None:
    shot = snapshots.eight_gpus()
    for height, lines in ((27, 0), (28, 1), (29, 2), (31, 4)):
        said = text(shot, width=120, height=height)
        assert sum(start in said for start in ("rank 0 of 8", "since attach", "now in input", "GPU 0 ")) == lines


def test_messages_leave_room_for_the_detail_on_the_smallest_usual_screen() -> None:
    """Many long findings and a long detail share what the rows leave; neither hides the other."""
    shot = snapshots.eventful()
    finding = {"severity": "high", "code": "x", "rank_key": "a", "rank": 0, "text": "slow " * 90, "evidence": {}}
    shot["findings"] = [{**finding, "code": f"x{at}"} for at in range(9)]  # type: ignore[typeddict-item]
    said = text(shot, width=80, height=24)
    assert "more lines)" in said
    for start in ("rank 0 of 2", "since attach", "straggler    the others wait for this rank"):
        assert start in said


def test_the_detail_has_what_took_most_since_attach_first() -> None:
    def order(**totals: float) -> list[str]:
        shot = snapshots.eventful()
        shot["ranks"][0]["totals_s"] = totals
        starts = [line.split(" ")[0] for line in text(shot, height=40).splitlines()]
        return [start for start in starts if start in ("pipeline", "callbacks", "retraces", "checkpoints")]

    assert order(callback=9.0, checkpoint=5.0, input=2.0) == ["callbacks", "checkpoints", "pipeline", "retraces"]
    assert order(compile=9.0, input=5.0)[:2] == ["retraces", "pipeline"]


def test_a_cpu_limit_that_is_hit_and_pressure_stand_in_the_line_of_the_node() -> None:
    lines = text(snapshots.eventful(), width=220, height=50).splitlines()
    assert "CPU limit hit in 22 % of periods" in lines[1]
    assert "pressure cpu 64 %, io <1 %, memory 0 %" in lines[1]
    assert "CPU limit hit in 22 %" in text(snapshots.eventful(), width=80, height=24).splitlines()[1]
    at_ease = snapshots.eventful()
    at_ease["host"]["cgroup"]["throttled"] = 0.0
    assert "limit" not in text(at_ease, width=200).splitlines()[1]


def test_names_inject_nothing_into_the_terminal() -> None:
    shot = snapshots.hostile()
    for view in (View(width=120, height=60), View(width=80), View(width=200, glyphs=ASCII)):
        for line in compose(shot, view).lines:
            assert all(character.isprintable() for character in line.text), line.text
    assert "\x9b" not in text(shot)


def test_trend_shows_the_last_minutes_with_gaps() -> None:
    history = History()
    shot = snapshots.snapshot([snapshots.rank(0, phases={"step": 1.0})])
    stalled = snapshots.snapshot([snapshots.rank(0, phases={"input": 1.0})])
    for bucket, one in enumerate([shot, shot, stalled]):
        history.add(one, (bucket + 10 + 3 * (bucket == 2)) * BUCKET_S)
    assert "▁▁   █" in row_text(shot, 0, history=history, until=history.bucket)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("width", [1, 7, 20, 39, 60, 79, 81, 99, 133, 159, 160, 300])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 6, 10, 24, 60, 100])
def test_fits_every_terminal(width, height, glyphs) -> None:
    for make in SHOTS.values():
        lines = compose(make(), View(width=width, height=height, glyphs=glyphs)).lines
        assert len(lines) == height
        assert max(line.cells for line in lines) <= width
    assert len(compose(None, View(width=width, height=height)).lines) == height


def test_totals_of_a_rank_whose_daemon_was_restarted_are_not_said_to_be_since_attach() -> None:
    said = text(snapshots.snapshot([snapshots.rank(known_since_s=1311.0, step=None)]), height=30)
    assert "known for 21 min 5" in said
    assert "since attach" not in said


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_no_number_is_cut(width) -> None:
    """Whatever the numbers: an ellipsis stands in names and sentences only."""
    huge = snapshots.rank(
        1234567,
        steps_per_s=123456.7,
        step_ms={"p50": 123456.0, "p95": 1.0, "p99": 9999999.0},
        step=1_234_567_890,
        dropped=1_234_567,
        cpu={"percent": 12800.0, "rss_bytes": 1 << 50, "read_bytes_per_s": 1e15},
        overhead=1.0,
        pid=4_194_304,
        age_s=1.5,
        coverage=0.999,
        state="evaluating",
        top_cause=None,
        job="j",
    )
    card = snapshots.gpu(
        15,
        utilization=1.0,
        memory_used_bytes=1 << 50,
        power_w=1234.0,
        power_limit_w=1200.0,
        temperature_c=110,
        rank_keys=["node01-1239267-1"],
    )
    for shot in (snapshots.snapshot([huge]), snapshots.snapshot([huge], [card])):
        row = row_text(shot, 0, width=width).splitlines()[0]
        assert "…" not in row
