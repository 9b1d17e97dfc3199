"""What the stages of a rank's input pipeline say about its wait for data. Pure.

DS-Analyzer (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021) calls the stall that
remains when all data come from memory the prep stall, and what is added when they are read from storage the fetch
stall, and measures both by training three times. Here the same differences are taken of what the stages would allow,
in milliseconds per batch, while the training runs once::

    time(stages) = max(compute + stages in the consumer's own thread, slowest segment)
    prep stall   = time(all but the sources) - compute
    fetch stall  = time(all) - time(all but the sources)

where a segment is what shares a thread, its time the sum of 1 ÷ ceiling of its stages, and compute what a batch takes
apart from waiting for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpcsampler.protocol.stages import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcsampler.protocol.messages import Pipeline
    from hpcsampler.protocol.snapshot import InputSplit, RankCpu, StageSnapshot
    from hpcsampler.protocol.stages import Stage

PIPELINE_S: Final = 45.0
"""A reading is shown for so long: pipelines of many nodes are read every 20 s."""
_LEAST_SHARE: Final = 0.05
"""Below this share of input waits there is nothing to explain."""
_SLACK: Final = 1.5
"""How much faster than what was seen a stage may be, and still be the reason for it."""
_OWN_THREAD: Final = 0
"""The segment of the stages that run in the consumer's thread."""


class LivePipeline:
    """The last that a rank said of its pipeline. What a snapshot shows of it is made once, not for each snapshot."""

    def __init__(self, message: Pipeline, came_ns: int) -> None:
        self.message = message
        self.came_ns = came_ns
        self._shown = [_shown(stage) for stage in message.stages]

    def shown(self, slowest: int | None) -> list[StageSnapshot]:
        """The stages as a viewer reads them, sources first."""
        if slowest is None:
            return self._shown
        marked = self._shown.copy()
        marked[slowest] = {**marked[slowest], "bottleneck": True}
        return marked


def bottleneck(pipeline: Pipeline, input_share: float) -> int | None:
    """Which stage has the lowest ceiling; None if that can't be the reason for the waiting that there is.

    The stage that is waited for yields no more than the training takes while it waits. Where even the lowest ceiling
    is far above, something else is slow that tf.data doesn't count: a stage that sleeps, a function that has not
    come back yet.
    """
    ceilings = {
        number: stage.ceiling_per_s for number, stage in enumerate(pipeline.stages) if stage.ceiling_per_s is not None
    }
    if not ceilings:
        return None
    lowest = min(ceilings, key=ceilings.__getitem__)
    if input_share >= _LEAST_SHARE and pipeline.batches_per_s is not None:
        # Without any overlap the training waits 1 ÷ ceiling for each batch, so the ceiling is rate ÷ share.
        most = _SLACK * pipeline.batches_per_s / input_share
        if ceilings[lowest] > most:
            return None
    return lowest


def _shown(stage: Stage) -> StageSnapshot:
    shown: StageSnapshot = {
        "stage": stage.stage,
        "parallelism": stage.parallelism,
        "autotuned": stage.autotuned,
        "buffered": stage.buffered,
        "bottleneck": False,
    }
    if stage.name:
        shown["name"] = stage.name
    if stage.self_ms is not None:
        shown["self_ms"] = stage.self_ms
    if stage.ceiling_per_s is not None:
        shown["ceiling_per_s"] = stage.ceiling_per_s
    if stage.per_batch is not None:
        shown["per_batch"] = stage.per_batch
    if stage.buffer_size is not None:
        shown["buffer_size"] = stage.buffer_size
    if stage.bytes_per_s is not None:
        shown["bytes_per_s"] = stage.bytes_per_s
    return shown


def full_name(stage: Stage) -> str:
    """`ParallelMap decode`."""
    return f"{stage.stage} {stage.name}".rstrip()


def input_split(pipeline: Pipeline, slowest: int | None, input_share: float, cpu: RankCpu | None) -> InputSplit | None:
    """Which part of the wait for data is reading, which is preparing; None where there is no wait to split.

    Only the evidence, if a stage that does both in one takes a part in it.
    """
    if slowest is None or input_share < _LEAST_SHARE or not pipeline.batches_per_s:
        return None
    compute_ms = 1000 * (1 - input_share) / pipeline.batches_per_s
    everything_ms = _batch_ms(pipeline.stages, compute_ms)
    prepared_ms = _batch_ms([s for s in pipeline.stages if s.role != Role.READS], compute_ms)
    found: InputSplit = {"evidence": {"bottleneck": full_name(pipeline.stages[slowest]), "compute_ms": compute_ms}}
    evidence = found["evidence"]
    sources = [s.bytes_per_s for s in pipeline.stages if s.role == Role.READS and s.bytes_per_s is not None]
    if sources:
        evidence["source_bytes_per_s"] = sum(sources)
    if cpu is not None and "read_bytes_per_s" in cpu:
        evidence["read_bytes_per_s"] = cpu["read_bytes_per_s"]
    plain_ms = _batch_ms([s for s in pipeline.stages if s.role != Role.BOTH], compute_ms)
    if plain_ms < everything_ms:
        both = [s for s in pipeline.stages if s.role == Role.BOTH]
        evidence["undivided"] = full_name(max(both, key=_stage_ms))
        return found
    if everything_ms <= compute_ms:
        return None
    found["fetch"] = (everything_ms - prepared_ms) / (everything_ms - compute_ms)
    found["prep"] = 1 - found["fetch"]
    return found


def _stage_ms(stage: Stage) -> float:
    return 1000 / stage.ceiling_per_s if stage.ceiling_per_s else 0.0


def _batch_ms(stages: Sequence[Stage], compute_ms: float) -> float:
    """Milliseconds per batch that a training with these stages would take."""
    segments = {_OWN_THREAD: compute_ms}
    for stage in stages:
        segments[stage.segment] = segments.get(stage.segment, 0.0) + _stage_ms(stage)
    return max(segments.values())
