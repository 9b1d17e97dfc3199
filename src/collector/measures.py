"""What the rules of `findings` measure: the value that a rule's bounds are for, and what its sentence says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, TypeAlias

from hpcsampler.protocol.snapshot import WINDOW_S

from .advice import stage_name

Evidence: TypeAlias = dict[str, Any]
"""`value`, which the bounds are for, and every number that the sentence uses."""

OLD_S: Final = 5.0
"""Numbers that are older say nothing about now."""
LEAST_COVERAGE: Final = 0.5
"""With less of the window covered, its shares may be of an odd part of it."""
MOST_STARTUP: Final = 0.5
"""A window that is mostly start-up tells nothing about the training."""

# Shares of the time from which on a cause is worth a word and from which on it is the first thing to mend. XProf's
# bounds, where it has them: input 5 and 20 %, all other time between device work 3 and 15 %
# (op_stats_to_input_pipeline_analysis.cc). Those for input are taken for stalls of the same kind, too.
WAIT: Final = (0.05, 0.20)
OTHER: Final = (0.03, 0.15)
DELAY: Final = (0.1, 0.5)
"""Likewise, seconds per second for which a rank's threads wait for a CPU."""
THROTTLED: Final = (0.02, 0.10)
"""Likewise, a share of the periods of a cgroup's limit."""


@dataclass(frozen=True, slots=True)
class View:
    """What a rule looks at: one rank, its node, and the other ranks of its job."""

    rank: Mapping[str, Any]
    host: Mapping[str, Any]
    mtbf_s: float
    """Mean time between failures of the whole job, in seconds, for the checkpoint interval."""
    alone: bool = True
    """No other job on the node has a rank of this number."""

    def share(self, phase: str) -> float:
        """Share of a phase in the window."""
        return float(self.rank["phases"].get(phase, 0.0))

    def get(self, *path: str) -> Any:
        """A value of the rank, by its keys one below the other; None if any is absent."""
        found: Any = self.rank
        for key in path:
            if not isinstance(found, Mapping) or key not in found:
                return None
            found = found[key]
        return found


# ---- whether there is something to say ------------------------------------------------------------------------------

def current(view: View) -> bool:
    """Whether a rank's numbers are of now."""
    return bool(view.rank["age_s"] <= OLD_S)


def judged(view: View) -> bool:
    """Whether a rank's numbers say something about its training."""
    rank = view.rank
    return (
        rank["state"] in {"training", "stalled"}
        and bool(rank["phases"])
        and rank["coverage"] >= LEAST_COVERAGE
        and not rank.get("paused", False)
        and view.share("startup") < MOST_STARTUP
    )


def starves_input(view: View) -> bool:
    """Whether it is for a CPU that the input pipeline waits: its threads wait about as long as the training does.

    A stage that sleeps or reads waits long beside threads that wait little, whoever keeps the CPUs busy.
    """
    return starved(view, MOST_OF_IT * view.share("input"))


MOST_OF_IT: Final = 0.5


def starved(view: View, least: float = 0.0) -> bool:
    """Whether the rank lacks CPU time. least: seconds per second that its threads must wait to say so."""
    found = ((run_delay(view), max(DELAY[0], least)), (throttled(view), THROTTLED[0]))
    return any(evidence is not None and evidence["value"] >= bound for evidence, bound in found)


# ---- one for each rule -----------------------------------------------------------------------------------------------

def phase_share(phase: str) -> Callable[[View], Evidence | None]:
    """The share of a phase."""
    return lambda view: {"value": view.share(phase), "share": view.share(phase)}


def network(view: View) -> Evidence | None:
    """Time in collectives without that in which the rank waits for another one."""
    share = view.get("straggler", "network_share")
    return None if share is None else {"value": share, "network": share}


