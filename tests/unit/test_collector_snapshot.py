"""What the user reads, against a timeline whose truth is known."""

from __future__ import annotations

import dataclasses

import pytest

from hpcsampler.collector import ranks
from hpcsampler.collector.findings import find
from hpcsampler.collector.gpu import GpuReading
from hpcsampler.collector.ingest import fold
from hpcsampler.collector.pipeline import LivePipeline
from hpcsampler.collector.ranks import RankState
from hpcsampler.collector.snapshot import Moment, build, rank_snapshot
from hpcsampler.protocol.incidents import TraceIncident
from hpcsampler.protocol.messages import Events, Pipeline
from hpcsampler.protocol.phases import Flag, Kind, Phase
from hpcsampler.protocol.snapshot import decode_snapshot, encode_snapshot
from hpcsampler.protocol.stages import Role, Stage
from tests.support.ranks import event, hello, steps

S = 10**9
MS = 10**6
NOW = 1_000 * S


class Told:
    """A rank that tells of its time second by second."""

    def __init__(self, number: int = 0, **identity: object) -> None:
        identity = {"key": f"r{number}", "attach_ns": NOW, "monotonic_ns": NOW, **identity}
        self.state = RankState(hello(number, **identity), b"peer", NOW, NOW)
        self.count = 0
        self.now = NOW
        self.overhead_ns = 0

    def tell(self, records: bytes, seconds: float = 1.0) -> None:
        self.now += int(seconds * S)
        batch = Events(self.state.hello.rank_key, 0, self.now, self.count, 0, self.overhead_ns, records)
        self.count += batch.count
        fold(self.state, batch, self.now)
        self.state.checkpoint()

    def train(self, seconds: int, **waits: int) -> None:
        for _ in range(seconds):
            count = S // (waits["input_ns"] + waits["step_ns"])
            self.tell(steps(self.now, count, **waits))

    def snapshot(self):
        return rank_snapshot(self.state, self.now, [])


@pytest.fixture
def told() -> Told:
    return Told()


def test_shares_are_of_the_last_ten_seconds_and_totals_of_all(told: Told) -> None:
    told.train(20, input_ns=60 * MS, step_ns=40 * MS)
    told.train(11, input_ns=20 * MS, step_ns=80 * MS)
    rank = told.snapshot()
    assert rank["phases"] == pytest.approx({"input": 0.2, "step": 0.8}, abs=0.01)
    assert sum(rank["phases"].values()) == pytest.approx(1, abs=1e-9)
    assert rank["totals_s"]["input"] == pytest.approx(20 * 0.6 + 11 * 0.2, abs=1e-3)
    assert rank["goodput"] == pytest.approx((20 * 0.4 + 11 * 0.8) / 31, abs=1e-3)
    assert rank["step"] == 310
    assert rank["steps_per_s"] == pytest.approx(10, rel=0.02)
    assert rank["step_ms"]["p50"] == pytest.approx(100, abs=0.1)
    assert rank["coverage"] == 1.0
    assert rank["state"] == "training"


def test_the_top_cause_names_the_iterator_that_cost_most_lately(told: Told) -> None:
    told.state.key_names.update({1: "ParallelMap decode", 2: "Shuffle"})
    for _ in range(15):
        told.tell(steps(told.now, 5, input_ns=150 * MS, step_ns=50 * MS, key=1))
    for _ in range(12):
        told.tell(steps(told.now, 5, input_ns=120 * MS, step_ns=80 * MS, key=2))
    cause = told.snapshot()["top_cause"]
    assert (cause["phase"], cause["detail"]) == ("input", "Shuffle")
    assert cause["share"] == pytest.approx(0.6, abs=0.01)


def user_phase(start_ns: int, number: int, seconds: float, flags: int = 0) -> bytes:
    return event(start_ns, number, Kind.BEGIN, flags=flags) + event(
        start_ns + int(seconds * S), number, Kind.END, flags=flags,
    )


