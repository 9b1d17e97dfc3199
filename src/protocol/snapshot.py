"""The snapshot: all that a viewer knows. `hpcsampler top --json` prints one.

Base units, ratios from 0 to 1, a key that is absent when its value is unknown (never a made-up 0). Keys may be
added within schema 1; a meaning never changes.
"""

from __future__ import annotations

from typing import Final, Literal, TypedDict, cast

import msgpack

SNAPSHOT_SCHEMA: Final = 1
WINDOW_S: Final = 10.0
"""Seconds that the shares, rates and percentiles of a snapshot look back on."""
TOPIC: Final = b""
"""Snapshots are single-frame messages, so that a viewer can use ZMQ_CONFLATE and never lag."""

State = Literal["starting", "training", "evaluating", "stalled", "exited", "killed"]
"""`stalled`: it trains, and has made no step for `stalled_s`; `open_phase` says where it is. Not while it writes a
checkpoint, compiles or evaluates. `killed` is: gone without a goodbye (a signal, `os._exit`, the OOM killer)."""


class StepTimes(TypedDict):
    """Milliseconds between the ends of successive steps, validation between them taken out."""

    p50: float
    p95: float
    p99: float


class OpenPhase(TypedDict):
    """What the rank is in at the moment of its newest data, and for how long without a break, in seconds.

    Of a killed rank: what it was in last, and how long that had lasted when its process was gone, as far as that
    could be seen. Of one that has exited there is none.
    """

    phase: str
    since_s: float


class TopCause(TypedDict):
    """The largest stall of the window: its phase, what exactly, and its share."""

    phase: str
    detail: str
    share: float


class StragglerSnapshot(TypedDict, total=False):
    """Who waits for whom among the ranks of a job on this node. See `collector/stragglers.py` for the rules.

    `wait_share` and `network_share` are shares of the window, parts of `phases.collective`: until the last rank had
    arrived, and after. `blamed_on_rank` is there only for a rank that is steadily late (`steady` of that rank), not for
    whoever happened to be the last; `cause` is the phase in which that rank spends more than the others.
    """

    source: str
    """`collective`: from arrivals. `step time`: no collective can be seen, so only from what each step takes."""
    score: float
    """Share of the collectives of the window that this rank itself was late in."""
    steady: bool
    """This rank itself is a steady straggler."""
    wait_share: float
    network_share: float
    blamed_on_rank: int
    cause: str


class RankCpu(TypedDict, total=False):
    """Of the rank's process. percent: 100 is one core."""

    percent: float
    rss_bytes: int
    read_bytes_per_s: float
    write_bytes_per_s: float
    run_delay: float
    """Seconds per second that its threads were ready to run and had no CPU, all together, in the last ten or so."""


class _StageRequired(TypedDict):
    stage: str
    """tf.data's name of it: `ParallelMap`."""
    parallelism: float
    autotuned: bool
    """Whether tf.data chooses the parallelism."""
    buffered: int
    """Elements that it holds ready."""
    bottleneck: bool
    """It has the lowest ceiling of all. None is the bottleneck where no known ceiling explains the waits."""


class StageSnapshot(_StageRequired, total=False):
    """One stage of the input pipeline that feeds the training, over the last few seconds."""

    name: str
    """The user's: the dataset's `name=`, else its function's name; `in NAME` inside an interleave."""
    self_ms: float
    """Its own time per element of its own: without its inputs', without waiting, whatever the threads."""
    ceiling_per_s: float
    """Batches per second that it could yield by itself, with the parallelism that it has."""
    per_batch: float
    """Elements of its own that make a batch."""
    buffer_size: int
    """Elements that fit."""
    bytes_per_s: float
    """What it yields."""


class SplitEvidence(TypedDict, total=False):
    """What an `InputSplit` is concluded from."""

    bottleneck: str
    compute_ms: float
    """What a batch takes apart from waiting for it."""
    source_bytes_per_s: float
    """What the pipeline's sources yield, from storage or from memory."""
    read_bytes_per_s: float
    """What the process reads from storage; the page cache and some network file systems don't count."""
    undivided: str
    """The stage that reads and prepares in one, for which no split is made."""