def input_wait(view: View) -> Evidence | None:
    """With the stage that is waited for, if it is known."""
    evidence: Evidence = {"value": view.share("input"), "share": view.share("input"), "where": ""}
    stage = bottleneck(view)
    if stage is not None:
        evidence |= {"stage": stage["stage"], "ceiling_per_s": stage["ceiling_per_s"]}
        evidence["where"] = f"; its slowest stage, {stage_name(stage)}, can give {stage['ceiling_per_s']:.3g} batches/s"
    elif view.get("top_cause", "phase") == "input" and view.get("top_cause", "detail"):
        evidence["where"] = f" ({view.get('top_cause', 'detail')})"
    return evidence


def bottleneck(view: View) -> Mapping[str, Any] | None:
    """The stage of the input pipeline with the lowest ceiling, where stages are known."""
    return next((stage for stage in stages(view) if stage.get("bottleneck") and "ceiling_per_s" in stage), None)


def stages(view: View) -> Sequence[Mapping[str, Any]]:
    """Of the pipeline that is waited for; empty where they are not known."""
    return () if view.get("input_elsewhere") else view.get("pipeline") or ()


def checkpoint(view: View) -> Evidence | None:
    """The share of all time since attach, as far as it is known: a window of seconds holds all of one or nothing.

    Without restoring, of which there is one. Of a single checkpoint it is not known how often there is one.
    """
    totals = view.rank.get("totals_s", {})
    known_s = sum(totals.values()) - totals.get("startup", 0.0)
    count = view.get("checkpoints", "count")
    if not count or count < CHECKPOINTS_LEAST or known_s <= 0:
        return None
    spent_s = max(0.0, totals.get("checkpoint", 0.0) - (view.get("checkpoints", "restored_s") or 0.0))
    cost_s = spent_s / count
    return {
        "value": spent_s / known_s, "share": spent_s / known_s, "count": count, "cost_s": cost_s,
        "interval_s": known_s / count, "best_s": best_interval_s(cost_s, view.mtbf_s) + cost_s,
    }


CHECKPOINTS_LEAST: Final = 2


