"""Findings that would be wrong: a sentence that its numbers don't support, advice that is followed already."""

from __future__ import annotations

from typing import Any

import pytest

from hpcsampler.collector.advice import input_advice
from hpcsampler.collector.findings import find
from tests.unit.test_findings import DAY_S, codes, phases, quiet


def said(code: str, host: dict[str, Any] | None = None, mtbf_s: float = DAY_S, **changes: Any) -> str:
    """Text and advice of a finding; empty if there is none."""
    found = [finding for finding in find([quiet(**changes)], host or {}, mtbf_s) if finding["code"] == code]
    return f"{found[0]['text']} | {found[0]['advice']}" if found else ""


def advice(*stages: dict[str, Any], starved: bool = False) -> str:
    """Advice for these stages, sources first; the one with `bottleneck` limits them."""
    slowest = next((stage for stage in stages if stage.get("bottleneck")), None)
    return input_advice(slowest, stages, starved=starved, split=None)


def test_the_command_that_shows_where_it_hangs_works() -> None:
    hung: dict[str, Any] = {"state": "stalled", "stalled_s": 42.0, "open_phase": {"phase": "step", "since_s": 41.0}}
    here, other = quiet(job="a b", **hung), quiet(job="c", rank_key="other")
    assert said("hung", **hung).endswith("hpcsampler stacks 0")
    assert find([here, {**other, "state": "exited"}], {}, DAY_S)[0]["advice"].endswith("hpcsampler stacks 0")
    assert find([here, other], {}, DAY_S)[0]["advice"].endswith("hpcsampler stacks 0 --job 'a b'")
    assert said("hung", rank=None, **hung).endswith("py-spy dump --pid 4700")


def test_a_rank_that_hangs_is_not_told_to_make_its_steps_cheaper() -> None:
    hung: dict[str, Any] = {"state": "stalled", "stalled_s": 42.0, "open_phase": {"phase": "host", "since_s": 41.0}}
    assert set(codes(quiet(phases={"host": 1.0}, **hung))) == {"hung"}


def test_a_rank_that_hangs_and_is_silent_is_said_to_hang() -> None:
    """Stopped, or in C code that holds the GIL: what it is in now is not known."""
    hung: dict[str, Any] = {"state": "stalled", "stalled_s": 42.0, "open_phase": {"phase": "host", "since_s": 2.0}}
    assert set(codes(quiet(phases=phases(input=0.5), age_s=40.0, **hung))) == {"hung"}
    text = said("hung", age_s=40.0, **hung)
    assert "no step seen for 42 s: it was in host when it last said something, 40 s ago" in text


# ---- CPUs ------------------------------------------------------------------------------------------------------------


def waiting(delay: float) -> str:
    slow = [{"stage": "Map", "name": "decode", "ceiling_per_s": 12.0, "bottleneck": True}, {"stage": "Prefetch"}]
    return said(
        "input-bound", {"cpu_count": 2, "cpu_percent": 100.0}, phases=phases(input=0.9), pipeline=slow,
        cpu={"run_delay": delay, "percent": 27.0},
    )


def test_a_stage_that_waits_beside_busy_cpus_is_not_told_to_get_cores() -> None:
    assert "AUTOTUNE" in waiting(0.3)
    assert "more cores" not in waiting(0.3)
    assert "more cores" in waiting(0.6)


def test_who_uses_the_cpus_is_said_and_what_to_do_follows_from_it() -> None:
    busy = {"cpu_count": 4, "cpu_percent": 100.0}
    text = said("cpu-starved", busy, cpu={"run_delay": 0.4, "percent": 30.0})
    assert "it uses 0.3 of them, others 3.7 | look who else is on the node" in text
    assert "it uses 3.9 of them, others 0.1 | give the rank more cores" in said(
        "cpu-starved", busy, cpu={"run_delay": 0.4, "percent": 390.0},
    )


# ---- network, stragglers ---------------------------------------------------------------------------------------------


def test_waiting_for_a_late_rank_is_not_the_networks() -> None:
    waits = {"wait_share": 0.29, "network_share": 0.01, "blamed_on_rank": 3}
    assert codes(quiet(phases=phases(collective=0.3), straggler=waits)) == {"straggler": "high"}


def test_a_training_that_waits_inside_its_steps_is_not_as_fast_as_its_compute() -> None:
    assert "productive" not in codes(quiet(phases={"step": 1.0}, straggler={"wait_share": 0.2, "blamed_on_rank": 3}))
    assert "productive" not in codes(quiet(phases={"step": 1.0}, cpu={"run_delay": 1.0}))
    assert "productive" not in codes(quiet(phases={"step": 1.0}), host={"cgroup": {"throttled": 0.3}})


def test_a_training_that_stands_still_is_not_as_fast_as_its_compute() -> None:
    stalled = {"state": "stalled", "stalled_s": 60.0, "open_phase": {"phase": "step", "since_s": 60.0}}
    assert codes(quiet(phases={"step": 1.0}, **stalled)) == {"hung": "high"}


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def checkpoints(count: int, seconds: float, whole_s: float, restored_s: float = 0.0, **last: Any) -> dict[str, Any]:
    spent = seconds + restored_s
    return {
        "totals_s": {"step": whole_s - spent, "checkpoint": spent},
        "checkpoints": {"count": count, "seconds": seconds, "restored_s": restored_s, "last": last},
    }


