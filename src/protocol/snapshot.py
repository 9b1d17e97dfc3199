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
"""`killed` is: gone without a goodbye (a signal, `os._exit`, the OOM killer)."""


class StepTimes(TypedDict):
    """Milliseconds between the ends of successive steps, validation between them taken out."""

    p50: float
    p95: float
    p99: float


class OpenPhase(TypedDict):
    """What the rank is in at the moment of its newest data, and for how long without a break, in seconds."""

    phase: str
    since_s: float


class TopCause(TypedDict):
    """The largest stall of the window: its phase, what exactly, and its share."""

    phase: str
    detail: str
    share: float


class RankCpu(TypedDict, total=False):
    """Of the rank's process. percent: 100 is one core."""

    percent: float
    rss_bytes: int
    read_bytes_per_s: float
    write_bytes_per_s: float


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


class _RankRequired(TypedDict):
    rank_key: str
    job: str
    pid: int
    framework: str
    program: str
    state: State
    step: int
    """Training steps since attach."""
    evaluation_steps: int
    phases: dict[str, float]
    """Shares of the covered part of the window; they sum to 1. Empty before the first data."""
    totals_s: dict[str, float]
    """Seconds since attach by phase."""
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
    steps_per_s: float
    step_ms: StepTimes
    goodput: float
    """Productive time ÷ covered time since attach."""
    open_phase: OpenPhase
    top_cause: TopCause
    pipeline: list[StageSnapshot]
    """Sources first."""
    input_split: InputSplit
    overhead: float
    """CPU time of the sampler in the rank ÷ wall time."""
    cpu: RankCpu
    marks: dict[str, Mark]
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


class HostSnapshot(TypedDict, total=False):
    """The node."""

    cpu_percent: float
    cpu_count: int
    memory_used_bytes: int
    memory_total_bytes: int
    load_1m: float


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
