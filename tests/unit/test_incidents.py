"""Records of checkpoints and traces: on the wire, waiting, and added up."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from hpcsampler.collector.account import Account
from hpcsampler.protocol import incidents, messages
from hpcsampler.protocol.incidents import CheckpointIncident, TraceIncident
from hpcsampler.protocol.phases import Phase
from hpcsampler.sampler.incidents import Incidents
from tests.support.records import MS, Script

SAVED = CheckpointIncident(
    1, 1_000, "Model.save", "/m.keras", "keras", restored=False, background=False, blocked_s=0.5, background_s=None,
    complete_s=0.5, files=1, bytes=1000,
)
TRACED = TraceIncident(1_000, "train", 1, 0.25, nested=False, retrace=False, changed="")


def test_incidents_come_through_the_wire() -> None:
    message = messages.Incidents("r0", 3, [SAVED, replace(SAVED, files=None, bytes=None), TRACED])
    assert messages.decode(messages.encode(message)) == message


@pytest.mark.parametrize(
    "broken",
    [
        "text", {}, {"kind": "checkpoint"}, {**incidents.pack(TRACED), "kind": "other"},
        {**incidents.pack(TRACED), "kind": ["trace"]}, {**incidents.pack(TRACED), "ordinal": -1},
        {**incidents.pack(TRACED), "ordinal": 1 << 63}, {**incidents.pack(TRACED), "seconds": float("nan")},
        {**incidents.pack(TRACED), "seconds": 1}, {**incidents.pack(TRACED), "nested": 1},
        {**incidents.pack(TRACED), "function": "f" * 401}, {**incidents.pack(SAVED), "bytes": True},
        {**incidents.pack(SAVED), "blocked_s": float("inf")}, {**incidents.pack(SAVED), "blocked_s": None},
    ],
)
def test_what_is_not_exactly_an_incident_is_refused(broken: object) -> None:
    with pytest.raises(messages.ProtocolError) as refused:
        messages.decode(msgpack.packb([1, "incidents", "r0", 0, [broken]]))
    assert refused.value.reason == "field"


def test_incidents_that_nobody_takes_are_bounded_and_come_in_order() -> None:
    waiting = Incidents()
    for ordinal in range(1, 1001):
        waiting.add(replace(TRACED, ordinal=ordinal))
    first = waiting.take()
    assert [trace.ordinal for trace in first] == list(range(489, 489 + 64))
    waiting.put_back(first)
    assert waiting.take() == first
    waiting.put_back(first)
    for ordinal in range(1001, 1011):
        waiting.add(replace(TRACED, ordinal=ordinal))
    waiting.put_back([SAVED])  # all the room is taken by newer ones
    assert waiting.take()[0].ordinal == 499


def test_checkpoints_add_up_and_the_last_is_shown_with_its_bandwidths() -> None:
    account = Account()
    assert account.checkpoints(0) is None
    account.take(SAVED)
    account.take(replace(SAVED, ordinal=2, restored=True))
    begun = replace(SAVED, ordinal=3, background=True, complete_s=None, files=None, bytes=None)
    account.take(begun)
    shown = account.checkpoints(2_000_001_000)
    assert shown is not None
    assert shown["last"].get("background") is True
    assert not {"bytes", "background_s"} & set(shown["last"])
    account.take(replace(begun, background_s=1.0, complete_s=2.0, files=2, bytes=4000))
    shown = account.checkpoints(2_000_001_000)
    assert shown == {
        "count": 2, "seconds": 1.0, "bytes": 5000, "restored": 1, "restored_s": 0.5,
        "last": {
            "writer": "Model.save", "path": "/m.keras", "format": "keras", "restored": False, "blocked_s": 0.5,
            "age_s": 2.0, "files": 2, "bytes": 4000, "background": True, "background_s": 1.0,
            "apparent_bytes_per_s": 8000.0, "durable_bytes_per_s": 2000.0,
        },
    }


def stepping(begin_ms: int, end_ms: int, every_ms: int, script: Script) -> None:
    for at in range(begin_ms, end_ms, every_ms):
        script.begin(at, Phase.STEP).end(at + every_ms - 1, Phase.STEP, value=1)


def test_steps_that_a_write_in_the_background_slows_show_by_how_much() -> None:
    script = Script()
    stepping(0, 1000, 10, script)
    stepping(1000, 2000, 15, script)
    timeline = script.fold(2100)
    written = replace(
        SAVED, at_ns=script.start_ns + 1000 * MS, background=True, blocked_s=0.0, background_s=1.0, complete_s=1.0,
    )
    account = Account()
    account.take(written)
    account.rate(timeline)
    shown = account.checkpoints(script.start_ns)
    assert shown is not None
    assert shown["step_inflation"] == pytest.approx(0.5)
    few = Account()
    few.take(replace(written, background_s=0.03, complete_s=0.03))
    few.rate(timeline)
    shown = few.checkpoints(script.start_ns)
    assert shown is not None
    assert "step_inflation" not in shown


def test_traces_add_up_and_those_traced_most_often_again_are_named() -> None:
    account = Account()
    assert account.traces(0) is None
    account.take(TRACED)
    for function, times in (("train", 3), ("augment", 5), *((f"f{i}", 1) for i in range(6))):
        for i in range(times):
            account.take(replace(TRACED, function=function, ordinal=i + 2, retrace=True, changed=f"argument x: {i}"))
    account.take(replace(TRACED, function="inner", nested=True))
    shown = account.traces(TRACED.at_ns + 2_000_000_000)
    assert shown is not None
    assert (shown["count"], shown["retraces"], shown["seconds"]) == (16, 14, 0.25 * 15)
    assert shown["worst"][:2] == [
        {"function": "augment", "count": 5, "changed": "argument x: 4", "age_s": 2.0},
        {"function": "train", "count": 3, "changed": "argument x: 2", "age_s": 2.0},
    ]
    assert len(shown["worst"]) == 5
    assert shown["last"]["function"] == "inner"
    account.take(replace(TRACED, function="f5", at_ns=TRACED.at_ns + 1, retrace=True, changed="argument x: 9"))
    account.take(replace(TRACED, function="newest", at_ns=TRACED.at_ns + 2, retrace=True, changed="argument x: 9"))
    shown = account.traces(TRACED.at_ns)
    assert shown is not None
    assert [one["function"] for one in shown["worst"]] == ["augment", "train", "f5", "f0", "newest"]


def test_a_function_that_is_made_anew_in_a_loop_is_named() -> None:
    account = Account()
    for number in range(10):
        account.take(replace(TRACED, function="step", ordinal=1, retrace=False, changed="", at_ns=number))
        account.take(replace(TRACED, function="inner", ordinal=1, retrace=False, changed="", nested=True))
        if number < 4:
            account.take(replace(TRACED, function="of_each_model", ordinal=1, retrace=False, changed=""))
    shown = account.traces(9)
    assert shown is not None
    assert shown["worst"] == [
        {"function": "step", "count": 9, "changed": "a new tf.function of that name each time", "age_s": 0.0},
    ]
    assert shown["retraces"] == 0