class _SplitRequired(TypedDict):
    evidence: SplitEvidence


class InputSplit(_SplitRequired, total=False):
    """Parts of the wait for data; they sum to 1. Both absent if a stage that does both in one decides."""

    fetch: float
    """What would go away if reading took no time."""
    prep: float
    """What would remain: decoding, augmenting, batching."""


class Mark(TypedDict):
    """A `mark(name, value)` of the user's: how often, and the last value (a whole number or a float)."""

    count: int
    last: float


class _CheckpointRequired(TypedDict):
    writer: str
    path: str
    format: str
    restored: bool
    blocked_s: float
    age_s: float
    """Since it began."""


class CheckpointRecord(_CheckpointRequired, total=False):
    """One checkpoint that was written or restored."""

    files: int
    bytes: int
    background: bool
    """A thread beside the training writes it."""
    background_s: float
    """For how long that one wrote; absent while it does, and for Orbax, which does not tell."""
    apparent_bytes_per_s: float
    """Bytes ÷ the time for which the training was blocked."""
    durable_bytes_per_s: float
    """Bytes ÷ the time until all was written, the background included. No more than TensorFlow's word for it: what the
    kernel still holds in its cache counts as written."""


class _CheckpointsRequired(TypedDict):
    count: int
    seconds: float
    """For which the training was blocked by them."""
    bytes: int
    restored: int
    restored_s: float
    """For which the training was blocked by restoring."""
    last: CheckpointRecord
    """Written or restored."""


class Checkpoints(_CheckpointsRequired, total=False):
    """All since attach that were written, and how many were restored."""

    step_inflation: float
    """Median step time during a write in the background ÷ that of as long before it, less 1. Of the latest write during
    which enough steps ended."""


class TraceRecord(TypedDict):
    """One trace of a function; `changed` is empty unless it was traced before."""

    function: str
    ordinal: int
    seconds: float
    changed: str


class TracedFunction(TypedDict):
    """A function that was traced more than once, with the latest reason, or made anew and traced again and again."""

    function: str
    count: int
    changed: str
    age_s: float
    """Since it was traced again the latest time."""


class Traces(TypedDict):
    """All since attach."""

    count: int
    retraces: int
    seconds: float
    """Traces within others not counted twice."""
    last: TraceRecord
    worst: list[TracedFunction]
    """Those traced most often again, at most five; the one that was so last is among them."""


class CallbackTime(TypedDict):
    """One method of one callback, in the window, without the checkpoints and waits within: those are other phases."""

    name: str
    seconds: float
    share: float
    count: int


class _RankRequired(TypedDict):
    rank_key: str
    job: str
    pid: int
    framework: str
    program: str
    state: State
    phases: dict[str, float]
    """Shares of the covered part of the window; they sum to 1. Empty before the first data."""
    totals_s: dict[str, float]
    """Covered seconds since attach by phase."""
    age_s: float
    """Seconds since the newest data from this rank."""
    coverage: float
    """Covered part of the window, 0-1: less than 1 after drops and pauses."""
    events: int
    dropped: int
    gpus: list[str]
    notes: list[str]


