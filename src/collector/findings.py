"""Findings: what the numbers of a snapshot mean, and what to change. Pure: a snapshot in, sentences out.

Every rule is a row of `RULES`: what it measures, from which value on it speaks, what it says, what it advises and
where to look next. A rule whose numbers are absent says nothing. No rule knows another: two causes are two findings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hpcsampler.protocol.snapshot import WINDOW_S

from .advice import input_advice, retrace_advice

if TYPE_CHECKING:
    from hpcsampler.protocol.snapshot import Finding, HostSnapshot, RankSnapshot

Severity = Literal["high", "medium", "info"]
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


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: speaks where `measure` finds a value of at least `info`."""

    code: str
    measure: Callable[[View], Evidence | None]
    text: str
    """A sentence with the evidence's keys in braces."""
    advice: Callable[[View, Evidence], str]
    next_tool: str = ""
    """Which profiler shows more, and how."""
    info: float = inf
    medium: float = inf
    high: float = inf

    def severity(self, value: float) -> Severity | None:
        """How bad a value is; None if it is not worth a word."""
        if value >= self.high:
            return "high"
        if value >= self.medium:
            return "medium"
        return "info" if value >= self.info else None


# ---- what rules measure -----------------------------------------------------------------------------------------

def phase_share(phase: str) -> Callable[[View], Evidence | None]:
    """The share of a phase."""
    return lambda view: {"value": view.share(phase), "share": view.share(phase)}


def _network(view: View) -> Evidence | None:
    """Time in collectives without that in which the rank waits for another one."""
    share = view.get("straggler", "network_share")
    return None if share is None else {"value": share, "network": share}


def _input(view: View) -> Evidence | None:
    evidence: Evidence = {"value": view.share("input"), "share": view.share("input"), "where": ""}
    stage = bottleneck(view)
    if stage is not None:
        evidence |= {"stage": stage["stage"], "ceiling_per_s": stage["ceiling_per_s"]}
        name = " ".join(str(part) for part in (stage["stage"], stage.get("name")) if part)
        evidence["where"] = f"; its slowest stage, {name}, can give {stage['ceiling_per_s']:.3g} batches/s"
    elif view.get("top_cause", "phase") == "input" and view.get("top_cause", "detail"):
        evidence["where"] = f" ({view.get('top_cause', 'detail')})"
    return evidence


def bottleneck(view: View) -> Mapping[str, Any] | None:
    """The stage of the input pipeline with the lowest ceiling, where stages are known."""
    return next((stage for stage in stages(view) if stage.get("bottleneck") and "ceiling_per_s" in stage), None)


def stages(view: View) -> Sequence[Mapping[str, Any]]:
    """Of the pipeline that is waited for; empty where they are not known."""
    return () if view.get("input_elsewhere") else view.get("pipeline") or ()


def _checkpoint(view: View) -> Evidence | None:
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


def _retraces(view: View) -> Evidence | None:
    """Only while it goes on: a function that was traced again an hour ago is nobody's concern."""
    now = [one for one in view.get("traces", "worst") or () if one.get("age_s", 0.0) <= WINDOW_S]
    if not now:
        return None
    return {
        "value": view.share("compile"), "share": view.share("compile"), "retraces": now[0]["count"],
        "function": now[0]["function"], "changed": now[0]["changed"] or "nothing that its arguments show",
    }


def _callback(view: View) -> Evidence | None:
    """With the method that takes most of it, if that is known."""
    evidence: Evidence = {"value": view.share("callback"), "share": view.share("callback"), "where": ""}
    if called := view.get("callbacks"):
        evidence |= {"callback": called[0]["name"], "where": f", most of it to {called[0]['name']}"}
    return evidence


def _user(view: View) -> Evidence:
    """Without those phases that the user says are productive."""
    share = max(0.0, view.share("user") - (view.get("productive_user") or 0.0))
    evidence: Evidence = {"value": share, "share": share, "where": ""}
    if view.get("top_cause", "phase") == "user" and (detail := view.get("top_cause", "detail")):
        evidence |= {"phase": detail, "where": f", most of it to {detail}"}
    return evidence


def _straggler(view: View) -> Evidence | None:
    """Of the rank that waits: the blame is said where the time is lost."""
    blamed, share = view.get("straggler", "blamed_on_rank"), view.get("straggler", "wait_share")
    if blamed is None or share is None or blamed == view.rank.get("rank"):
        return None
    cause = view.get("straggler", "cause")
    return {
        "value": share, "share": share, "blamed": blamed, "because": f" (its largest stall: {cause})" if cause else "",
        "source": view.get("straggler", "source") or "collective",
    }