def test_what_was_restored_is_not_what_writing_costs() -> None:
    assert said("checkpoint-bound", **checkpoints(10, 1.0, 1000.0, restored_s=100.0)) == ""
    assert "10 of 5 s each" in said("checkpoint-bound", **checkpoints(10, 50.0, 1000.0, restored_s=100.0))


def test_one_checkpoint_says_nothing_of_how_often() -> None:
    assert said("checkpoint-bound", **checkpoints(1, 10.0, 100.0)) == ""


def test_the_interval_that_is_advised_is_compared_with_one_of_the_same_kind() -> None:
    """Daly's interval is work between two checkpoints; ours is from one to the next."""
    text = said("checkpoint-bound", mtbf_s=36.0, **checkpoints(40, 400.0, 1000.0))  # 10 s each, one in 25 s, best 31 s
    assert "less often" in text
    assert "to save every 31 s" in text
    assert "now it is every 25 s" in text


def test_an_absurd_time_between_failures_gives_sentences_that_can_be_read() -> None:
    assert "a failure every 1000000 h" in said("checkpoint-bound", mtbf_s=3.6e9, **checkpoints(10, 50.0, 1000.0))
    assert "less often" in said("checkpoint-bound", mtbf_s=36.0, **checkpoints(10, 800.0, 1000.0))


def test_who_saves_in_the_background_or_weights_only_is_not_told_to() -> None:
    text = said("checkpoint-bound", **checkpoints(10, 50.0, 1000.0, background=True))
    assert "in the background" not in text
    often = checkpoints(2, 6000.0, 60000.0, format="keras weights")
    assert "less often" not in said("checkpoint-bound", **often)
    assert "save_weights_only" not in said("checkpoint-bound", **often)


def test_when_to_save_is_said_in_steps_and_as_its_writer_takes_it() -> None:
    written = checkpoints(40, 400.0, 1000.0, writer="ModelCheckpoint")
    text = said("checkpoint-bound", steps_per_s=10.0, **written)
    assert " steps at this rate, by save_freq=" in text
    assert "enable_async" not in text


# ---- retraces --------------------------------------------------------------------------------------------------------


def traces(*worst: dict[str, Any]) -> dict[str, Any]:
    return {"count": 9, "retraces": sum(one["count"] for one in worst), "worst": list(worst)}


def test_a_retrace_of_long_ago_is_not_what_is_traced_now() -> None:
    old = {"function": "f", "count": 9, "changed": "argument n: 3 → 4", "age_s": 600.0}
    new = {"function": "g", "count": 2, "changed": "argument x: float32[8] → float32[7]", "age_s": 2.0}
    assert said("retracing", phases=phases(compile=0.5), traces=traces(old)) == ""
    assert "g was traced again" in said("retracing", phases=phases(compile=0.5), traces=traces(old, new))


@pytest.mark.parametrize(
    ("changed", "told", "untold"),
    [
        ("argument x: float32[8,4] → float32[7,4]", "drop_remainder", "Python numbers"),
        ("argument n: 3 → 4", "tensor", "drop_remainder"),
        ("argument x: float32[8] → int32[8]", "dtype", "drop_remainder"),
        ("argument model: another Sequential object", "same object", "drop_remainder"),
        ("argument training: newly given", "same arguments", "drop_remainder"),
        ("a new tf.function of that name each time", "outside of the loop", "drop_remainder"),
    ],
)
def test_the_advice_is_for_what_changed(changed: str, told: str, untold: str) -> None:
    one = {"function": "f", "count": 3, "changed": changed, "age_s": 1.0}
    text = said("retracing", phases=phases(compile=0.5), traces=traces(one)).partition("|")[2]
    assert told in text
    assert untold not in text


# ---- phases and callbacks --------------------------------------------------------------------------------------------


def test_a_phase_that_is_productive_is_no_stall() -> None:
    assert codes(quiet(phases={"user": 0.6, "step": 0.4}, productive_user=0.6)) == {}
    assert "20 %" in said("user-phase", phases={"user": 0.6, "step": 0.4}, productive_user=0.4)


def test_the_callback_that_takes_the_time_is_named_and_so_is_the_phase() -> None:
    slow = [{"name": "Plot.on_epoch_end", "seconds": 2.0, "share": 0.2, "count": 2}]
    text = said("callback-bound", phases=phases(callback=0.21), callbacks=slow)
    assert "Plot.on_epoch_end" in text
    assert "per batch" not in text
    cause = {"phase": "user", "detail": "augment", "share": 0.3}
    assert "augment" in said("user-phase", phases=phases(user=0.3), top_cause=cause)


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_of_few_steps_none_is_one_in_a_hundred() -> None:
    uneven = {"p50": 100.0, "p95": 110.0, "p99": 900.0}
    assert said("uneven-steps", step_ms=uneven, steps_per_s=2.0) == ""
    assert "one step in a hundred" in said("uneven-steps", step_ms=uneven, steps_per_s=20.0)