class RankSnapshot(_RankRequired, total=False):
    """One rank."""

    rank: int
    local_rank: int
    world_size: int
    step: int
    """Training steps since attach. Absent before the first data, and where `known_since_s` is there."""
    evaluation_steps: int
    """Likewise."""
    known_since_s: float
    """Only where not all since attach is known, as after a restart of the daemon: for how many seconds the rank
    has been known. `totals_s`, `goodput`, `events` and `marks` are of these."""
    earlier: int
    """With `known_since_s`: events that the rank had sent before this daemon was there. In no other count."""
    steps_per_s: float
    step_ms: StepTimes
    goodput: float
    """Productive time ÷ covered time since attach."""
    open_phase: OpenPhase
    stalled_s: float
    """Only while `state` is `stalled`: seconds since its last step, at least ten times its usual step and five."""
    top_cause: TopCause
    pipeline: list[StageSnapshot]
    """Sources first."""
    input_split: InputSplit
    input_elsewhere: bool
    """Most of the wait for input is for another iterator than that of `pipeline`."""
    productive_user: float
    """The part of `user` in `phases` that is productive; absent if none is."""
    overhead: float
    """CPU time of the sampler in the rank ÷ wall time."""
    cpu: RankCpu
    straggler: StragglerSnapshot
    marks: dict[str, Mark]
    checkpoints: Checkpoints
    traces: Traces
    callbacks: list[CallbackTime]
    """The five that took most."""
    paused: bool


class _GpuRequired(TypedDict):
    index: int
    uuid: str
    name: str
    ranks: list[int]
    """The ranks whose processes use this GPU."""
    rank_keys: list[str]
    """The same, as `rank_key`s: several jobs on one node may each have a rank 0."""


class GpuValues(TypedDict, total=False):
    """What NVML may or may not tell of a GPU."""

    utilization: float
    memory_used_bytes: int
    memory_total_bytes: int
    power_w: float
    power_limit_w: float
    temperature_c: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    error: str
    """Why this GPU's other keys are missing."""


class GpuSnapshot(_GpuRequired, GpuValues):
    """One GPU."""


class CgroupSnapshot(TypedDict):
    """What the CPU limit of the daemon's cgroup, or of one around it, did in the last second or so."""

    throttled: float
    """Share of the limit's periods in which its processes were stopped."""
    throttled_s_per_s: float
    """Seconds per second that they were stopped, of all CPUs together."""


class HostSnapshot(TypedDict, total=False):
    """The node."""

    psi: dict[str, float]
    """By resource (`cpu`, `io`, `memory`): share of the last second or so in which some task waited for it."""
    cgroup: CgroupSnapshot

    cpu_percent: float
    cpu_count: int
    memory_used_bytes: int
    memory_total_bytes: int
    load_1m: float


class _FindingRequired(TypedDict):
    severity: Literal["high", "medium", "info"]
    code: str
    rank_key: str
    text: str
    """One sentence."""
    evidence: dict[str, float | int | str]
    """The numbers that it rests on."""
    advice: str
    """What to change."""


class Finding(_FindingRequired, total=False):
    """What the numbers of a rank mean."""

    rank: int
    next: str
    """Which profiler shows more."""


class DaemonSnapshot(TypedDict, total=False):
    """The daemon itself."""

    version: str
    pid: int
    uptime_s: float
    cpu_percent: float
    rss_bytes: int
    rejected: dict[str, int]
    """Messages counted and dropped, by reason."""
    gpu_status: str
    """`ok`, or why there are no GPU numbers."""


class Snapshot(TypedDict):
    """The whole node at one moment."""

    schema: int
    node: str
    time: str
    """RFC 3339, UTC."""
    monotonic_ns: int
    window_s: float
    ranks: list[RankSnapshot]
    gpus: list[GpuSnapshot]
    host: HostSnapshot
    findings: list[Finding]
    daemon: DaemonSnapshot


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as one msgpack frame."""
    packed: bytes = msgpack.packb(snapshot)
    return packed


def decode_snapshot(frame: bytes) -> Snapshot:
    """The snapshot in `frame`. Raises `ValueError` for what is none, or of another schema."""
    try:
        content = msgpack.unpackb(frame)
    except Exception as error:  # noqa: BLE001 - msgpack raises half a dozen unrelated types on bad input
        raise ValueError(f"not a snapshot: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != SNAPSHOT_SCHEMA:
        raise ValueError(f"not a snapshot of schema {SNAPSHOT_SCHEMA}")
    return cast("Snapshot", content)
