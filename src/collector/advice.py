"""Advice for an input pipeline, from the stage that limits it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_AUTOTUNE: Final = "num_parallel_calls=tf.data.AUTOTUNE"
_STARVED: Final = (
    "give the rank more cores, or do the work once: cache() after the costly map, or prepare the data beforehand;"
    " more parallel calls can't help while its threads wait for a CPU"
)
_UNSEEN: Final = (
    f"prefetch(tf.data.AUTOTUNE) as the pipeline's last stage, {_AUTOTUNE} in map and interleave, cache() if the data"
    " fits in memory"
)

# By how a stage's name begins, the longest match first.
_BY_STAGE: Final[Mapping[str, str]] = {
    "ParallelMap": "raise num_parallel_calls of {stage} (now {parallelism}), cache() after it, or make its function"
                   " cheaper; batch() before a map of cheap operations",
    "Map": "give {stage} " + _AUTOTUNE + ": it makes one element at a time",
    "MapAndBatch": "raise num_parallel_calls of {stage} (now {parallelism}), or make its function cheaper",
    "ParallelInterleave": "raise cycle_length and num_parallel_calls of {stage} (now {parallelism}), or more and"
                          " smaller files",
    "Interleave": "give {stage} " + _AUTOTUNE + " and a larger cycle_length",
    "FlatMap": "use interleave(…, " + _AUTOTUNE + ") instead of flat_map: it opens one source at a time",
    "Generator": "a Python generator runs under the GIL, one element at a time: write the data as TFRecords and map"
                 " over them, or let several tf.data service workers run it",
    "TFRecord": "read several files at once, interleave(tf.data.TFRecordDataset, " + _AUTOTUNE + "), from a faster"
                " file system, or cache() if it fits in memory",
    "Shuffle": "a smaller shuffle buffer, or shuffle file names and keep the buffer for the rest",
    "Batch": "batch(…, " + _AUTOTUNE + "), or fewer and larger tensors per element",
    "ParallelBatch": "fewer and larger tensors per element: copying them into the batch is what takes the time",
    "PaddedBatch": "bucket_by_sequence_length before it, so that less is padded",
    "Cache": "the first pass fills it; if later ones are slow too, cache() to a local disk or to memory",
    "DataService": "more tf.data service workers: this stage waits for them",
    "Filter": "filter before the costly stages, or write the filtered data once",
}
_SOURCES: Final = ("TextLine", "FixedLength", "CSV", "Sql")
_FETCH: Final = 0.5
"""From this share of the input wait on, reading is what it waits for."""


def input_advice(
    bottleneck: Mapping[str, Any] | None,
    stages: Sequence[Mapping[str, Any]],
    *,
    starved: bool,
    split: Mapping[str, Any] | None,
) -> str:
    """What to change about a pipeline that keeps its rank waiting.

    bottleneck: the stage with the lowest ceiling, None where stages are not known; stages: all, source to root.
    starved: its threads wait for CPUs; split: shares of the wait for reading (`fetch`) and preparing (`prep`).
    """
    if bottleneck is None:
        return _UNSEEN
    fetching = split is not None and split.get("fetch", 0.0) >= _FETCH
    if starved and not fetching:
        return _STARVED
    stage = str(bottleneck["stage"])
    names = [name for name in _BY_STAGE if stage.startswith(name)]
    if names:
        label = " ".join(str(part) for part in (stage, bottleneck.get("name")) if part)
        advice = _BY_STAGE[max(names, key=len)].format(stage=label, parallelism=bottleneck.get("parallelism", "?"))
    elif stage.startswith(_SOURCES) or fetching:
        advice = _BY_STAGE["TFRecord"].replace("tf.data.TFRecordDataset, ", "")
    else:
        advice = _UNSEEN
    if stages and not any("Prefetch" in str(other["stage"]) for other in stages):
        advice += "; and prefetch(tf.data.AUTOTUNE) as the last stage: nothing is made ahead now"
    return advice
