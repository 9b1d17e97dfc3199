"""Who waits for whom, from tables of arrivals."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hpcsampler.collector.stragglers import Attendance, Meeting, Verdict, cause, verdicts, verdicts_by_step_time

MS = 1_000_000
STEP_MS = 40.0


def meetings(
    work_ms: Callable[[int, int], float], *, ranks: int = 4, steps: int = 250, seed: int = 1, jitter_ms: float = 1.0,
    leave_ms: Callable[[int], float] = lambda _: 0.0, whole: bool = True, second: bool = True,
) -> list[Meeting]:
    """Ranks that work, meet, and work on. Behind the gradients' collective comes the loss's."""
    chance = random.Random(seed)
    left = dict.fromkeys(range(ranks), 10_000 * MS)
    made = []
    for step in range(steps):
        for place in (1, 2) if second else (1,):
            work = {
                rank: (work_ms(step, rank) if place == 1 else 0.1) + abs(chance.gauss(0, jitter_ms)) for rank in left
            }
            arrived = {rank: at_ns + int(work[rank] * MS) for rank, at_ns in left.items()}
            met_ns = max(arrived.values())
            before, left = left, {rank: met_ns + int((2 + leave_ms(rank)) * MS) for rank in left}
            made.append(Meeting(
                (7, place), {rank: Attendance(before[rank], arrived[rank], left[rank]) for rank in left}, whole,
            ))
    return made


def blamed(found: dict[int, Verdict]) -> set[int]:
    return {verdict.blamed for verdict in found.values() if verdict.blamed is not None}


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
def test_a_rank_that_is_always_late_is_blamed_by_the_others_and_by_nobody_else(slow: int) -> None:
    found = verdicts(meetings(lambda _, rank: 20 + 20 * (rank == slow)), STEP_MS / 1000)
    assert [rank for rank, verdict in found.items() if verdict.steady] == [slow]
    assert {rank: verdict.blamed for rank, verdict in found.items()} == {
        rank: None if rank == slow else slow for rank in range(4)
    }
    assert found[slow].score > 0.95
    # 20 of the 22 ms in the gradients' collective, and of the 2 of the loss's only what the jitter costs.
    assert found[(slow + 1) % 4].waited == pytest.approx(20 / 24, abs=0.1)
    assert found[slow].waited == pytest.approx(0, abs=0.15)
    for verdict in found.values():
        assert verdict.waited is not None
        assert verdict.network == pytest.approx(1 - verdict.waited)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("jitter_ms", [0.01, 1, 10])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_none_is_slowed_nobody_is_blamed(ranks: int, jitter_ms: float, seed: int) -> None:
    found = verdicts(meetings(lambda *_: 20.0, ranks=ranks, jitter_ms=jitter_ms, seed=seed), STEP_MS / 1000)
    assert len(found) == ranks
    assert blamed(found) == set()
    assert not any(verdict.steady for verdict in found.values())


def test_the_slow_one_of_two_is_found_in_noise_as_large_as_half_of_its_lateness() -> None:
    found = verdicts(meetings(lambda _, rank: 20 + 20 * rank, ranks=2, jitter_ms=10), STEP_MS / 1000)
    assert found[0].blamed == 1


def test_passing_jitter_of_one_rank_is_waited_for_but_not_blamed() -> None:
    chance = random.Random(5)
    found = verdicts(meetings(lambda _, rank: 20 + 50 * (rank == 2 and chance.random() < 0.1)), STEP_MS / 1000)
    assert blamed(found) == set()
    assert found[2].score == pytest.approx(0.1, abs=0.06)
    assert (found[0].waited or 0) > 0.3


def test_a_rank_that_was_slow_and_is_not_any_more_is_not_blamed() -> None:
    found = verdicts(meetings(lambda step, rank: 20 + 20 * (rank == 2 and step < 155)), STEP_MS / 1000)
    assert found[2].score > 0.6
    assert blamed(found) == set()


def test_two_slow_ranks_are_both_stragglers() -> None:
    found = verdicts(meetings(lambda _, rank: 20 + 20 * (rank in {1, 2})), STEP_MS / 1000)
    assert [rank for rank, verdict in found.items() if verdict.steady] == [1, 2]
    assert blamed(found) <= {1, 2}


def test_a_rank_that_the_network_lets_go_last_is_no_straggler() -> None:
    """It arrives last at the next collective, but it has worked no longer than the others."""
    found = verdicts(meetings(lambda *_: 20.0, leave_ms=lambda rank: 8.0 * (rank == 2)), STEP_MS / 1000)
    assert blamed(found) == set()
    assert (found[0].waited or 0) > 0.3


def test_being_late_by_less_than_a_twentieth_of_a_step_is_no_lateness() -> None:
    late = meetings(lambda _, rank: 20 + 1.5 * (rank == 2), jitter_ms=0.01)
    assert blamed(verdicts(late, STEP_MS / 1000)) == set()
    assert blamed(verdicts(late, 0.022)) == {2}


def test_of_few_collectives_or_of_a_moment_nothing_is_said() -> None:
    assert verdicts(meetings(lambda _, rank: 20 + 20 * rank, steps=4), 0.04) == {}
    assert verdicts(meetings(lambda _, rank: 1.0 + rank, steps=100), 0.04) == {}
    assert verdicts([], 0.04) == {}


def test_where_members_are_on_other_nodes_the_rest_is_not_said_to_be_the_networks() -> None:
    found = verdicts(meetings(lambda _, rank: 20 + 20 * (rank == 2), whole=False), STEP_MS / 1000)
    assert blamed(found) == {2}
    assert {verdict.network for verdict in found.values()} == {None}


def test_a_rank_that_is_missing_now_and_then_is_judged_by_the_meetings_that_it_was_in() -> None:
    all_there = meetings(lambda _, rank: 20 + 20 * (rank == 2))
    some_missing = [
        Meeting(m.place, {rank: part for rank, part in m.ranks.items() if rank != 3 or i % 3}, m.whole)
        for i, m in enumerate(all_there)
    ]
    found = verdicts(some_missing, STEP_MS / 1000)
    assert {rank: verdict.blamed for rank, verdict in found.items()} == {0: 2, 1: 2, 2: None, 3: 2}


def test_parts_of_different_collectives_are_told_by_who_left_before_all_had_arrived() -> None:
    assert Meeting((7, 1), {0: Attendance(0, 10 * MS, 20 * MS), 1: Attendance(0, 15 * MS, 20 * MS)}, True).possible
    assert not Meeting((7, 1), {0: Attendance(0, 10 * MS, 20 * MS), 1: Attendance(0, 25 * MS, 30 * MS)}, True).possible


# ---- why -------------------------------------------------------------------------------------------------------


def test_the_cause_is_the_phase_that_the_late_rank_spends_most_more_in_than_the_others() -> None:
    usual = {"input": 0.001, "step": 0.010, "host": 0.002, "collective": 0.020}
    assert cause(1, {0: usual, 1: {**usual, "step": 0.030, "collective": 0.0}, 2: usual}) == "step"
    assert cause(1, {0: usual, 1: {**usual, "input": 0.021, "collective": 0.0}, 2: usual}) == "input"
    assert cause(1, {0: usual, 1: {**usual, "checkpoint": 0.5}, 2: usual}) == "checkpoint"
    # Startup and waiting for others are no cause.
    assert cause(1, {0: usual, 1: {**usual, "startup": 5.0, "collective": 0.5}}) is None
    assert cause(1, {1: usual}) is None


# ---- without collectives -----------------------------------------------------------------------------------------


def test_without_collectives_the_one_that_waits_for_input_while_others_wait_in_their_step_is_blamed() -> None:
    found = verdicts_by_step_time({
        0: {"step": 0.040}, 1: {"step": 0.020, "input": 0.020}, 2: {"step": 0.039, "input": 0.001},
    })
    assert {rank: verdict.blamed for rank, verdict in found.items()} == {0: 1, 1: None, 2: 1}
    assert found[1].steady
    assert found[0].waited is None


def test_without_collectives_ranks_that_do_not_keep_step_are_compared_by_the_whole_of_it() -> None:
    found = verdicts_by_step_time({0: {"step": 0.020}, 1: {"step": 0.040}, 2: {"step": 0.021}})
    assert {rank: verdict.blamed for rank, verdict in found.items()} == {0: 1, 1: None, 2: 1}


def test_without_collectives_equal_ranks_are_not_blamed() -> None:
    usual = {"step": 0.020, "input": 0.001}
    assert blamed(verdicts_by_step_time({0: usual, 1: {"step": 0.020, "input": 0.002}, 2: usual})) == set()
    assert verdicts_by_step_time({0: usual}) == {}
    assert verdicts_by_step_time({0: {}, 1: {}}) == {}