def _stalled(view: View) -> Evidence | None:
    since_s, phase = view.get("stalled_s"), view.get("open_phase", "phase")
    if view.rank["state"] != "stalled" or since_s is None or phase is None:
        return None
    age_s = view.rank["age_s"]
    if current(view):
        where = f"no step for {since_s:.0f} s: it is in {phase}"
    else:
        where = f"no step seen for {since_s:.0f} s: it was in {phase} when it last said something, {age_s:.0f} s ago"
    return {"value": 1.0, "phase": phase, "since_s": since_s, "age_s": age_s, "where": where}


def _run_delay(view: View) -> Evidence | None:
    delay = view.get("cpu", "run_delay")
    return None if delay is None else {"value": delay, "delay": delay, "cpus": view.host.get("cpu_count", "?")}


def _throttled(view: View) -> Evidence | None:
    cgroup = view.host.get("cgroup")
    share = cgroup.get("throttled") if isinstance(cgroup, Mapping) else None
    return None if share is None else {"value": share, "share": share}


def _launch_bound(view: View) -> Evidence | None:
    """Steps so short that what is done once a step weighs. Not if it is something else that takes the time."""
    p50, rate = view.get("step_ms", "p50"), view.get("steps_per_s")
    between = view.share("host") + view.share("callback")
    if p50 is None or p50 > SHORT_STEP_MS or _stands_still(view):
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


def _jitter(view: View) -> Evidence | None:
    p50, p99, rate = view.get("step_ms", "p50"), view.get("step_ms", "p99"), view.get("steps_per_s")
    if not p50 or not p99 or (rate is not None and rate * WINDOW_S < STEPS_LEAST):
        return None
    return {"value": p99 / p50, "times": p99 / p50, "p50": p50, "p99": p99}


def _productive(view: View) -> Evidence | None:
    """Not where it is known that steps wait for something."""
    share = view.share("step") + view.share("device")
    waits = (view.get("straggler", "wait_share") or 0.0) >= WAIT[0] or starved(view)
    return None if waits or _stands_still(view) else {"value": share, "share": share}


def _stands_still(view: View) -> bool:
    """A rank that hangs is in whatever it hangs in: that is no cost of each step."""
    return bool(view.rank["state"] == "stalled")


def _dropped(view: View) -> Evidence | None:
    dropped, events = view.rank.get("dropped", 0), view.rank.get("events", 0)
    if not dropped:
        return None
    return {"value": dropped / (dropped + events), "dropped": dropped, "share": dropped / (dropped + events)}


# ---- the table --------------------------------------------------------------------------------------------------

def say(text: str) -> Callable[[View, Evidence], str]:
    """Advice that is the same whatever the numbers are."""
    return lambda _view, _evidence: text


def _checkpoint_advice(view: View, evidence: Evidence) -> str:
    best_s, interval_s = evidence["best_s"], evidence["interval_s"]
    hours = f"{view.mtbf_s / 3600:.4f}".rstrip("0").rstrip(".")
    last = view.get("checkpoints", "last") or {}
    ways = ["a faster file system"]
    if last.get("format") != "keras weights":
        ways.insert(0, "weights only (save_weights_only=True)")
    if not last.get("background"):
        ways.insert(0, "save in the background (tf.train.CheckpointOptions(enable_async=True), Orbax)")
    if interval_s < best_s:
        return (
            f"save less often: with a failure every {hours} h (HPCSAMPLER_MTBF_H) one checkpoint in"
            f" {best_s:.0f} s loses the least, now it is one in {interval_s:.0f} s; or {ways[0]}"
        )
    return f"make each one cheaper: {', or '.join(ways)}; the interval suits an MTBF of {hours} h (HPCSAMPLER_MTBF_H)"


def _callback_advice(_view: View, evidence: Evidence) -> str:
    method = str(evidence.get("callback", "_batch_"))
    if "_batch_" in method:
        return (
            "do less per batch: work at the end of an epoch or every hundredth batch, and read a metric's value only"
            " then"
        )
    return "do it less often, say every tenth time, or let a thread do it beside the training"