def test_productive_and_other_user_phases_are_one_phase_but_only_the_others_are_a_cause(told: Told) -> None:
    told.state.phase_names.update({1024: "simulate", 1025: "write logs"})
    told.tell(steps(told.now, 10, input_ns=0, step_ns=100 * MS))
    for _ in range(12):
        simulating = user_phase(told.now, 1024, 0.7, Flag.PRODUCTIVE)
        told.tell(simulating + user_phase(told.now + 7 * S // 10, 1025, 0.3))
    rank = told.snapshot()
    assert rank["phases"] == pytest.approx({"user": 1.0}, abs=0.01)
    assert rank["top_cause"]["detail"] == "write logs"
    assert rank["top_cause"]["share"] == pytest.approx(0.3, abs=0.01)
    assert rank["goodput"] == pytest.approx((1 + 12 * 0.7) / 13, abs=0.01)


def test_waits_for_another_iterator_are_not_blamed_on_a_stage_of_this_pipeline(told: Told) -> None:
    slow = Stage("Map", "", 1.0, 1.0, False, 9.0, 1.0, 0, None, 0.0, Role.PREPARES, 1)
    told.train(11, input_ns=60 * MS, step_ns=40 * MS)  # of iterator 1
    for keys, elsewhere in (([1], False), ([2], True)):
        told.state.pipeline = LivePipeline(Pipeline("r0", 1, keys, False, 10.0, [slow]), told.now)
        rank = told.snapshot()
        assert rank.get("input_elsewhere", False) is elsewhere
        assert rank["pipeline"][0]["bottleneck"] is not elsewhere
        (finding,) = (one for one in find([rank], {}, 86_400.0) if one["code"] == "input-bound")
        assert ("stage" in finding["evidence"]) is not elsewhere


def test_a_stall_below_one_percent_is_no_cause(told: Told) -> None:
    told.train(12, input_ns=MS // 2, step_ns=199 * MS + MS // 2)
    assert "top_cause" not in told.snapshot()


def test_lost_time_lowers_coverage_and_moves_no_share(told: Told) -> None:
    told.train(5, input_ns=40 * MS, step_ns=60 * MS)
    told.count += 1000  # lost on the way
    told.now += 3 * S
    told.train(2, input_ns=40 * MS, step_ns=60 * MS)
    rank = told.snapshot()
    assert rank["coverage"] == pytest.approx(0.7, abs=0.02)
    assert rank["phases"] == pytest.approx({"input": 0.4, "step": 0.6}, abs=0.01)
    assert rank["dropped"] == 1000
    assert rank["steps_per_s"] == pytest.approx(10, rel=0.03)


def test_after_a_restart_steps_are_unknown_and_totals_are_of_the_time_that_is_known(told: Told) -> None:
    told.state.older = True
    told.count = 5_000  # what a former daemon had
    told.now += 600 * S
    told.train(4, input_ns=20 * MS, step_ns=80 * MS)
    rank = told.snapshot()
    assert not {"step", "evaluation_steps"} & set(rank)
    assert (rank["earlier"], rank["dropped"], rank["events"]) == (5_000, 0, 160)
    assert rank["known_since_s"] == pytest.approx(4)
    assert sum(rank["totals_s"].values()) == pytest.approx(4, abs=1e-6)
    assert rank["goodput"] == pytest.approx(0.8, abs=0.01)
    assert rank["steps_per_s"] == pytest.approx(10, rel=0.03)


def test_a_rank_that_is_known_from_its_attach_says_nothing_of_before(told: Told) -> None:
    told.train(1, input_ns=20 * MS, step_ns=80 * MS)
    assert not {"earlier", "known_since_s"} & set(told.snapshot())


def test_before_its_first_step_a_rank_is_starting_and_after_hello_alone_knows_no_time(told: Told) -> None:
    rank = told.snapshot()
    assert (rank["state"], rank["phases"], rank["coverage"]) == ("starting", {}, 0.0)
    assert not {"step", "goodput", "steps_per_s", "step_ms", "open_phase", "top_cause"} & set(rank)
    told.tell(b"")
    rank = told.snapshot()
    assert rank["state"] == "starting"
    assert rank["phases"] == {"startup": 1.0}
    assert "steps_per_s" not in rank


def test_the_start_does_not_dilute_the_step_rate(told: Told) -> None:
    told.tell(b"", 6)
    told.train(2, input_ns=50 * MS, step_ns=50 * MS)
    assert told.snapshot()["steps_per_s"] == pytest.approx(10, rel=0.06)


def test_evaluation_lasts_through_its_input_waits(told: Told) -> None:
    told.train(2, input_ns=50 * MS, step_ns=50 * MS)
    told.tell(event(told.now, Phase.EVALUATION, Kind.BEGIN))
    assert told.snapshot()["state"] == "evaluating"
    told.tell(event(told.now, Phase.INPUT, Kind.BEGIN, key=2))
    rank = told.snapshot()
    assert (rank["state"], rank["open_phase"]["phase"]) == ("evaluating", "input")
    got = event(told.now, Phase.INPUT, Kind.END, key=2, value=1)
    told.tell(got + event(told.now, Phase.EVALUATION, Kind.END))
    told.train(1, input_ns=50 * MS, step_ns=50 * MS)
    assert told.snapshot()["state"] == "training"


def test_open_phase_says_how_long_it_has_lasted(told: Told) -> None:
    told.train(1, input_ns=50 * MS, step_ns=50 * MS)
    told.tell(event(told.now, Phase.CHECKPOINT, Kind.BEGIN), 4)
    assert told.snapshot()["open_phase"] == {"phase": "checkpoint", "since_s": pytest.approx(4.0)}


def test_paused_is_said_and_not_covered(told: Told) -> None:
    told.train(5, input_ns=50 * MS, step_ns=50 * MS)
    told.tell(event(told.now, Phase.HOST, Kind.POINT, value=1), 5)
    rank = told.snapshot()
    assert rank["paused"] is True
    assert rank["coverage"] == pytest.approx(0.5, abs=0.02)
    assert "open_phase" not in rank


def test_overhead_is_of_the_window(told: Told) -> None:
    for second in range(30):
        told.overhead_ns += 50 * MS if second < 15 else MS
        told.tell(b"")
    assert told.snapshot()["overhead"] == pytest.approx(0.001, rel=0.15)


def test_marks_are_shown_by_name(told: Told) -> None:
    told.state.phase_names[1030] = "loss"
    told.tell(event(told.now, 1030, Kind.POINT, value=7) * 3)
    assert told.snapshot()["marks"] == {"loss": {"count": 3, "last": 7}}


def test_unknown_ranks_have_no_number(told: Told) -> None:
    told.state.hello = dataclasses.replace(told.state.hello, rank=-1, local_rank=-1, world_size=0)
    assert not {"rank", "local_rank", "world_size"} & set(told.snapshot())


@pytest.mark.parametrize(("seen_after_s", "lasted_s"), [(3, 4.0), (None, 1.0)])
def test_a_killed_rank_keeps_the_phase_it_was_in_and_how_long_that_had_lasted(
    told: Told, seen_after_s: int | None, lasted_s: float,
) -> None:
    told.train(1, input_ns=50 * MS, step_ns=50 * MS)
    told.tell(event(told.now, Phase.COLLECTIVE, Kind.BEGIN))
    told.state.ending = "killed"
    told.state.dead_since_ns = None if seen_after_s is None else told.now + seen_after_s * S
    told.now += 60 * S  # it goes on being shown
    rank = told.snapshot()
    assert rank["state"] == "killed"
    assert rank["open_phase"] == {"phase": "collective", "since_s": pytest.approx(lasted_s)}


def test_a_rank_that_has_exited_is_in_no_phase(told: Told) -> None:
    told.train(1, input_ns=50 * MS, step_ns=50 * MS)
    told.state.ending = "exited"
    assert "open_phase" not in told.snapshot()


def test_gpus_and_the_ranks_on_them_know_each_other() -> None:
    told = [Told(number, pid=100 + number) for number in range(3)]
    for one in told:
        one.state.watched = True
    gpus = (
        GpuReading(0, "GPU-a", "SIMULATED", {"utilization": 0.5}, frozenset({100, 101, 7})),
        GpuReading(1, "GPU-b", "SIMULATED", {}, frozenset(), "GPU is lost"),
    )
    moment = Moment("node", NOW, 1_700_000_000.25)
    snapshot = build(moment, [one.state for one in told], gpus, {}, {}, lambda *_: [])
    assert snapshot["gpus"] == [
        {
            "index": 0, "uuid": "GPU-a", "name": "SIMULATED", "ranks": [0, 1], "rank_keys": ["r0", "r1"],
            "utilization": 0.5,
        },
        {
            "index": 1, "uuid": "GPU-b", "name": "SIMULATED", "ranks": [], "rank_keys": [],
            "error": "GPU is lost",
        },
    ]
    assert [rank["gpus"] for rank in snapshot["ranks"]] == [["GPU-a"], ["GPU-a"], []]
    assert snapshot["time"] == "2023-11-14T22:13:20.250Z"
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


def test_counts_beyond_reason_can_still_be_written(told: Told) -> None:
    told.state.timeline = None
    told.state.missing = 1 << 64
    assert encode_snapshot(build(Moment("n", NOW, 0.0), [told.state], (), {}, {}, lambda *_: []))


def test_ended_ranks_go_after_a_while_and_the_first_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "ENDED_MOST", 2)
    known = ranks.Ranks()
    for number, ending in enumerate(["killed", "exited", "killed", None]):
        state = Told(number).state
        state.ending, state.ended_ns = ending, NOW + number * S
        known.add(state)
    assert [s.hello.rank for s in known.expire(NOW + 5 * S)] == [0]
    assert [s.hello.rank for s in known.expire(NOW + 70 * S)] == [1]
    assert [s.hello.rank for s in known.expire(NOW + 700 * S)] == [2]
    assert [s.hello.rank for s in known] == [3]


def test_the_callbacks_that_took_most_of_the_window_are_named_and_counted(told: Told) -> None:
    told.state.key_names.update({key: f"Callback{key}.on_epoch_end" for key in range(1, 8)})
    told.tell(steps(told.now, 10, input_ns=0, step_ns=100 * MS))
    for _ in range(12):
        records = b""
        for key in range(1, 8):
            begin_ns = told.now + key * 100 * MS
            records += event(begin_ns, Phase.CALLBACK, Kind.BEGIN, key=key)
            # The checkpoint that it writes is no time of the callback's.
            records += event(begin_ns + key * MS, Phase.CHECKPOINT, Kind.BEGIN)
            records += event(begin_ns + (key + 5) * MS, Phase.CHECKPOINT, Kind.END)
            records += event(begin_ns + (key + 5) * MS, Phase.CALLBACK, Kind.END, key=key)
        told.tell(records)
    found = told.snapshot()["callbacks"]
    assert [called["name"] for called in found] == [f"Callback{key}.on_epoch_end" for key in (7, 6, 5, 4, 3)]
    assert found[0]["seconds"] == pytest.approx(0.07, rel=0.01)
    assert found[0]["share"] == pytest.approx(0.007, rel=0.1)
    assert found[0]["count"] == 10


def test_checkpoints_and_traces_of_a_rank_are_shown_once_there_are_any(told: Told) -> None:
    told.train(2, input_ns=0, step_ns=100 * MS)
    assert not {"checkpoints", "traces", "callbacks"} & set(told.snapshot())
    told.state.account.take(TraceIncident(NOW, "train", 1, 0.5, nested=False, retrace=False, changed=""))
    assert told.snapshot()["traces"]["last"] == {"function": "train", "ordinal": 1, "seconds": 0.5, "changed": ""}
