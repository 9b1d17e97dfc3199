"""Findings: what the numbers of a snapshot mean, and what to change. Pure: a snapshot in, sentences out.

Every rule is a row of `RULES`: what it measures, from which value on it speaks, what it says, what it advises and
where to look next. A rule whose numbers are absent says nothing. No rule knows another: two causes are two findings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal

from . import measures
from .advice import input_advice, retrace_advice
from .measures import OTHER, WAIT, Evidence, View, phase_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcsampler.protocol.snapshot import Finding, HostSnapshot, RankSnapshot

Severity = Literal["high", "medium", "info"]


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
    if not last.get("background") and last.get("writer") != "ModelCheckpoint":  # which has no option for it
        ways.insert(0, "save in the background (tf.train.CheckpointOptions(enable_async=True), Orbax)")
    if interval_s < best_s:
        rate = view.get("steps_per_s")
        steps = f", {best_s * rate:.0f} steps at this rate" if rate else ""
        how = ", by save_freq=" if last.get("writer") == "ModelCheckpoint" else ""
        return (
            f"save less often: with a failure every {hours} h (HPCSAMPLER_MTBF_H) it loses the least to save every"
            f" {best_s:.0f} s{steps}{how}, now it is every {interval_s:.0f} s; or {ways[0]}"
        )
    return f"make each one cheaper: {', or '.join(ways)}; the interval suits an MTBF of {hours} h (HPCSAMPLER_MTBF_H)"


def _is_xla(view: View) -> bool:
    """Whether it is XLA's compiling that takes most of the time that `compile` takes."""
    return view.get("top_cause", "phase") == "compile" and str(view.get("top_cause", "detail")).startswith("XLA ")


def _callback_advice(_view: View, evidence: Evidence) -> str:
    method = str(evidence.get("callback", "_batch_"))
    if "_batch_" in method:
        return (
            "do less per batch: work at the end of an epoch or every hundredth batch, and read a metric's value only"
            " then"
        )
    return "do it less often, say every tenth time, or let a thread do it beside the training"