def _stacks(view: View) -> str:
    """The command that shows what a rank's threads are in."""
    if "rank" not in view.rank:
        return f"py-spy dump --pid {view.rank['pid']}"
    return f"hpcsampler stacks {view.rank['rank']}" + ("" if view.alone else f" --job {quote(view.rank['job'])}")


HUNG: Final = "hung"
_XPROF = "XProf: a few steps by tf.profiler.experimental.start/stop, then its {}"
_SYSTEM = "a system monitor on this node (pidstat, perf sched, the cgroup's cpu.stat)"

RULES: Final[Sequence[Rule]] = (
    Rule(
        HUNG, _stalled, "{where}", high=1.0,
        advice=lambda view, _: f"look where it hangs: {_stacks(view)}",
        next_tool="py-spy dump --native, and of the other ranks too: the one that does not wait is the cause",
    ),
    Rule(
        "input-bound", _input, "{share:.0%} of the time goes to waiting for input{where}",
        medium=WAIT[0], high=WAIT[1],
        advice=lambda view, _: input_advice(
            bottleneck(view), stages(view), starved=starved(view), split=view.get("input_split"),
        ),
        next_tool=_XPROF.format("input pipeline analyzer"),
    ),
    Rule(
        "straggler", _straggler,
        "{share:.0%} of the time goes to waiting for other ranks, mostly for rank {blamed}{because}",
        medium=WAIT[0], high=WAIT[1],
        advice=lambda _view, evidence: (
            f"mend rank {evidence['blamed']}: look at its own row, its node's load and its GPU's clocks"
        ),
        next_tool="a trace of several ranks (Nsight Systems on each) around one collective",
    ),
    Rule(
        "network-bound", _network,
        "{network:.0%} of the time goes to collectives after the last rank has come",
        medium=WAIT[0], high=WAIT[1],
        advice=say("send less or overlap more: larger batches per step, gradients in half precision, fewer and larger"
                   " all-reduces; check that the fast network is the one in use (NCCL_DEBUG=INFO)"),
        next_tool="Nsight Systems with --trace=cuda,nvtx, or nccl-tests for the network alone",
    ),
    Rule(
        "checkpoint-bound", _checkpoint,
        "{share:.1%} of the time goes to checkpoints: {count} of {cost_s:.2g} s each, one in {interval_s:.0f} s",
        medium=OTHER[0], high=OTHER[1], advice=_checkpoint_advice,
        next_tool="the file system's own monitor; fio on the checkpoint's directory tells what it could do",
    ),
    Rule(
        "retracing", _retraces,
        "{share:.1%} of the time goes to tracing and compiling; {function} was traced again {retraces} times:"
        " {changed}",
        info=0.001, medium=OTHER[0], high=OTHER[1],
        advice=lambda _view, evidence: retrace_advice(str(evidence["changed"])),
        next_tool="TF_CPP_MIN_LOG_LEVEL=0 shows TensorFlow's own retracing warnings with the function's place",
    ),
    Rule(
        "callback-bound", _callback, "{share:.0%} of the time goes to Keras callbacks{where}",
        medium=OTHER[0], high=OTHER[1], advice=_callback_advice,
        next_tool="py-spy record on this process, or cProfile around fit",
    ),
    Rule(
        "transfer-bound", phase_share("transfer"),
        "{share:.0%} of the time goes to copies between host and device", medium=WAIT[0], high=WAIT[1],
        advice=say("keep data where it is used: prefetch_to_device, pinned batches in the pipeline, no .numpy() or"
                   " .cpu() in the loop"),
        next_tool="Nsight Systems: the memory rows beside the kernels",
    ),
    Rule(
        "gc-bound", phase_share("gc"), "{share:.1%} of the time goes to Python's garbage collection",
        medium=0.01, high=WAIT[0],
        advice=say("gc.freeze() after the model is built, and a higher gc.set_threshold(); or gc.disable() and a"
                   " gc.collect() at the end of each epoch"),
        next_tool="gc.set_debug(gc.DEBUG_STATS) says what each collection finds",
    ),
    Rule(
        "user-phase", _user, "{share:.0%} of the time goes to phases of your own{where}",
        medium=OTHER[0], high=OTHER[1],
        advice=say("look at the phase's own code, or name it productive (hpcsampler.phase(…, productive=True)) if it"
                   " is part of the work"),
        next_tool="py-spy record on this process",
    ),
    Rule(
        "short-steps", _launch_bound,
        "steps of {p50:.2g} ms leave {share:.0%} of the time to Python between them", medium=OTHER[0], high=OTHER[1],
        advice=say("run several steps per call: compile(steps_per_execution=16), or a loop inside the tf.function;"
                   " larger batches"),
        next_tool=_XPROF.format("overview page (kernel launch time)"),
    ),
    Rule(
        "host-bound",
        lambda view: None if _launch_bound(view) or _stands_still(view) else phase_share("host")(view),
        "{share:.0%} of the time is Python between steps", medium=OTHER[0], high=OTHER[1],
        advice=say("move what the loop does between steps into the tf.function or out of the loop, or name it with"
                   " hpcsampler.phase(…) to see what it is"),
        next_tool="py-spy record on this process",
    ),
    Rule(
        "cpu-starved", _run_delay,
        "its threads wait {delay:.2g} s per second for one of the node's {cpus} CPUs", medium=0.10, high=0.50,
        advice=say("give the rank more cores (srun --cpus-per-task, the container's limit), or fewer threads:"
                   " num_parallel_calls, OMP_NUM_THREADS, tf.config.threading"),
        next_tool=_SYSTEM,
    ),
    Rule(
        "cpu-throttled", _throttled, "the cgroup's CPU limit stopped its processes in {share:.0%} of its periods",
        medium=0.02, high=0.10,
        advice=say("raise the limit (Kubernetes resources.limits.cpu, Slurm --cpus-per-task) or take fewer threads"),
        next_tool=_SYSTEM,
    ),
    Rule(
        "uneven-steps", _jitter, "one step in a hundred takes {times:.0f} times the median ({p99:.3g} ms)", info=3.0,
        advice=say("see which phase grows in those steps: a shuffle buffer that fills, a checkpoint, a neighbour on"
                   " the node"),
        next_tool=_XPROF.format("step-time graph"),
    ),
    Rule(
        "productive", _productive, "{share:.0%} of the time is the step itself: the training is as fast as its compute",
        info=0.95,
        advice=say("what is left is in the step: mixed precision, XLA (jit_compile=True), larger batches"),
        next_tool=_XPROF.format("op profile, or Nsight Compute for one kernel"),
    ),
    Rule(
        "events-lost", _dropped, "{dropped} of its events were lost ({share:.1%}): shares are of what is left",
        info=0.0, medium=0.01,
        advice=say("a larger ring (HPCSAMPLER_RING_EVENTS), or a daemon with more of a CPU"),
    ),
)


