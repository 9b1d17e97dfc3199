"""Every phase of the table takes the share that was injected, alone and among others, and nothing counts twice."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hpcsampler.protocol.incidents import CheckpointIncident, TraceIncident
from hpcsampler.protocol.phases import Phase
from tests.support.capture import Capture, RankCapture
from tests.support.environment import environment
from tests.support.versions import ORBAX

WORKLOAD = Path(__file__).parent / "workloads" / "phases.py"
CASES = {
    "starting": {"startup", "compile"},
    "tf_checkpoint": {"checkpoint"},
    "checkpoint_in_background": {"checkpoint", "step"},
    "checkpoint_manager": {"checkpoint"},
    "keras_saving": {"checkpoint"},
    "keras_export_and_older_format": {"checkpoint"},
    "orbax": {"checkpoint"},
    "saved_model": {"checkpoint"},
    "tracing": {"compile"},
    "collecting": {"gc"},
    "reading_results": {"device"},
    "copying": {"transfer", "host"},
    "callbacks": {"callback"},
    "evaluating": {"evaluation"},
    "checkpoint_in_callback": {"checkpoint", "callback"},
    "device_in_callback": {"device", "callback"},
    "gc_in_step": {"gc", "step"},
    "compile_in_step": {"compile", "step"},
    "compiling_for_xla": {"compile", "input", "step"},
    "everything": {"input", "user", "gc", "step", "compile", "checkpoint", "host"},
}
"""What each case injects; what is not here, it injects nothing of."""
if not ORBAX:
    del CASES["orbax"]
RECORDED = ("retracing", "first_call_makes_variables", "restored_by_callback")
"""Cases of which only the records are looked at."""
OWN = {Phase.HOST, Phase.STEP, Phase.INPUT}
"""What `fit` takes by itself."""


@functools.cache
def outcome() -> dict[str, tuple[RankCapture, dict[str, Any]]]:
    """Each case: what its rank sent, and what the workload says is true."""
    cases = (*CASES, *RECORDED)
    with tempfile.TemporaryDirectory() as directory, Capture(Path(directory)) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD, *cases], env=environment(Path(directory)), stdout=subprocess.PIPE, timeout=400,
            check=True,
        )
        capture.wait_for(lambda: len([rank for rank in capture.ranks.values() if rank.bye]) == len(cases))
        ranks = sorted(capture.ranks.values(), key=lambda rank: rank.hello.attach_ns if rank.hello else 0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["case"]: (rank, line) for rank, line in zip(ranks, lines, strict=True)}


@pytest.mark.timeout(600)  # the first case runs them all
@pytest.mark.parametrize("case", CASES)
def test_each_phase_has_the_share_that_was_injected(case: str) -> None:
    rank, line = outcome()[case]
    span = rank.between(*line["bounds_ns"])
    assert sum(span.ns) == span.wall_ns
    assert set(line["told_s"]) == CASES[case]
    assert min(line["told_s"].values()) > 0.09, "too little to be seen"
    for phase in Phase:
        share = span.share(phase)
        if phase.label in line["told_s"]:
            assert share == pytest.approx(line["told_s"][phase.label] / (span.wall_ns / 1e9), abs=0.02), phase.label
        elif phase not in OWN:
            assert share < 0.02, phase.label


def test_what_xla_compiles_is_named() -> None:
    details = details_s("compiling_for_xla")
    assert details[Phase.COMPILE, "XLA many"] > 0.05
    assert details[Phase.COMPILE, "XLA around"] > 0.05


def traces(case: str) -> list[TraceIncident]:
    return [incident for incident in outcome()[case][0].incidents if isinstance(incident, TraceIncident)]


def checkpoints(case: str) -> list[CheckpointIncident]:
    """Those that were measured, in order."""
    rank, line = outcome()[case]
    found = [incident for incident in rank.incidents if isinstance(incident, CheckpointIncident)]
    return [incident for incident in found if incident.at_ns > line["bounds_ns"][0]]


def details_s(case: str) -> dict[tuple[int, str], float]:
    """Seconds by phase and by what exactly."""
    rank, _ = outcome()[case]
    assert rank.names is not None
    return {
        (phase, rank.names.keys.get(key, "")): ns / 1e9 for (phase, key), ns in rank.timeline().details_ns().items()
    }


def test_each_checkpoint_is_recorded_once_with_its_writer_and_size() -> None:
    found = checkpoints("tf_checkpoint") + checkpoints("checkpoint_manager") + checkpoints("keras_saving")
    assert [(made.writer, made.format, made.restored) for made in found] == [
        ("Checkpoint.save", "tensorflow checkpoint", False), ("Checkpoint.write", "tensorflow checkpoint", False),
        ("Checkpoint.read", "tensorflow checkpoint", True), ("Checkpoint.restore", "tensorflow checkpoint", True),
        *[("CheckpointManager.save", "tensorflow checkpoint", False)] * 4,
        ("CheckpointManager.restore_or_initialize", "tensorflow checkpoint", True),
        ("Model.save", "keras", False), ("Model.save_weights", "keras weights", False),
        ("Model.load_weights", "keras weights", True), ("keras save_model", "keras", False),
    ]
    assert all((made.files, made.background) == (1 if "keras" in made.format else 2, False) for made in found)
    assert all(made.bytes is not None and made.bytes > 200 and made.blocked_s >= 0.1 for made in found)
    assert [(made.writer, made.format, made.files) for made in checkpoints("keras_export_and_older_format")] == [
        ("Model.export", "saved model", 4), ("keras save_model", "hdf5", 1), ("keras load_model", "hdf5", 1),
    ]
    assert [(made.format, made.files) for made in checkpoints("saved_model")] == [("saved model", 4)]


@pytest.mark.skipif(not ORBAX, reason="this Keras has no OrbaxCheckpoint")
def test_what_orbax_writes_in_the_background_is_recorded_without_a_size() -> None:
    (made,) = checkpoints("orbax")
    assert (made.writer, made.format, made.background, made.bytes) == ("OrbaxCheckpoint", "orbax", True, None)
    assert made.path.endswith("/7")


def test_a_checkpoint_that_a_callback_writes_is_that_callbacks() -> None:
    names = [made.writer for made in checkpoints("checkpoint_in_callback")]
    assert names == ["Model.save", "ModelCheckpoint", "BackupAndRestore"] * 2


def test_what_a_callback_restores_is_that_callbacks() -> None:
    found = [(made.writer, made.restored) for made in checkpoints("restored_by_callback")]
    assert found == [("BackupAndRestore", False), ("BackupAndRestore", True), ("BackupAndRestore", False)]


def test_a_checkpoint_in_the_background_tells_what_blocked_and_when_it_was_written() -> None:
    found = checkpoints("checkpoint_in_background")
    begun = {made.ordinal: made for made in found if made.background_s is None}
    done = [made for made in found if made.background_s is not None]
    assert len(done) == 3
    assert {made.ordinal for made in done} >= set(begun)
    assert all(made.background and made.files == 2 and made.bytes for made in done)
    first, second, third = done
    assert all(made.background_s is not None and made.background_s >= 0.4 for made in done)
    assert first.complete_s is not None
    assert second.complete_s is not None
    assert second.at_ns / 1e9 + second.blocked_s > first.at_ns / 1e9 + first.complete_s, "it had to wait for the first"
    assert second.complete_s > second.blocked_s + 0.35
    assert third.blocked_s < 0.4, "none is being written, and what copies the variables is traced already"


def test_a_retrace_says_which_argument_changed() -> None:
    assert [(trace.ordinal, trace.changed) for trace in traces("retracing")] == list(enumerate([
        "", "argument x: float32[8,4] → float32[9,4]", "argument x: float32[9,4] → int32[8,4]",
        "argument x: int32[8,4] → float32[8]", "argument y: 3 → 4", "argument y: 4 → Thing object",
        "argument y: another Thing object", "argument x: float32[8] → tuple of 2",
        "argument x: tuple of 2 → tuple of 3", "argument x: tuple of 3 → dict of 1 ['a']",
        "argument x['a']: float32[8,4] → float32[]",
    ], 1))


def test_the_second_trace_of_a_first_call_that_makes_variables_is_no_retrace() -> None:
    found = [trace for trace in traces("first_call_makes_variables") if trace.function == "function"]
    assert [(trace.ordinal, trace.retrace) for trace in found] == [(1, False), (2, False)]


def test_a_trace_within_another_is_told_as_such() -> None:
    found = traces("tracing")
    assert {(trace.function, trace.nested) for trace in found} == {("inner", True), ("outer", False)}
    outermost = sum(trace.seconds for trace in found if not trace.nested)
    assert outermost == pytest.approx(outcome()["tracing"][1]["told_s"]["compile"], rel=0.1)


def test_callbacks_functions_and_generations_have_names() -> None:
    called = details_s("callbacks")
    assert called[Phase.CALLBACK, "Sleepy.on_epoch_end"] == pytest.approx(0.2, rel=0.25)
    assert called[Phase.CALLBACK, "Sleepy.on_train_batch_begin"] == pytest.approx(0.2, rel=0.25)
    assert called[Phase.CALLBACK, "draw() on_epoch_end"] == pytest.approx(0.2, rel=0.25)
    assert details_s("checkpoint_in_callback")[Phase.CALLBACK, "Saver.on_epoch_end"] == pytest.approx(0.2, rel=0.25)
    assert details_s("collecting")[Phase.GC, "generation 1"] == pytest.approx(0.1, rel=0.25)
    assert details_s("compile_in_step")[Phase.COMPILE, "step"] > 0.4