def best_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of work between two checkpoints that lose the least time, for checkpoints of `cost_s`.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006), equation 37: Young's
    square root of 2 * cost * MTBF (1974), corrected for checkpoints that are not short against the MTBF.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return sqrt(2 * cost_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost_s


def retraces(view: View) -> Evidence | None:
    """Only while it goes on: a function that was traced again an hour ago is nobody's concern."""
    now = [one for one in view.get("traces", "worst") or () if one.get("age_s", 0.0) <= WINDOW_S]
    if not now:
        return None
    return {
        "value": view.share("compile"), "share": view.share("compile"), "retraces": now[0]["count"],
        "function": now[0]["function"], "changed": now[0]["changed"] or "nothing that its arguments show",
    }


def callback(view: View) -> Evidence | None:
    """With the method that takes most of it, if that is known."""
    evidence: Evidence = {"value": view.share("callback"), "share": view.share("callback"), "where": ""}
    if called := view.get("callbacks"):
        evidence |= {"callback": called[0]["name"], "where": f", most of it to {called[0]['name']}"}
    return evidence


def user(view: View) -> Evidence:
    """Without those phases that the user says are productive."""
    share = max(0.0, view.share("user") - (view.get("productive_user") or 0.0))
    evidence: Evidence = {"value": share, "share": share, "where": ""}
    if view.get("top_cause", "phase") == "user" and (detail := view.get("top_cause", "detail")):
        evidence |= {"phase": detail, "where": f", most of it to {detail}"}
    return evidence


def straggler(view: View) -> Evidence | None:
    """Of the rank that waits: the blame is said where the time is lost."""
    blamed, share = view.get("straggler", "blamed_on_rank"), view.get("straggler", "wait_share")
    if blamed is None or share is None or blamed == view.rank.get("rank"):
        return None
    cause = view.get("straggler", "cause")
    return {
        "value": share, "share": share, "blamed": blamed, "because": f" (its largest stall: {cause})" if cause else "",
        "source": view.get("straggler", "source") or "collective",
    }


def stalled(view: View) -> Evidence | None:
    """No step for long: where it is, or was when it last said something."""
    since_s, phase = view.get("stalled_s"), view.get("open_phase", "phase")
    if view.rank["state"] != "stalled" or since_s is None or phase is None:
        return None
    age_s = view.rank["age_s"]
    if current(view):
        where = f"no step for {since_s:.0f} s: it is in {phase}"
    else:
        where = f"no step seen for {since_s:.0f} s: it was in {phase} when it last said something, {age_s:.0f} s ago"
    return {"value": 1.0, "phase": phase, "since_s": since_s, "age_s": age_s, "where": where}


def run_delay(view: View) -> Evidence | None:
    """Seconds per second for which its threads wait for a CPU."""
    delay = view.get("cpu", "run_delay")
    if delay is None:
        return None
    evidence: Evidence = {"value": delay, "delay": delay, "cpus": view.host.get("cpu_count", "?"), "where": ""}
    own, busy, cpus = view.get("cpu", "percent"), view.host.get("cpu_percent"), view.host.get("cpu_count")
    if own is not None and busy is not None and cpus:
        uses, others = own / 100, max(0.0, (busy * cpus - own) / 100)
        evidence |= {"uses": uses, "others": others, "where": f": it uses {uses:.1f} of them, others {others:.1f}"}
    return evidence


def throttled(view: View) -> Evidence | None:
    """Of the daemon's cgroup, or of one around it."""
    cgroup = view.host.get("cgroup")
    share = cgroup.get("throttled") if isinstance(cgroup, Mapping) else None
    return None if share is None else {"value": share, "share": share}


def launch_bound(view: View) -> Evidence | None:
    """Steps so short that what is done once a step weighs. Not if it is something else that takes the time."""
    p50, rate = view.get("step_ms", "p50"), view.get("steps_per_s")
    between = view.share("host") + view.share("callback")
    if p50 is None or p50 > SHORT_STEP_MS or stands_still(view):
        return None
    if rate is not None and rate * p50 / 1000 < MOSTLY_STEPS:
        return None
    return {"value": between, "share": between, "p50": p50}


SHORT_STEP_MS: Final = 5.0
MOSTLY_STEPS: Final = 0.5
"""Usual steps, from the end of one to the end of the next, make up so much of the time; else the rest of it is what
happens now and then."""
STEPS_LEAST: Final = 100
"""Of fewer steps none is one in a hundred."""


def jitter(view: View) -> Evidence | None:
    """The slowest hundredth of the steps against the usual ones."""
    p50, p99, rate = view.get("step_ms", "p50"), view.get("step_ms", "p99"), view.get("steps_per_s")
    if not p50 or not p99 or (rate is not None and rate * WINDOW_S < STEPS_LEAST):
        return None
    if max(view.share("compile"), view.share("checkpoint")) >= OTHER[0]:
        return None  # it is known what takes so long now and then
    return {"value": p99 / p50, "times": p99 / p50, "p50": p50, "p99": p99}


def productive(view: View) -> Evidence | None:
    """Not where it is known that steps wait for something."""
    share = view.share("step") + view.share("device")
    waits = (view.get("straggler", "wait_share") or 0.0) >= WAIT[0] or starved(view)
    return None if waits or stands_still(view) else {"value": share, "share": share}


def stands_still(view: View) -> bool:
    """A rank that hangs is in whatever it hangs in: that is no cost of each step."""
    return bool(view.rank["state"] == "stalled")


def dropped(view: View) -> Evidence | None:
    """Events that were lost, of all."""
    dropped, events = view.rank.get("dropped", 0), view.rank.get("events", 0)
    if not dropped:
        return None
    return {"value": dropped / (dropped + events), "dropped": dropped, "share": dropped / (dropped + events)}