def _cpu_advice(_view: View, evidence: Evidence) -> str:
    if evidence.get("others", 0.0) > evidence.get("uses", 0.0):
        return (
            "look who else is on the node, other ranks among them, and give each rank cores of its own"
            " (srun --cpus-per-task --cpu-bind=cores, taskset, the container's cpuset)"
        )
    return (
        "give the rank more cores (srun --cpus-per-task, the container's limit), or fewer threads: num_parallel_calls,"
        " OMP_NUM_THREADS, tf.config.threading"
    )


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
        HUNG, measures.stalled, "{where}", high=1.0,
        advice=lambda view, _: f"look where it hangs: {_stacks(view)}",
        next_tool="py-spy dump --native, and of the other ranks too: the one that does not wait is the cause",
    ),
    Rule(
        "input-bound", measures.input_wait, "{share:.0%} of the time goes to waiting for input{where}",
        medium=WAIT[0], high=WAIT[1],
        advice=lambda view, _: input_advice(
            measures.bottleneck(view), measures.stages(view), starved=measures.starves_input(view),
            split=view.get("input_split"),
        ),
        next_tool=_XPROF.format("input pipeline analyzer"),
    ),
    Rule(
        "straggler", measures.straggler,
        "{share:.0%} of the time goes to waiting for other ranks, mostly for rank {blamed}{because}",
        medium=WAIT[0], high=WAIT[1],
        advice=lambda _view, evidence: (
            f"mend rank {evidence['blamed']}: look at its own row, its node's load and its GPU's clocks"
        ),
        next_tool="a trace of several ranks (Nsight Systems on each) around one collective",
    ),
    Rule(
        "network-bound", measures.network,
        "{network:.0%} of the time goes to collectives after the last rank has come",
        medium=WAIT[0], high=WAIT[1],
        advice=say("send less or overlap more: larger batches per step, gradients in half precision, fewer and larger"
                   " all-reduces; check that the fast network is the one in use (NCCL_DEBUG=INFO)"),
        next_tool="Nsight Systems with --trace=cuda,nvtx, or nccl-tests for the network alone",
    ),
    Rule(
        "checkpoint-bound", measures.checkpoint,
        "{share:.1%} of the time goes to checkpoints: {count} of {cost_s:.2g} s each, one in {interval_s:.0f} s",
        medium=OTHER[0], high=OTHER[1], advice=_checkpoint_advice,
        next_tool="the file system's own monitor; fio on the checkpoint's directory tells what it could do",
    ),
    Rule(
        "retracing", measures.retraces,
        "{share:.1%} of the time goes to tracing and compiling; {function} was traced again {retraces} times:"
        " {changed}",
        info=0.001, medium=OTHER[0], high=OTHER[1],
        advice=lambda view, evidence: retrace_advice(str(evidence["changed"]), by_xla=_is_xla(view)),
        next_tool="TF_CPP_MIN_LOG_LEVEL=0 shows TensorFlow's own retracing warnings with the function's place",
    ),
    Rule(
        "callback-bound", measures.callback, "{share:.0%} of the time goes to Keras callbacks{where}",
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
        "user-phase", measures.user, "{share:.0%} of the time goes to phases of your own{where}",
        medium=OTHER[0], high=OTHER[1],
        advice=say("look at the phase's own code, or name it productive (hpcsampler.phase(…, productive=True)) if it"
                   " is part of the work"),
        next_tool="py-spy record on this process",
    ),
    Rule(
        "short-steps", measures.launch_bound,
        "steps of {p50:.2g} ms leave {share:.0%} of the time to Python between them", medium=OTHER[0], high=OTHER[1],
        advice=say("run several steps per call: compile(steps_per_execution=16), or a loop inside the tf.function;"
                   " larger batches"),
        next_tool=_XPROF.format("overview page (kernel launch time)"),
    ),
    Rule(
        "host-bound",
        lambda view: None if measures.launch_bound(view) or measures.stands_still(view) else phase_share("host")(view),
        "{share:.0%} of the time is Python between steps", medium=OTHER[0], high=OTHER[1],
        advice=say("move what the loop does between steps into the tf.function or out of the loop, or name it with"
                   " hpcsampler.phase(…) to see what it is"),
        next_tool="py-spy record on this process",
    ),
    Rule(
        "cpu-starved", measures.run_delay,
        "its threads wait {delay:.2g} s per second for one of the node's {cpus} CPUs{where}",
        medium=measures.DELAY[0], high=measures.DELAY[1],
        advice=_cpu_advice, next_tool=_SYSTEM,
    ),
    Rule(
        "cpu-throttled", measures.throttled,
        "the cgroup's CPU limit stopped its processes in {share:.0%} of its periods",
        medium=measures.THROTTLED[0], high=measures.THROTTLED[1],
        advice=say("raise the limit (Kubernetes resources.limits.cpu, Slurm --cpus-per-task) or take fewer threads"),
        next_tool=_SYSTEM,
    ),
    Rule(
        "uneven-steps", measures.jitter, "one step in a hundred takes {times:.0f} times the median ({p99:.3g} ms)",
        info=3.0,
        advice=say("see which phase grows in those steps: a shuffle buffer that fills, a checkpoint, a neighbour on"
                   " the node"),
        next_tool=_XPROF.format("step-time graph"),
    ),
    Rule(
        "productive", measures.productive,
        "{share:.0%} of the time is the step itself: the training is as fast as its compute",
        info=0.95,
        advice=say("what is left is in the step: mixed precision, XLA (jit_compile=True), larger batches"),
        next_tool=_XPROF.format("op profile, or Nsight Compute for one kernel"),
    ),
    Rule(
        "events-lost", measures.dropped, "{dropped} of its events were lost ({share:.1%}): shares are of what is left",
        info=0.0, medium=0.01,
        advice=say("a larger ring (HPCSAMPLER_RING_EVENTS), or a daemon with more of a CPU"),
    ),
)

_PERCENT: Final = re.compile(r"(\d)%")
"""Python's own format has no space before the sign; the screen and the documents have."""


def find(ranks: Sequence[RankSnapshot], host: HostSnapshot, mtbf_s: float) -> list[Finding]:
    """All findings of a snapshot, the worst first, and of one severity in the order of the table.

    Of ranks that have no new numbers, and of windows that tell too little, there are none.
    """
    order = {severity: number for number, severity in enumerate(("high", "medium", "info"))}
    found: list[Finding] = []
    numbers = Counter(rank.get("rank") for rank in ranks if rank["state"] not in {"exited", "killed"})
    for rank in ranks:
        view = View(rank, host, mtbf_s, alone=numbers[rank.get("rank")] == 1)
        judged = measures.current(view) and measures.judged(view)
        rules = RULES if judged else [rule for rule in RULES if rule.code == HUNG]
        found += [finding for rule in rules if (finding := _apply(rule, view)) is not None]
    return sorted(found, key=lambda finding: order[finding["severity"]])


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
