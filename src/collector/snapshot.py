"""From what the daemon knows to the snapshot that viewers read. Pure: nothing is measured or changed here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from hpcsampler.ext._timeline import UNCOVERED, USER_PRODUCTIVE
from hpcsampler.protocol.phases import FIRST_USER_PHASE, PRODUCTIVE_PHASES, Phase
from hpcsampler.protocol.snapshot import SNAPSHOT_SCHEMA, WINDOW_S, GpuSnapshot, RankSnapshot, Snapshot

from .stall import stalled_s

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hpcsampler.ext._timeline import Timeline
    from hpcsampler.protocol.snapshot import DaemonSnapshot, HostSnapshot, State, TopCause

    from .gpu import GpuReading
    from .ranks import RankState

LEAST_CAUSE: Final = 0.01
"""A stall of a smaller share is no cause worth a name."""
_LABELS: Final = {int(phase): phase.label for phase in Phase} | {USER_PRODUCTIVE: Phase.USER.label}
"""Names by category of a timeline. Plain numbers and texts: enums would cost more than all else here."""
_PRODUCTIVE: Final = (*(int(phase) for phase in sorted(PRODUCTIVE_PHASES)), USER_PRODUCTIVE)
_STALLS: Final = tuple(category for category in _LABELS if category not in _PRODUCTIVE)
_MOST: Final = (1 << 63) - 1
"""Largest count in a snapshot: what forged ordinals add up to need not be written."""


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
) -> Snapshot:
    """Build the whole snapshot."""
    by_pid: dict[int, list[RankState]] = {}
    for state in ranks:
        if state.watched and state.ending is None:
            by_pid.setdefault(state.hello.pid, []).append(state)
    owners = {gpu.index: [s for pid in gpu.pids for s in by_pid.get(pid, ())] for gpu in gpus}
    gpus_of: dict[str, list[str]] = {}
    for gpu in gpus:
        for state in owners[gpu.index]:
            gpus_of.setdefault(state.hello.rank_key, []).append(gpu.uuid)
    when = datetime.fromtimestamp(moment.realtime_s, timezone.utc)
    return {
        "schema": SNAPSHOT_SCHEMA,
        "node": moment.node,
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "monotonic_ns": moment.monotonic_ns,
        "window_s": WINDOW_S,
        "ranks": [
            rank_snapshot(state, moment.monotonic_ns, gpus_of.get(state.hello.rank_key, []))
            for state in ranks
        ],
        "gpus": [_gpu_snapshot(gpu, owners[gpu.index]) for gpu in gpus],
        "host": host,
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
        "step": 0,
        "evaluation_steps": 0,
        "phases": {},
        "totals_s": {},
        "age_s": max(0.0, (now_ns - state.newest_ns) / 1e9),
        "coverage": 0.0,
        "events": state.folded,
        "dropped": min(state.dropped, _MOST),
        "gpus": gpus,
        "notes": hello.notes,
    }
    if hello.rank >= 0:
        found["rank"] = hello.rank
    if hello.local_rank >= 0:
        found["local_rank"] = hello.local_rank
    if hello.world_size > 0:
        found["world_size"] = hello.world_size
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
    return found


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
    window_ns, steps, _ = timeline.window(WINDOW_S)
    totals_ns = timeline.totals_ns()
    since_attach_ns = by_phase(totals_ns)
    found["step"] = timeline.steps
    found["evaluation_steps"] = timeline.evaluation_steps
    phases_ns = by_phase(window_ns)
    covered_ns = sum(phases_ns.values())
    if covered_ns:
        found["phases"] = {label: ns / covered_ns for label, ns in phases_ns.items()}
        found["coverage"] = covered_ns / (covered_ns + window_ns[UNCOVERED])
    found["totals_s"] = {label: ns / 1e9 for label, ns in since_attach_ns.items()}
    if ever_ns := sum(since_attach_ns.values()):
        found["goodput"] = sum(totals_ns[category] for category in _PRODUCTIVE) / ever_ns
    # Until the first step there is no rate to dilute.
    stepping_ns = covered_ns - window_ns[Phase.STARTUP]
    if timeline.started and stepping_ns > 0:
        found["steps_per_s"] = steps / (stepping_ns / 1e9)
    if state.step_ms is not None:
        p50, p95, p99 = state.step_ms
        found["step_ms"] = {"p50": p50, "p95": p95, "p99": p99}
    category, _, _, since_ns = timeline.open_phase()
    if category != UNCOVERED:
        found["open_phase"] = {
            "phase": _LABELS[category], "since_s": (timeline.now_ns - since_ns) / 1e9,
        }
    if (cause := top_cause(state, window_ns, covered_ns)) is not None:
        found["top_cause"] = cause
    before = state.checkpoints[0]
    if timeline.now_ns > before.at_ns:
        found["overhead"] = (state.overhead_ns - before.overhead_ns) / (timeline.now_ns - before.at_ns)
    if marks := timeline.marks():
        found["marks"] = {
            state.phase_names.get(key, f"mark {key}"): {"count": count, "last": last}
            for key, (count, last) in marks.items()
        }
    if timeline.paused:
        found["paused"] = True


def by_phase(ns: Sequence[int]) -> dict[str, int]:
    """Nanoseconds of each phase that had any, from those by category of a timeline."""
    found: dict[str, int] = {}
    for category, label in _LABELS.items():
        if spent := ns[category]:
            found[label] = found.get(label, 0) + spent
    return found


def top_cause(state: RankState, window_ns: Sequence[int], covered_ns: int) -> TopCause | None:
    """Find the largest stall of a window, and which iterator or phase of the user's most of it went to."""
    # The user's phases here are those that count as stalls: productive ones have a category of their own.
    category = max(_STALLS, key=window_ns.__getitem__)
    if window_ns[category] < LEAST_CAUSE * covered_ns or not covered_ns:
        return None
    return {
        "phase": _LABELS[category],
        "detail": _detail(state, category),
        "share": window_ns[category] / covered_ns,
    }


def _detail(state: RankState, category: int) -> str:
    if state.timeline is None:
        return ""
    before = state.checkpoints[0].details_ns
    most_ns = 0
    detail = ""
    for (wire_phase, key), ns in state.timeline.details_ns().items():
        is_user = wire_phase >= FIRST_USER_PHASE
        if is_user != (category == Phase.USER) or not (is_user or wire_phase == category):
            continue
        grown_ns = ns - before.get((wire_phase, key), 0)
        if grown_ns > most_ns:
            most_ns = grown_ns
            names: Mapping[int, str] = state.phase_names if is_user else state.iterator_names
            # Keys of other phases are of other things.
            detail = names.get(wire_phase if is_user else key, "") if is_user or category == Phase.INPUT else ""
    return detail


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
