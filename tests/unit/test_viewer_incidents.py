"""The lines of a rank's records: who waits for whom, callbacks, traces, checkpoints."""

from __future__ import annotations

from typing import Any

from hpcsampler.viewer.cells import ASCII, UNICODE
from hpcsampler.viewer.incidents import callback_lines, checkpoint_lines, straggler_lines, trace_lines
from tests.support import snapshots

LATE, WAITING = snapshots.incidents(2, steady=True), snapshots.incidents(2, steady=False)
ALL = (straggler_lines, callback_lines, trace_lines, checkpoint_lines)


def said(lines_of: Any, rank: dict[str, Any], cells: int = 200, glyphs: Any = UNICODE) -> str:
    lines = lines_of(rank, cells, glyphs)
    assert len(lines) <= 1
    return " ".join(lines[0].text.split(None, 1)[1].split()) if lines else ""


def test_a_rank_that_waits_says_for_whom_and_why() -> None:
    assert said(straggler_lines, WAITING) == (
        "waits 31 %, longest for rank 2: it spends more in input · network 3 %"
        " · itself late in 2 % of collectives"
    )


def test_the_rank_that_is_waited_for_says_so() -> None:
    assert said(straggler_lines, LATE) == (
        "the others wait for this rank: it spends more in input · network 3 % · late in 94 % of collectives"
    )


def test_nobody_is_blamed_where_nobody_is_steadily_late() -> None:
    shared = {"source": "collective", "score": 0.2, "steady": False, "wait_share": 0.08}
    text = said(straggler_lines, {"straggler": shared})
    assert text == "none is steady, waits 8 % for whoever is last · itself late in 20 % of collectives"


def test_from_step_times_no_waiting_is_claimed() -> None:
    guessed = {"source": "step time", "score": 1.0, "steady": True, "cause": "callback"}
    text = said(straggler_lines, {"straggler": guessed})
    assert text.startswith("this rank is slower than the others: it spends more in callback · by step times: ")
    other = {"source": "step time", "score": 0.0, "steady": False, "blamed_on_rank": 3}
    assert said(straggler_lines, {"straggler": other}).startswith("rank 3 is slower than the others · by step times: ")
    assert "wait" not in text
    assert said(straggler_lines, {"straggler": {"source": "step time", "score": 0.0, "steady": False}}) == ""


def test_callbacks_are_named_by_class_and_method_those_that_cost_nothing_are_not() -> None:
    assert said(callback_lines, LATE) == (
        "SlowLogger.on_train_batch_end 12 %, 300 calls of 4.00 ms"
        " · ModelCheckpoint.on_epoch_end 1 %, 1 call of 100 ms"
    )
    assert said(callback_lines, {"callbacks": LATE["callbacks"][2:]}) == ""


def test_a_retrace_names_the_argument_that_changed() -> None:
    assert said(trace_lines, LATE) == (
        "2 of train_step: argument x: float32[32,8] → float32[17,8] · 14 traces in all, 8.1 s · 1 of augment"
    )
    assert "float32[32,8] -> float32[17,8]" in said(trace_lines, LATE, glyphs=ASCII)
    assert trace_lines(LATE, 200, UNICODE)[0].text.startswith("retraces ")


def test_without_retraces_traces_are_counted() -> None:
    traces = {**LATE["traces"], "retraces": 0, "worst": []}
    assert trace_lines({"traces": traces}, 200, UNICODE)[0].text.startswith("traces ")
    assert said(trace_lines, {"traces": traces}) == "14 in all, 8.1 s · last train_step, 2100 ms"


def test_checkpoints_say_what_they_cost_and_what_the_last_one_was() -> None:
    assert said(checkpoint_lines, LATE, 300) == (
        "3 written, 4.1 s blocked · last 1.3 s ago · 120M in 1 file · 92.3M/s durable"
        " · step time +12 % during a background write · in the background for 0.9 s · 2.8G/s apparent"
        " · 1 restored · by ModelCheckpoint · epoch-3.keras"
    )
    assert said(checkpoint_lines, LATE, 80) == "3 written, 4.1 s blocked · last 1.3 s ago · 120M in 1 file"


def test_one_that_was_only_restored_is_not_said_to_be_written() -> None:
    last = {"writer": "Checkpoint.restore", "path": "/a/ckpt-3/", "restored": True, "age_s": 7.0, "blocked_s": 0.1}
    text = said(checkpoint_lines, {"checkpoints": {"count": 0, "seconds": 0.0, "restored": 1, "last": last}})
    assert text == "restored 7.0 s ago · 1 restored · by Checkpoint.restore · ckpt-3"


def test_what_is_absent_or_malformed_is_not_shown() -> None:
    wrong: tuple[Any, ...] = (None, 3, "x", [], {}, [None, 7], {"last": 3, "worst": {}}, float("nan"))
    for key in ("straggler", "callbacks", "traces", "checkpoints"):
        for value in wrong:
            assert [lines_of({key: value}, 100, UNICODE) for lines_of in ALL] == [[]] * 4
    assert said(checkpoint_lines, {"checkpoints": {"count": float("inf"), "step_inflation": 1e308}}) == (
        "step time +99900 % during a background write"
    )
    assert said(callback_lines, {"callbacks": [{"name": "\x1b[2J", "share": 0.2, "count": 0}]}) == "?[2J 20 %"


def test_every_line_fits() -> None:
    for rank in (LATE, WAITING):
        for lines_of in ALL:
            for cells in (14, 20, 40, 80, 120):
                assert all(line.cells <= cells for line in lines_of(rank, cells, UNICODE))
