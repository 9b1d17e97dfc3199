"""From what the daemon knows to the snapshot that viewers read. Pure: nothing is measured or changed here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, TypeAlias

from hpcsampler.ext._timeline import UNCOVERED, USER_PRODUCTIVE
from hpcsampler.protocol.phases import FIRST_USER_PHASE, PRODUCTIVE_PHASES, Phase
from hpcsampler.protocol.snapshot import SNAPSHOT_SCHEMA, WINDOW_S, GpuSnapshot, RankSnapshot, Snapshot

from .pipeline import PIPELINE_S, bottleneck, full_name, input_split
from .stall import stalled_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hpcsampler.ext._timeline import Timeline
    from hpcsampler.protocol.messages import Hello
    from hpcsampler.protocol.snapshot import CallbackTime, DaemonSnapshot, Finding, HostSnapshot, State, TopCause

    from .gpu import GpuReading
    from .ranks import RankState

LEAST_CAUSE: Final = 0.01
"""A stall of a smaller share is no cause worth a name."""
CALLBACKS_MOST: Final = 5
_PHASES: Final = tuple((int(phase), phase.label) for phase in Phase)
"""Plain numbers and texts: enums would cost more than all else here."""
_USER: Final = Phase.USER.label
_LABELS: Final = {**dict(_PHASES), USER_PRODUCTIVE: _USER}
"""Names by category of a timeline."""
_PRODUCTIVE: Final = (*(int(phase) for phase in sorted(PRODUCTIVE_PHASES)), USER_PRODUCTIVE)
_STALLS: Final = tuple(category for category in _LABELS if category not in _PRODUCTIVE)
_MOST: Final = (1 << 63) - 1
"""Largest count in a snapshot: what forged ordinals add up to need not be written."""


Details: TypeAlias = "Mapping[tuple[int, int], int]"
"""Nanoseconds by (phase on the wire, key)."""
Judge: TypeAlias = "Callable[[Sequence[RankSnapshot], HostSnapshot], list[Finding]]"
"""From all ranks and their node to findings."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where a snapshot is taken."""

    node: str
    monotonic_ns: int
    realtime_s: float


def build(
    moment: Moment,
    ranks: Collection[RankState],
    gpus: Sequence[GpuReading],
    host: HostSnapshot,
    daemon: DaemonSnapshot,
    judge: Judge,
) -> Snapshot:
    """Build the whole snapshot. `judge` says what its numbers mean."""
    by_pid: dict[int, list[RankState]] = {}
    for state in ranks:
        if state.watched and state.ending is None:
            by_pid.setdefault(state.hello.pid, []).append(state)
    owners = {gpu.index: [s for pid in gpu.pids for s in by_pid.get(pid, ())] for gpu in gpus}
    gpus_of: dict[str, list[str]] = {}
    for gpu in gpus:
        for state in owners[gpu.index]:
            gpus_of.setdefault(state.hello.rank_key, []).append(gpu.uuid)
    told = [rank_snapshot(state, moment.monotonic_ns, gpus_of.get(state.hello.rank_key, [])) for state in ranks]
    when = datetime.fromtimestamp(moment.realtime_s, timezone.utc)
    return {
        "schema": SNAPSHOT_SCHEMA,
        "node": moment.node,
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "monotonic_ns": moment.monotonic_ns,
        "window_s": WINDOW_S,
        "ranks": told,
        "gpus": [_gpu_snapshot(gpu, owners[gpu.index]) for gpu in gpus],
        "host": host,
        "findings": judge(told, host),
        "daemon": daemon,
    }


def rank_snapshot(state: RankState, now_ns: int, gpus: list[str]) -> RankSnapshot:
    """Build one rank's part; `gpus` are the uuids of those that its process uses."""
    hello = state.hello
    timeline = state.timeline
    found: RankSnapshot = {
        "rank_key": hello.rank_key,
        "job": hello.job,
        "pid": hello.pid,
        "framework": hello.framework,
        "program": hello.program,
        "state": rank_state(state, now_ns),
        "phases": {},
        "totals_s": {},
        "age_s": max(0.0, (now_ns - state.newest_ns) / 1e9),
        "coverage": 0.0,
        "events": state.folded,
        "dropped": min(state.dropped, _MOST),
        "gpus": gpus,
        "notes": hello.notes,
    }
    _add_place(found, hello)
    if state.cpu is not None and state.ending is None:
        found["cpu"] = state.cpu
    if state.run_delay is not None and state.ending is None:
        found["cpu"] = {**found.get("cpu", {}), "run_delay": state.run_delay}
    if state.straggler is not None and state.ending is None:
        found["straggler"] = state.straggler
    if (still := still_s(state, now_ns)) is not None:
        found["stalled_s"] = still
    if timeline is not None:
        _add_timeline(found, state, timeline)
    if (checkpoints := state.account.checkpoints(now_ns)) is not None:
        found["checkpoints"] = checkpoints
    if (traces := state.account.traces(now_ns)) is not None:
        found["traces"] = traces
    return found


