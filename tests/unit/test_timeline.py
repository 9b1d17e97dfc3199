"""Folding events into an exclusive partition of a rank's time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hpcsampler.ext._timeline import Timeline
from hpcsampler.protocol.phases import FIRST_USER_PHASE, Flag, Kind, Phase
from tests.support.records import MS, Script, event, ms


def test_before_the_first_step_it_starts_up_and_after_it_is_in_python() -> None:
    timeline = Script().begin(10, Phase.STEP).end(30, Phase.STEP, value=1, flags=Flag.EXACT).fold(100)
    assert ms(timeline) == {Phase.STARTUP: 10, Phase.STEP: 20, Phase.HOST: 70}
    assert timeline.steps == 1


@pytest.mark.parametrize("high", [p for p in Phase if p < Phase.STEP and p not in {Phase.INPUT, Phase.EVALUATION}])
def test_the_phase_of_higher_precedence_wins_while_both_are_open(high: Phase) -> None:
    script = Script().begin(0, Phase.STEP).begin(10, high, 7).end(25, high, 7)
    timeline = script.end(40, Phase.STEP, value=1, flags=Flag.EXACT).fold(40)
    assert ms(timeline) == {high: 15, Phase.STEP: 25}


def test_what_compiles_in_a_running_graph_yields_to_its_waits_only() -> None:
    script = Script().begin(0, Phase.STEP).begin(0, Phase.CALLBACK).begin(10, Phase.COMPILE, 9, Flag.YIELDS)
    script.begin(20, Phase.INPUT, 3, Flag.GRAPH).end(50, Phase.INPUT, 3, 1, Flag.GRAPH)
    script.begin(60, Phase.GC, 1).end(65, Phase.GC, 1).end(70, Phase.COMPILE, 9).end(80, Phase.CALLBACK)
    assert ms(script.fold(100)) == {Phase.CALLBACK: 20, Phase.COMPILE: 25, Phase.INPUT: 30, Phase.GC: 5, Phase.STEP: 20}


def test_no_time_is_counted_twice_whatever_happens() -> None:
    rng = random.Random(5)
    for _ in range(200):
        script, t = Script(), 0
        for _ in range(rng.randrange(1, 120)):
            t += rng.choice((0, 1, 7, -3))
            script.at(
                max(t, 0), rng.choice([*Phase, FIRST_USER_PHASE, 77, 0, 65535]), rng.choice((1, 2, 3, 4, 9)),
                rng.randrange(4), rng.randrange(-1, 4), rng.choice((0, 0, 0, 1, 2, 4, 8, 16, 2 | 16, 32)),
            )
        end = max(t, 0) + 5
        assert sum(script.fold(end).totals_ns()) == end * MS


def test_events_of_other_threads_are_not_in_the_partition() -> None:
    timeline = (
        Script().begin(0, Phase.STEP).begin(5, Phase.INPUT, 3, Flag.OTHER_THREAD)
        .end(9, Phase.INPUT, 3, 1, Flag.OTHER_THREAD).end(10, Phase.STEP, value=1, flags=Flag.EXACT).fold(10)
    )
    assert ms(timeline) == {Phase.STEP: 10}
    assert timeline.counts["events"] == 4


def test_which_iterator_trains_is_taken_from_any_thread() -> None:
    script = Script().wait(0, 1, key=1).at(5, Phase.INPUT, Kind.POINT, 2, 1, Flag.OTHER_THREAD)
    timeline = script.wait(10, 11, key=2).wait(20, 21, key=2).wait(30, 31, key=2, got=0).fold(40)
    assert (timeline.steps, timeline.evaluation_steps) == (2, 0)


def test_neighbours_out_of_order_are_put_in_order() -> None:
    script = Script().begin(0, Phase.STEP).end(20, Phase.INPUT, 1, 1).begin(10, Phase.INPUT, 1)
    timeline = script.end(40, Phase.STEP, value=1).fold(40)
    assert ms(timeline) == {Phase.STEP: 30, Phase.INPUT: 10}
    assert timeline.counts["late"] == 0


def test_a_time_from_the_future_does_not_move_the_clock() -> None:
    timeline = Script().begin(10**9, Phase.STEP).fold(50)
    assert ms(timeline) == {Phase.STARTUP: 50}
    timeline.feed(b"", timeline.now_ns + 5 * MS)
    assert ms(timeline) == {Phase.STARTUP: 50, Phase.STEP: 5}


# ---- steps that someone tells ----------------------------------------------------------------------------------------


def test_a_step_that_an_exception_leaves_does_not_count() -> None:
    timeline = Script().begin(0, Phase.STEP).end(5, Phase.STEP, value=0, flags=Flag.EXACT).fold(10)
    assert timeline.steps == 0


def test_elements_count_the_steps_of_an_execution_that_can_not_tell_exactly() -> None:
    """Keras with steps_per_execution=5 on 7 batches says 5 and 5, but only 7 elements came."""
    script = Script()
    for start, elements in ((0, 5), (100, 2)):
        script.begin(start, Phase.STEP)
        for i in range(elements):
            script.wait(start + i * 10, start + i * 10 + 1, flags=Flag.GRAPH).done(start + i * 10 + 9, 1)
        script.over(start + 60, 1).end(start + 61, Phase.STEP, value=5)
    assert script.fold(200).steps == 7


def test_without_elements_the_number_that_was_told_counts() -> None:
    assert Script().begin(0, Phase.STEP).end(5, Phase.STEP, value=5).fold(10).steps == 5


def test_nested_steps_count_once() -> None:
    script = Script().begin(0, Phase.STEP).begin(1, Phase.STEP).end(2, Phase.STEP, value=1, flags=Flag.EXACT)
    assert script.end(3, Phase.STEP, value=1, flags=Flag.EXACT).fold(9).steps == 1


def test_an_iterator_whose_steps_are_told_infers_none() -> None:
    script = Script()
    for start in (0, 100, 200):
        script.wait(start, start + 10).begin(start + 12, Phase.STEP)
        script.end(start + 50, Phase.STEP, value=1, flags=Flag.EXACT)
    timeline = script.wait(300, 310, got=0).fold(320)
    assert timeline.steps == 3
    assert ms(timeline)[Phase.STEP] == pytest.approx(3 * 38 + 2)  # 2: until the first told step, it was inferred


# ---- steps that are inferred -----------------------------------------------------------------------------------------


def test_between_two_waits_of_an_eager_iterator_is_a_step() -> None:
    script = Script()
    for start in (0, 100, 200):
        script.wait(start, start + 20)
    timeline = script.wait(300, 330, got=0).fold(400)
    assert timeline.steps == 3
    assert ms(timeline) == {Phase.INPUT: 90, Phase.STEP: 240, Phase.HOST: 70}


def test_the_last_step_of_a_loop_that_is_left_ends_when_its_iterator_goes() -> None:
    timeline = Script().wait(0, 20).wait(100, 120).over(200, 1).fold(300)
    assert timeline.steps == 2
    assert ms(timeline) == {Phase.INPUT: 40, Phase.STEP: 160, Phase.HOST: 100}


def test_the_iterator_that_gradients_come_from_is_training_and_another_in_a_row_is_validation() -> None:
    script, t = Script(), 0
    for epoch in range(2):
        for _ in range(3):
            script.wait(t, t + 1, key=1)
            if epoch == 0:
                script.trains(t + 2, 1)
            t += 10
        script.wait(t, t + 1, key=1, got=0)
        t += 1
        for _ in range(4):
            script.wait(t, t + 1, key=2)
            t += 10
        script.wait(t, t + 1, key=2, got=0)
        t += 1
    timeline = script.fold(t)
    assert timeline.steps == 6
    assert timeline.evaluation_steps == 8


def test_two_iterators_that_alternate_are_one_step() -> None:
    script = Script().trains(0, 2)
    for t in (0, 100, 200):
        script.wait(t, t + 10, key=1).wait(t + 10, t + 30, key=2)
    timeline = script.wait(300, 301, key=1, got=0).over(301, 2).fold(301)
    assert timeline.steps == 3
    assert timeline.evaluation_steps == 0
    assert ms(timeline)[Phase.INPUT] == 91


def test_two_iterators_that_both_train_are_one_step_while_they_alternate() -> None:
    script = Script().trains(0, 1).trains(0, 2)
    for t in (0, 100, 200):
        script.wait(t, t + 10, key=1).wait(t + 50, t + 60, key=2)
    timeline = script.wait(300, 301, key=1, got=0).over(301, 2).fold(301)
    assert timeline.steps == 3
    assert ms(timeline)[Phase.INPUT] == 61


def test_two_iterators_of_one_function_that_trains_are_one_step() -> None:
    g = Flag.GRAPH
    script = Script().trains(0, 1).trains(0, 2)
    for t in (0, 100, 200):
        script.wait(t, t + 10, key=1, flags=g).wait(t + 50, t + 60, key=2, flags=g).over(t + 90, 1).over(t + 90, 2)
    assert script.fold(300).steps == 3


@pytest.mark.parametrize("others", [1, 2])
def test_a_training_loop_that_was_left_does_not_swallow_the_steps_of_the_next(others: int) -> None:
    script = Script().trains(0, 1).trains(0, 2).trains(0, 3).wait(0, 10, key=1)  # left, and its iterator is kept
    for t in (100, 200, 300, 400):
        for key in range(2, 2 + others):
            script.wait(t + 10 * key, t + 10 * key + 5, key=key)
    assert script.wait(500, 501, key=2, got=0).over(502, 3).over(503, 1).fold(600).steps == 1 + 4


def test_an_error_on_another_thread_ends_the_waits_of_the_graph_that_it_came_from() -> None:
    script = Script().trains(0, 1).begin(0, Phase.INPUT, 1, Flag.GRAPH).begin(5, Phase.INPUT, 2, Flag.GRAPH)
    script.end(10, Phase.INPUT, 2, 0, Flag.GRAPH | Flag.ABORT).end(30, Phase.INPUT, 1, 1, Flag.GRAPH).over(40, 1)
    timeline = script.fold(100)
    assert ms(timeline) == {Phase.INPUT: 30, Phase.STEP: 10, Phase.HOST: 60}


def test_sources_without_end_lose_no_step_and_no_wait() -> None:
    script = Script()
    for key in range(1, 1001):
        t = key * 10
        script.trains(t, key).wait(t, t + 2, key=key).wait(t + 5, t + 6, key=key).wait(t + 8, t + 8, key=key, got=0)
    timeline = script.fold(10020)
    assert timeline.steps == 2000
    assert ms(timeline)[Phase.INPUT] == 3000
    assert timeline.details_ns()[Phase.INPUT, 1000] == 3 * MS


def test_what_was_consumed_before_the_training_counts_no_steps_once_that_is_known() -> None:
    script = Script().wait(0, 1, key=1).wait(10, 11, key=1).wait(20, 21, key=1, got=0)
    assert script.fold(30).steps == 2
    script.trains(30, 2).wait(30, 31, key=2).over(40, 2)
    assert script.fold(50).steps == 1


def test_a_new_iterator_that_turns_out_to_train_is_a_step_from_its_first_element() -> None:
    script = Script().trains(0, 1).wait(0, 10).wait(50, 60, got=0)
    script.wait(100, 110, key=2).trains(111, 2).wait(150, 160, key=2).wait(190, 200, key=2, got=0).trains(300, 2)
    timeline = script.fold(400)
    assert (timeline.steps, timeline.evaluation_steps) == (3, 0)
    assert ms(timeline)[Phase.STEP] == 40 + 39 + 30


def test_a_graph_that_fetches_while_it_computes_does_not_wait() -> None:
    g = Flag.GRAPH
    script = Script().trains(0, 1).wait(0, 10, flags=g).done(50, 1)  # once, it tells when it is done
    script.wait(50, 60, flags=g)
    script.begin(62, Phase.INPUT, 1, g).end(90, Phase.INPUT, 1, 1, g).done(100, 1)  # hidden behind the step
    script.begin(101, Phase.INPUT, 1, g).done(140, 1).end(155, Phase.INPUT, 1, 1, g)  # 15 ms are not
    timeline = script.done(200, 1).over(201, 1).fold(250)
    assert timeline.steps == 4
    assert ms(timeline)[Phase.INPUT] == 10 + 10 + 15


def test_a_function_that_ends_ends_its_step() -> None:
    g = Flag.GRAPH
    script = Script().trains(0, 1)
    for t in (0, 100):
        script.wait(t, t + 10, flags=g).over(t + 40, 1)
    timeline = script.fold(200)
    assert timeline.steps == 2
    assert ms(timeline) == {Phase.INPUT: 20, Phase.STEP: 60, Phase.HOST: 120}


def test_the_end_of_the_data_inside_a_graph_is_no_wait_for_ever() -> None:
    g = Flag.GRAPH
    script = Script().trains(0, 1).wait(0, 10, flags=g).over(40, 1).begin(50, Phase.INPUT, 1, g)
    script.at(60, Phase.INPUT, Kind.END, 0, 0, g | Flag.ABORT)
    timeline = script.fold(1000)
    assert ms(timeline) == {Phase.INPUT: 20, Phase.STEP: 30, Phase.HOST: 950}
    assert timeline.steps == 1


# ---- evaluation ------------------------------------------------------------------------------------------------------


def test_validation_inside_fit_is_shown_apart_and_its_batches_are_no_steps() -> None:
    script = Script().begin(0, Phase.STEP).end(10, Phase.STEP, value=1).begin(20, Phase.EVALUATION)
    for t in (20, 40):
        script.begin(t, Phase.EVALUATION, 1).wait(t + 1, t + 5, key=9, flags=Flag.GRAPH).over(t + 15, 9)
        script.end(t + 15, Phase.EVALUATION, 1, value=1)
    timeline = script.end(60, Phase.EVALUATION).fold(60)
    assert (timeline.steps, timeline.evaluation_steps) == (1, 2)
    assert ms(timeline) == {Phase.STEP: 10, Phase.HOST: 10, Phase.INPUT: 8, Phase.EVALUATION: 32}


def test_validation_data_that_end_inside_a_batch_end_the_validation() -> None:
    """Of data of unknown size Keras notices the end inside a batch, and never says that this one is over."""
    script = Script().begin(0, Phase.EVALUATION).begin(0, Phase.EVALUATION, 1).end(10, Phase.EVALUATION, 1, 1)
    script.begin(10, Phase.EVALUATION, 1).end(20, Phase.EVALUATION)
    timeline = script.begin(30, Phase.STEP).end(40, Phase.STEP, value=1, flags=Flag.EXACT).fold(50)
    assert ms(timeline) == {Phase.EVALUATION: 20, Phase.STEP: 10, Phase.HOST: 20}
    assert (timeline.steps, timeline.evaluation_steps) == (1, 1)


def test_step_times_leave_validation_out() -> None:
    script = Script()
    for t in (0, 20, 40, 160):
        script.begin(t, Phase.STEP).end(t + 10, Phase.STEP, value=1)
    script.records.insert(6, event(script.start_ns + 55 * MS, Phase.EVALUATION, Kind.BEGIN))
    script.records.insert(7, event(script.start_ns + 155 * MS, Phase.EVALUATION, Kind.END))
    assert script.fold(170).step_percentiles_ms(10, (0.0, 1.0)) == (20, 20)


# ---- coverage --------------------------------------------------------------------------------------------------------


def test_what_was_lost_is_not_covered_until_the_next_event() -> None:
    timeline = Script().begin(0, Phase.STEP).fold(10)
    timeline.gap()
    timeline.feed(event(1_000_000 * MS + 60 * MS, Phase.INPUT, Kind.BEGIN, 1), 1_000_000 * MS + 80 * MS)
    assert ms(timeline) == {Phase.STEP: 10, 0: 50, Phase.INPUT: 20}


def test_a_pause_is_not_covered() -> None:
    script = Script().begin(0, Phase.STEP).at(10, Phase.HOST, Kind.POINT, value=1)
    timeline = script.at(50, Phase.HOST, Kind.POINT, value=0).fold(60)
    assert ms(timeline) == {Phase.STEP: 10, 0: 40, Phase.HOST: 10}


# ---- windows, details, percentiles -----------------------------------------------------------------------------------


def test_a_window_is_made_of_whole_slots_and_forgets_what_is_older() -> None:
    script = Script().begin(0, Phase.STEP).end(5000, Phase.STEP, value=1).begin(20000, Phase.STEP)
    ns, steps, _ = script.end(24000, Phase.STEP, value=1).fold(25050).window(10)
    assert sum(ns) == pytest.approx(10_050 * MS)
    assert ns[Phase.STEP] == 4000 * MS
    assert steps == 1


def test_a_long_silence_costs_no_time_and_keeps_the_sum() -> None:
    timeline = Script().begin(0, Phase.STEP).fold(86_400_000 * 30)
    assert ms(timeline) == {Phase.STEP: 86_400_000 * 30}
    assert sum(timeline.window(10)[0]) == pytest.approx(10_000 * MS, rel=0.011)


def test_user_phases_are_stalls_or_productive_as_the_user_says_and_told_apart_by_name() -> None:
    script = Script().begin(0, FIRST_USER_PHASE).begin(10, FIRST_USER_PHASE + 1, 0, Flag.PRODUCTIVE)
    timeline = script.end(30, FIRST_USER_PHASE + 1).end(40, FIRST_USER_PHASE).fold(40)
    assert ms(timeline) == {Phase.USER: 20, 14: 20}
    # What is productive is no cause of a stall, so it has no detail.
    assert timeline.details_ns() == {(FIRST_USER_PHASE, 0): 20 * MS}


def test_marks_keep_their_count_and_last_value_from_any_thread() -> None:
    script = Script().at(1, FIRST_USER_PHASE, Kind.POINT, value=5).at(2, FIRST_USER_PHASE, Kind.POINT, 0, 7, 1)
    bits = int(np.float64(0.25).view(np.int64))
    timeline = script.at(3, FIRST_USER_PHASE + 1, Kind.POINT, 0, bits, Flag.FLOAT).fold(5)
    assert timeline.marks() == {FIRST_USER_PHASE: (2, 7), FIRST_USER_PHASE + 1: (1, 0.25)}


def test_percentiles_are_those_of_numpy() -> None:
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 10, 1000, 9000):
        times = rng.choice([1.0, 2.0, 3.5, 8.0], n) + rng.integers(0, 3, n)
        script, t = Script(start_ns=10**15), 0.0
        script.begin(0, Phase.STEP).end(0, Phase.STEP, value=1)
        for step in times:
            t += step
            script.begin(t, Phase.STEP).end(t, Phase.STEP, value=1)
        timeline = script.fold(t)
        kept = np.sort(times[-8192:])
        wanted = [kept[min(int(q * len(kept)), len(kept) - 1)] for q in (0.5, 0.95, 0.99)]
        assert timeline.step_percentiles_ms(1e5, (0.5, 0.95, 0.99)) == pytest.approx(wanted)


def test_tables_that_are_full_lose_detail_but_no_time() -> None:
    script = Script()
    for key in range(1, 400):
        script.begin(key, Phase.CALLBACK, key)
    timeline = script.fold(500)
    assert ms(timeline) == {Phase.STARTUP: 1, Phase.CALLBACK: 499}
    assert timeline.counts["overflow"] > 0


def test_records_that_are_no_whole_events_are_refused() -> None:
    with pytest.raises(ValueError, match="24"):
        Timeline(0).feed(b"x" * 23, 1)


def test_a_forged_watermark_at_the_end_of_the_clock_is_survived() -> None:
    timeline = Timeline(0)
    timeline.feed(event(2**64 - 1, Phase.STEP, Kind.BEGIN), 2**64 - 1)
    assert sum(timeline.totals_ns()) == timeline.now_ns == 2**63 - 1