def test_one_long_pause_is_not_python_between_short_steps() -> None:
    """Steps of 2 ms at 100 a second are a fifth of the time: what else is Python is elsewhere."""
    changes = {"phases": phases(host=0.8), "step_ms": {"p50": 2.0, "p95": 2.1, "p99": 2.2}, "steps_per_s": 100.0}
    assert set(codes(quiet(**changes))) == {"host-bound"}
    assert set(codes(quiet(**{**changes, "steps_per_s": 480.0}))) == {"short-steps"}


# ---- the input pipeline ----------------------------------------------------------------------------------------------

MAP = {"stage": "ParallelMap", "name": "decode", "parallelism": 2, "ceiling_per_s": 9.0, "bottleneck": True}


def test_what_is_tuned_by_tfdata_is_not_to_be_raised_by_hand() -> None:
    assert "raise num_parallel_calls" in advice({**MAP, "autotuned": False}, {"stage": "Prefetch"})
    assert "raise num_parallel_calls" not in advice({**MAP, "autotuned": True}, {"stage": "Prefetch"})
    interleave = {"stage": "ParallelInterleave", "parallelism": 4, "ceiling_per_s": 9.0, "bottleneck": True}
    assert "num_parallel_calls" not in advice({**interleave, "autotuned": True}, {"stage": "Prefetch"})


def test_where_there_is_a_prefetch_behind_the_slow_stage_none_is_advised() -> None:
    slow = {"stage": "Map", "ceiling_per_s": 9.0, "bottleneck": True}
    assert "prefetch" not in advice(slow, {"stage": "Prefetch"})
    assert "prefetch" in advice({"stage": "Prefetch"}, slow)
    assert "prefetch" not in advice({"stage": "Range"}, {"stage": "Map"}, {"stage": "Prefetch"})  # no bottleneck
    assert "prefetch" in advice({"stage": "Range"}, {"stage": "Map"})


def test_a_parallel_stage_makes_elements_ahead() -> None:
    assert "nothing is made ahead" not in advice({**MAP, "autotuned": False})


def test_a_pipeline_whose_stages_are_known_is_not_told_what_it_has() -> None:
    """No ceiling explains the waits: a stage sleeps, or what is waited for is outside of tf.data."""
    known = ({"stage": "TFRecord"}, {"stage": "Cache"}, {**MAP, "bottleneck": False}, {"stage": "Prefetch"})
    text = advice(*known)
    assert "prefetch" not in text
    assert "num_parallel_calls" not in text
    assert "cache()" not in text


def test_a_reader_inside_an_interleave_is_not_told_to_interleave() -> None:
    reader = {"stage": "TFRecord", "name": "in read", "ceiling_per_s": 9.0, "bottleneck": True}
    assert "interleave(" not in advice(reader, {"stage": "ParallelInterleave"}, {"stage": "Prefetch"})
    assert "interleave(" in advice({**reader, "name": ""}, {"stage": "Prefetch"})


def test_who_has_a_cache_is_not_told_to_cache() -> None:
    tuned = {**MAP, "autotuned": False}
    assert "cache()" in advice({"stage": "Cache"}, tuned, {"stage": "Prefetch"})  # after the map, not before it
    assert "cache()" not in advice(tuned, {"stage": "Cache"}, {"stage": "Prefetch"})
    assert "cache()" not in advice(tuned, {"stage": "Cache"}, {"stage": "Prefetch"}, starved=True)
    assert "cache()" not in advice({"stage": "TFRecord", "ceiling_per_s": 9.0, "bottleneck": True}, {"stage": "Cache"},
                                   {"stage": "Prefetch"})


def test_a_shape_that_xla_compiles_for_is_not_told_to_be_hidden() -> None:
    traces = {"count": 4, "retraces": 3, "worst": [
        {"function": "f", "count": 3, "changed": "argument x: float32[8,4] → float32[7,4]", "age_s": 1.0}]}
    plain = said("retracing", phases=phases(compile=0.5), traces=traces)
    assert "input_signature=[…] with None" in plain
    cause = {"phase": "compile", "detail": "XLA f", "share": 0.5}
    by_xla = said("retracing", phases=phases(compile=0.5), traces=traces, top_cause=cause)
    assert "input_signature=[…] with None" not in by_xla
    assert "drop_remainder" in by_xla


def test_of_stages_that_are_not_counted_yet_nothing_is_concluded() -> None:
    assert "has not counted yet" in advice({"stage": "ParallelMap"}, {"stage": "Prefetch"})
    assert "no stage takes as long" in advice({"stage": "ParallelMap", "ceiling_per_s": 900.0}, {"stage": "Prefetch"})


def test_slow_steps_that_are_explained_are_no_finding_of_their_own() -> None:
    uneven = {"step_ms": {"p50": 10.0, "p95": 20.0, "p99": 600.0}, "steps_per_s": 50.0}
    assert "uneven-steps" in codes(quiet(phases=phases(compile=0.01), **uneven))
    assert "uneven-steps" not in codes(quiet(phases=phases(compile=0.2), **uneven))
