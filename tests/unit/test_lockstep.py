"""Ranks find each other's collectives by name, and never wrong ones."""

from __future__ import annotations

from dataclasses import replace

from hpcsampler.collector.lockstep import Lockstep
from hpcsampler.collector.ranks import RankState
from hpcsampler.ext._timeline import Timeline
from hpcsampler.protocol.phases import COLLECTIVE_KEYS, Flag, Kind, Phase, collective_value
from tests.support.ranks import hello
from tests.support.records import MS, Script

START_NS = 1_000_000 * MS
KEY = COLLECTIVE_KEYS | 1
STEP_MS = 40


def rank_of(number: int, *, job: str = "job", world_size: int = 2) -> RankState:
    state = RankState(hello(number, job=job, world_size=world_size, key=f"{job}-{number}"), b"", START_NS, START_NS)
    state.timeline = Timeline(START_NS)
    return state


def run(state: RankState, first: int, last: int, *, late_ms: float = 0.0, ordinal: int = 100, members: int = 2) -> None:
    """Steps `first` to `last`: a step, then its collective, which all leave together after 35 ms."""
    script = Script(start_ns=START_NS)
    for i in range(first, last):
        t = i * STEP_MS
        script.begin(t, Phase.STEP)
        value = collective_value(members, 3, ordinal + i)
        script.at(t + 10 + late_ms, Phase.COLLECTIVE, Kind.BEGIN, KEY, value, Flag.GRAPH)
        script.at(t + 35, Phase.COLLECTIVE, Kind.END, KEY, value, Flag.GRAPH)
        script.end(t + 36, Phase.STEP, value=1, flags=Flag.EXACT)
    assert state.timeline is not None
    state.timeline.feed(b"".join(script.records), START_NS + last * STEP_MS * MS)


def look(lockstep: Lockstep, ranks: list[RankState], step: int) -> None:
    lockstep.look(ranks, START_NS + step * STEP_MS * MS)


def watched(ranks: list[RankState], late_ms: dict[int, float], *, until: int = 200, **more: int) -> None:
    lockstep = Lockstep()
    for first in range(0, until, 25):
        for state in ranks:
            run(state, first, first + 25, late_ms=late_ms.get(state.hello.rank, 0.0), **more)
        look(lockstep, ranks, first + 25)


def test_the_late_rank_is_blamed_with_what_keeps_it() -> None:
    ranks = [rank_of(0), rank_of(1)]
    watched(ranks, {1: 20})
    assert ranks[0].straggler is not None
    assert ranks[1].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1
    assert ranks[0].straggler["cause"] == ranks[1].straggler["cause"] == "step"
    assert ranks[0].straggler["source"] == "collective"
    # Of the 25 ms in the collective 20 are waited for the other, in a step of 40.
    assert abs(ranks[0].straggler["wait_share"] - 0.5) < 0.02
    assert abs(ranks[0].straggler["network_share"] - 0.125) < 0.02
    assert ranks[1].straggler["steady"]
    assert "blamed_on_rank" not in ranks[1].straggler


def test_ranks_whose_events_come_at_different_times_are_still_matched() -> None:
    ranks = [rank_of(0), rank_of(1)]
    lockstep = Lockstep()
    for first in range(0, 200, 25):
        run(ranks[0], first, first + 25)
        look(lockstep, ranks, first + 25)
        run(ranks[1], first, first + 25, late_ms=20)
        look(lockstep, ranks, first + 25)
    assert ranks[0].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1


def test_after_lost_events_and_a_new_daemon_the_match_is_right_at_once() -> None:
    """The number is the framework's own, so nobody has to have counted."""
    ranks = [rank_of(0), rank_of(1)]
    watched(ranks, {1: 20}, until=100)
    for state in ranks:
        state.timeline = Timeline(START_NS + 100 * STEP_MS * MS)
    lockstep = Lockstep()
    for first in range(100, 300, 25):
        for state in ranks:
            run(state, first, first + 25, late_ms=20.0 * state.hello.rank)
            if state.hello.rank == 1 and first == 200:
                state.timeline.gap()
        look(lockstep, ranks, first + 25)
    assert ranks[0].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1
    assert abs(ranks[0].straggler["wait_share"] - 0.5) < 0.03