def _add_place(found: RankSnapshot, hello: Hello) -> None:
    if hello.rank >= 0:
        found["rank"] = hello.rank
    if hello.local_rank >= 0:
        found["local_rank"] = hello.local_rank
    if hello.world_size > 0:
        found["world_size"] = hello.world_size


def rank_state(state: RankState, now_ns: int) -> State:
    """Say what a rank is about."""
    if state.ending is not None:
        return state.ending
    if state.timeline is None or not state.timeline.started:
        return "starting"
    if still_s(state, now_ns) is not None:
        return "stalled"
    return "evaluating" if state.evaluating else "training"


def still_s(state: RankState, now_ns: int) -> float | None:
    """For how long a rank has made no step, in seconds, if it has stalled."""
    timeline = state.timeline
    if timeline is None or timeline.progress_ns == 0 or state.ending is not None:
        return None
    return stalled_s(
        without_step_s=(now_ns - timeline.progress_ns) / 1e9,
        usual_step_s=state.usual_step_s,
        category=timeline.open_phase()[0],
    )


def _add_timeline(found: RankSnapshot, state: RankState, timeline: Timeline) -> None:
    _add_since_attach(found, state, timeline)
    _add_window(found, state, timeline)
    category, _, _, since_ns = timeline.open_phase()
    if category != UNCOVERED and state.ending != "exited":
        until_ns = timeline.now_ns
        if state.ending == "killed" and state.dead_since_ns is not None:
            # What it was killed in was open until then, not only until its last message.
            until_ns = max(until_ns, state.dead_since_ns)
        found["open_phase"] = {"phase": _LABELS[category], "since_s": (until_ns - since_ns) / 1e9}
    if timeline.paused:
        found["paused"] = True


def _add_since_attach(found: RankSnapshot, state: RankState, timeline: Timeline) -> None:
    if state.known_ns is None:
        found["step"] = timeline.steps
        found["evaluation_steps"] = timeline.evaluation_steps
    else:
        found["known_since_s"] = (timeline.now_ns - state.known_ns) / 1e9
        found["earlier"] = min(state.earlier, _MOST)
    totals_ns = timeline.totals_ns()
    phases_ns = by_phase(totals_ns)
    found["totals_s"] = {label: ns / 1e9 for label, ns in phases_ns.items()}
    if covered_ns := sum(phases_ns.values()):
        found["goodput"] = sum(totals_ns[category] for category in _PRODUCTIVE) / covered_ns
    if marks := timeline.marks():
        found["marks"] = {
            state.phase_names.get(key, f"mark {key}"): {"count": count, "last": last}
            for key, (count, last) in marks.items()
        }


def _add_window(found: RankSnapshot, state: RankState, timeline: Timeline) -> None:
    window_ns, steps, _ = timeline.window(WINDOW_S)
    phases_ns = by_phase(window_ns)
    covered_ns = sum(phases_ns.values())
    if covered_ns:
        found["phases"] = {label: ns / covered_ns for label, ns in phases_ns.items()}
        if window_ns[USER_PRODUCTIVE]:
            found["productive_user"] = window_ns[USER_PRODUCTIVE] / covered_ns
        found["coverage"] = covered_ns / (covered_ns + window_ns[UNCOVERED])
    # Until the first step there is no rate to dilute.
    stepping_ns = covered_ns - window_ns[Phase.STARTUP]
    if timeline.started and stepping_ns > 0:
        found["steps_per_s"] = steps / (stepping_ns / 1e9)
    if state.step_ms is not None:
        p50, p95, p99 = state.step_ms
        found["step_ms"] = {"p50": p50, "p95": p95, "p99": p99}
    grown_ns = _grown_ns(state, timeline)
    if (cause := top_cause(state, window_ns, covered_ns, grown_ns)) is not None:
        found["top_cause"] = cause
    _add_pipeline(found, state, timeline.now_ns, grown_ns)
    before = state.checkpoints[0]
    if timeline.now_ns > before.at_ns:
        found["overhead"] = (state.overhead_ns - before.overhead_ns) / (timeline.now_ns - before.at_ns)
    if called := callbacks(state, timeline, covered_ns, grown_ns):
        found["callbacks"] = called


