"""When a training counts as stalled, and when it takes its time."""

from __future__ import annotations

import pytest

from hpcsampler.collector.ranks import RankState
from hpcsampler.collector.snapshot import rank_snapshot
from hpcsampler.collector.stall import LEAST_S, stalled_s
from hpcsampler.ext._timeline import UNCOVERED, USER_PRODUCTIVE
from hpcsampler.protocol.phases import Flag, Kind, Phase
from tests.support.ranks import hello
from tests.support.records import MS, Script


@pytest.mark.parametrize(
    "category", [Phase.INPUT, Phase.COLLECTIVE, Phase.STEP, Phase.HOST, Phase.CALLBACK, Phase.USER],
)
def test_ten_usual_steps_without_one_are_a_stall_but_never_less_than_some_seconds(category: int) -> None:
    assert stalled_s(without_step_s=LEAST_S - 0.1, usual_step_s=0.01, category=category) is None
    assert stalled_s(without_step_s=LEAST_S, usual_step_s=0.01, category=category) == LEAST_S
    assert stalled_s(without_step_s=19.9, usual_step_s=2.0, category=category) is None
    assert stalled_s(without_step_s=20.0, usual_step_s=2.0, category=category) == 20.0
    # Before two steps nobody knows how long one takes.
    assert stalled_s(without_step_s=1000.0, usual_step_s=None, category=category) is None


@pytest.mark.parametrize(
    "category", [Phase.CHECKPOINT, Phase.COMPILE, Phase.EVALUATION, Phase.STARTUP, UNCOVERED, USER_PRODUCTIVE],
)
def test_what_takes_its_time_is_no_stall(category: int) -> None:
    assert stalled_s(without_step_s=1000.0, usual_step_s=0.01, category=category) is None


def trained(script: Script, until_ms: float) -> RankState:
    """A rank with twenty steps of 100 ms, and what the script says after those."""
    begun = Script(start_ns=script.start_ns)
    for i in range(20):
        begun.wait(100 * i, 100 * i + 10).begin(100 * i + 10, Phase.STEP).end(
            100 * i + 99, Phase.STEP, value=1, flags=Flag.EXACT,
        )
    state = RankState(hello(0), b"", script.start_ns, script.start_ns)
    state.timeline = begun.fold(2000)
    state.checkpoint()
    state.timeline.feed(b"".join(script.records), script.start_ns + int(until_ms * MS))
    state.newest_ns = state.timeline.now_ns
    return state


def test_a_rank_that_waits_for_input_for_ever_is_stalled_and_says_where_and_since_when() -> None:
    state = trained(Script().begin(2100, Phase.INPUT, 1), 9000)
    rank = rank_snapshot(state, Script().start_ns + 9000 * MS, [])
    assert rank["state"] == "stalled"
    assert rank["stalled_s"] == pytest.approx(7.0, abs=0.01)
    assert rank["open_phase"] == {"phase": "input", "since_s": pytest.approx(6.9, abs=0.01)}


def test_one_that_trains_is_not() -> None:
    rank = rank_snapshot(trained(Script(), 3000), Script().start_ns + 3000 * MS, [])
    assert rank["state"] == "training"
    assert "stalled_s" not in rank


def test_one_whose_process_is_stopped_is_stalled_though_nothing_comes_from_it() -> None:
    rank = rank_snapshot(trained(Script(), 2500), Script().start_ns + 12_000 * MS, [])
    assert rank["state"] == "stalled"
    assert rank["age_s"] == pytest.approx(9.5, abs=0.01)


@pytest.mark.parametrize("phase", [Phase.CHECKPOINT, Phase.COMPILE])
def test_after_what_takes_its_time_the_seconds_count_anew(phase: Phase) -> None:
    def script() -> Script:
        return Script().begin(2100, phase).end(60_000, phase)

    for at_ms, state in ((30_000, "training"), (61_000, "training"), (66_000, "stalled")):
        begun = Script()
        begun.records = [record for record in script().records if int.from_bytes(record[:8], "little")
                         <= begun.start_ns + at_ms * MS]
        assert rank_snapshot(trained(begun, at_ms), begun.start_ns + at_ms * MS, [])["state"] == state


def test_a_long_evaluation_is_none_and_one_that_gets_no_data_is() -> None:
    script = Script().begin(2100, Phase.EVALUATION, 0)
    assert rank_snapshot(trained(script, 60_000), script.start_ns + 60_000 * MS, [])["state"] != "stalled"
    script.begin(60_000, Phase.INPUT, 2)
    assert rank_snapshot(trained(script, 70_000), script.start_ns + 70_000 * MS, [])["state"] == "stalled"


def test_a_pause_is_none() -> None:
    script = Script().at(2100, Phase.HOST, Kind.POINT, value=1)
    assert rank_snapshot(trained(script, 60_000), script.start_ns + 60_000 * MS, [])["state"] == "training"