def test_numbers_that_mean_different_collectives_are_not_matched() -> None:
    """One that left before the other arrived was in another collective."""
    ranks = [rank_of(0), rank_of(1)]
    lockstep = Lockstep()
    for first in range(0, 200, 25):
        run(ranks[0], first, first + 25, ordinal=100)
        run(ranks[1], first, first + 25, ordinal=107, late_ms=20)
        look(lockstep, ranks, first + 25)
    assert all(state.straggler is None or state.straggler["source"] != "collective" for state in ranks)
    assert all(state.straggler is None or "blamed_on_rank" not in state.straggler for state in ranks)


def test_two_programs_under_one_name_are_left_alone() -> None:
    ranks = [rank_of(0), rank_of(1), rank_of(1)]
    watched(ranks[:2], {1: 20})
    lockstep = Lockstep()
    look(lockstep, ranks, 200)
    assert all(state.straggler is None for state in ranks)


def test_a_single_rank_and_jobs_of_one_are_left_alone() -> None:
    alone = [rank_of(0)]
    watched(alone, {})
    assert alone[0].straggler is None
    apart = [rank_of(0, job="a", world_size=1), rank_of(0, job="b", world_size=1)]
    watched(apart, {})
    assert all(state.straggler is None for state in apart)


def test_a_part_of_the_members_is_compared_without_a_word_of_the_network() -> None:
    ranks = [rank_of(0, world_size=4), rank_of(1, world_size=4)]
    watched(ranks, {1: 20}, members=4)
    assert ranks[0].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1
    assert "network_share" not in ranks[0].straggler


def test_a_part_that_was_lost_does_not_make_the_rest_of_the_time_unknown() -> None:
    ranks = [rank_of(0, world_size=3), rank_of(1, world_size=3), rank_of(2, world_size=3)]
    lockstep = Lockstep()
    for first in range(0, 400, 25):
        for state in ranks:
            if state.hello.rank != 2 or first != 200:
                run(state, first, first + 25, late_ms=20.0 * (state.hello.rank == 1), members=3)
        look(lockstep, ranks, first + 25)
        if first == 250:
            assert ranks[0].straggler is not None
            assert "network_share" in ranks[0].straggler
    assert ranks[0].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1


def test_ranks_without_collectives_are_compared_by_step_time_and_it_says_so() -> None:
    ranks = [rank_of(0), rank_of(1)]
    for state in ranks:
        script = Script(start_ns=START_NS)
        wait = 20 if state.hello.rank == 1 else 1
        for i in range(200):
            t = i * STEP_MS
            script.wait(t, t + wait).begin(t + wait, Phase.STEP).end(t + 39, Phase.STEP, value=1, flags=Flag.EXACT)
        assert state.timeline is not None
        state.timeline.feed(b"".join(script.records), START_NS + 200 * STEP_MS * MS)
    look(Lockstep(), ranks, 200)
    assert ranks[0].straggler == {
        "source": "step time", "score": 0.0, "steady": False, "blamed_on_rank": 1, "cause": "input",
    }


def test_a_rank_that_ended_is_not_waited_for() -> None:
    ranks = [rank_of(0), rank_of(1), rank_of(2)]
    ranks = [replace(state, hello=replace(state.hello, world_size=3)) for state in ranks]
    watched(ranks, {1: 20}, members=3)
    assert ranks[2].straggler is not None
    lockstep = Lockstep()
    for first in range(200, 400, 25):
        for state in ranks[:2]:
            run(state, first, first + 25, late_ms=20.0 * state.hello.rank, members=2)
        look(lockstep, ranks[:2], first + 25)
    assert ranks[0].straggler is not None
    assert ranks[0].straggler["blamed_on_rank"] == 1