_PERCENT: Final = re.compile(r"(\d)%")
"""Python's own format has no space before the sign; the screen and the documents have."""


def starved(view: View) -> bool:
    """Whether the rank lacks CPU time: more threads can't help it then."""
    return any(
        evidence is not None and evidence["value"] >= rule.medium
        for rule in RULES if rule.code in {"cpu-starved", "cpu-throttled"}
        for evidence in [rule.measure(view)]
    )


def find(ranks: Sequence[RankSnapshot], host: HostSnapshot, mtbf_s: float) -> list[Finding]:
    """All findings of a snapshot, the worst first, and of one severity in the order of the table.

    Of ranks that have no new numbers, and of windows that tell too little, there are none.
    """
    order = {severity: number for number, severity in enumerate(("high", "medium", "info"))}
    found: list[Finding] = []
    numbers = Counter(rank.get("rank") for rank in ranks if rank["state"] not in {"exited", "killed"})
    for rank in ranks:
        view = View(rank, host, mtbf_s, alone=numbers[rank.get("rank")] == 1)
        rules = RULES if current(view) and judged(view) else [rule for rule in RULES if rule.code == HUNG]
        found += [finding for rule in rules if (finding := _apply(rule, view)) is not None]
    return sorted(found, key=lambda finding: order[finding["severity"]])


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


def _apply(rule: Rule, view: View) -> Finding | None:
    evidence = rule.measure(view)
    if evidence is None or (severity := rule.severity(evidence["value"])) is None:
        return None
    finding: Finding = {
        "severity": severity,
        "code": rule.code,
        "rank_key": view.rank["rank_key"],
        "text": _PERCENT.sub(r"\1 %", rule.text.format(**evidence)),
        "evidence": {key: value for key, value in evidence.items()
                     if key not in {"value", "where", "because"} and not isinstance(value, Mapping)},
        "advice": rule.advice(view, evidence),
    }
    if "rank" in view.rank:
        finding["rank"] = view.rank["rank"]
    if rule.next_tool:
        finding["next"] = rule.next_tool
    return finding