def _grown_ns(state: RankState, timeline: Timeline) -> Details:
    """What each detail had of the window."""
    before = state.checkpoints[0].details_ns
    return {detail: ns - before.get(detail, 0) for detail, ns in timeline.details_ns().items()}


def _add_pipeline(found: RankSnapshot, state: RankState, now_ns: int, grown_ns: Details) -> None:
    live = state.pipeline
    if live is None or not live.message.stages or now_ns - live.came_ns > PIPELINE_S * 1e9:
        return
    pipeline = live.message
    share = found["phases"].get(Phase.INPUT.label, 0.0)
    slowest = bottleneck(pipeline, share)
    # Waits for other iterators say nothing about these stages.
    key = _most_waited(grown_ns, Phase.INPUT)[1]
    if not pipeline.alone and key not in pipeline.keys:
        found["pipeline"] = live.shown(None if key else slowest)
        if key:
            found["input_elsewhere"] = True
        return
    found["pipeline"] = live.shown(slowest)
    if (split := input_split(pipeline, slowest, share, state.cpu)) is not None:
        found["input_split"] = split
    cause = found.get("top_cause")
    if cause is not None and slowest is not None and cause["phase"] == Phase.INPUT.label:
        cause["detail"] = full_name(pipeline.stages[slowest])


def by_phase(ns: Sequence[int]) -> dict[str, int]:
    """Nanoseconds of each phase that had any, from those by category of a timeline."""
    found = {label: spent for category, label in _PHASES if (spent := ns[category])}
    if spent := ns[USER_PRODUCTIVE]:
        found[_USER] = found.get(_USER, 0) + spent
    return found


def top_cause(
    state: RankState, window_ns: Sequence[int], covered_ns: int, grown_ns: Details,
) -> TopCause | None:
    """Find the largest stall of a window, and what exactly most of it went to: an iterator, a function, a callback."""
    # The user's phases here are those that count as stalls: productive ones have a category of their own.
    category = max(_STALLS, key=window_ns.__getitem__)
    if window_ns[category] < LEAST_CAUSE * covered_ns or not covered_ns:
        return None
    return {
        "phase": _LABELS[category],
        "detail": _detail(state, category, grown_ns),
        "share": window_ns[category] / covered_ns,
    }


def _detail(state: RankState, category: int, grown_ns: Details) -> str:
    if category == Phase.COLLECTIVE:
        return ""  # its keys are groups of ranks
    wire_phase, key = _most_waited(grown_ns, category)
    is_user = wire_phase >= FIRST_USER_PHASE
    names: Mapping[int, str] = state.phase_names if is_user else state.key_names
    return names.get(wire_phase if is_user else key, "")


def _most_waited(grown_ns: Details, category: int) -> tuple[int, int]:
    """`(phase on the wire, key)` that most of a category's time in the window went to; zeros if none."""
    most_ns = 0
    found = (0, 0)
    for (wire_phase, key), ns in grown_ns.items():
        is_user = wire_phase >= FIRST_USER_PHASE
        if is_user != (category == Phase.USER) or not (is_user or wire_phase == category):
            continue
        if ns > most_ns:
            most_ns = ns
            found = (wire_phase, key)
    return found


def callbacks(
    state: RankState, timeline: Timeline, covered_ns: int, grown_ns: Details,
) -> list[CallbackTime]:
    """Find the callbacks that took most of the window."""
    grown = sorted(
        (
            (ns, phase, key)
            for (phase, key), ns in grown_ns.items()
            if phase == Phase.CALLBACK and key in state.key_names
        ),
        reverse=True,
    )
    if not grown:
        return []
    before, counts = state.checkpoints[0].detail_counts, timeline.detail_counts()
    return [
        {
            "name": state.key_names[key],
            "seconds": ns / 1e9,
            "share": min(ns / covered_ns, 1.0),
            "count": max(counts.get((phase, key), 0) - before.get((phase, key), 0), 0),
        }
        for ns, phase, key in grown[:CALLBACKS_MOST]
        if ns > 0 and covered_ns
    ]


def _gpu_snapshot(gpu: GpuReading, owners: list[RankState]) -> GpuSnapshot:
    found: GpuSnapshot = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "ranks": sorted({state.hello.rank for state in owners if state.hello.rank >= 0}),
        "rank_keys": sorted(state.hello.rank_key for state in owners),
    }
    if gpu.error:
        found["error"] = gpu.error
    return {**found, **gpu.values}
