"""Advice for an input pipeline, from the stage that limits it, and against retraces, from what changed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_AUTOTUNE: Final = "num_parallel_calls=tf.data.AUTOTUNE"
_PREFETCH: Final = "prefetch(tf.data.AUTOTUNE) as the last stage"
_CACHE: Final = "cache() if the data fits in memory"
_UNSEEN: Final = f"{_PREFETCH}, {_AUTOTUNE} in map and interleave, {_CACHE}"
"""Where nothing is known of the pipeline."""
_UNEXPLAINED: Final = (
    "no stage takes as long as the wait: look for one that sleeps or waits unseen by tf.data, a Python function or a"
    " network file system"
)
_UNCOUNTED: Final = "tf.data has not counted yet what its stages take"
_STARVED: Final = "give the rank more cores{cache}; more parallel calls help little while its threads wait for a CPU"
_STARVED_CACHE: Final = ", or do the work once: cache() after the costly map, or prepare the data beforehand"

# By how a stage's name begins, the longest match first. {cache} is there unless there is a cache behind the stage.
_BY_STAGE: Final[Mapping[str, str]] = {
    "ParallelMap": "raise num_parallel_calls of {stage} (now {parallelism}){cache}, or make its function cheaper;"
                   " batch() before a map of cheap operations",
    "Map": "give {stage} " + _AUTOTUNE + ": it makes one element at a time",
    "MapAndBatch": "raise num_parallel_calls of {stage} (now {parallelism}), or make its function cheaper",
    "ParallelInterleave": "raise cycle_length and num_parallel_calls of {stage} (now {parallelism}), or more and"
                          " smaller files",
    "Interleave": "give {stage} " + _AUTOTUNE + " and a larger cycle_length",
    "FlatMap": "use interleave(…, " + _AUTOTUNE + ") instead of flat_map: it opens one source at a time",
    "Generator": "a Python generator runs under the GIL, one element at a time: write the data as TFRecords and map"
                 " over them, or let several tf.data service workers run it",
    "TFRecord": "read several files at once, interleave(tf.data.TFRecordDataset, " + _AUTOTUNE + "), from a faster"
                " file system{fits}",
    "Shuffle": "a smaller shuffle buffer, or shuffle file names and keep the buffer for the rest",
    "Batch": "batch(…, " + _AUTOTUNE + "), or fewer and larger tensors per element",
    "ParallelBatch": "fewer and larger tensors per element: copying them into the batch is what takes the time",
    "PaddedBatch": "bucket_by_sequence_length before it, so that less is padded",
    "Cache": "the first pass fills it; if later ones are slow too, cache() to a local disk or to memory",
    "DataService": "more tf.data service workers: this stage waits for them",
    "Filter": "filter before the costly stages, or write the filtered data once",
}
# Of those whose parallelism tf.data chooses: it has raised it as far as it helps.
_BY_TUNED_STAGE: Final[Mapping[str, str]] = {
    "ParallelMap": "make the function of {stage} cheaper{cache}: tf.data tunes its parallelism already (now"
                   " {parallelism}); batch() before a map of cheap operations; {waits}",
    "MapAndBatch": "make the function of {stage} cheaper: tf.data tunes its parallelism already (now {parallelism});"
                   " {waits}",
    "ParallelInterleave": "a larger cycle_length for {stage}, or more and smaller files: tf.data tunes its parallelism"
                          " already (now {parallelism})",
}
_WAITS: Final = (
    "if it waits more than it computes, a number above the cores' as num_parallel_calls, and as large an"
    " options.threading.private_threadpool_size"
)
_INSIDE: Final = "more files at once (a larger cycle_length of the interleave), a faster file system{fits}"
"""For a source that is within an interleave."""
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

    bottleneck: the stage with the lowest ceiling, None where none explains the waits; stages: all, source to root;
    empty where they are not known. starved: its threads wait for CPUs; split: shares of the wait for reading (`fetch`)
    and preparing (`prep`).
    """
    if not stages:
        return _UNSEEN
    if bottleneck is None:
        counted = any("ceiling_per_s" in stage for stage in stages)
        return "; ".join([_UNEXPLAINED if counted else _UNCOUNTED, *_lacking(stages)])
    behind = stages[stages.index(bottleneck) + 1 :]
    cached = _any(behind, "Cache")
    fetching = split is not None and split.get("fetch", 0.0) >= _FETCH
    if starved and not fetching:
        return _STARVED.format(cache="" if cached else _STARVED_CACHE)
    advice = _for_stage(bottleneck, fetching=fetching).format(
        stage=stage_name(bottleneck),
        parallelism=f"{bottleneck['parallelism']:g}" if "parallelism" in bottleneck else "unknown",
        waits=_WAITS,
        cache="" if cached else ", cache() after it",
        fits="" if _any(stages, "Cache") else f", or {_CACHE}",
    ) or "; ".join(_lacking(stages)) or _UNEXPLAINED
    if not _ahead([bottleneck, *behind]) and _PREFETCH not in advice:
        advice += f"; and {_PREFETCH}: nothing is made ahead now"
    return advice


def stage_name(stage: Mapping[str, Any]) -> str:
    """`ParallelMap decode`."""
    return " ".join(str(part) for part in (stage["stage"], stage.get("name")) if part)


def _for_stage(bottleneck: Mapping[str, Any], *, fetching: bool) -> str:
    """The advice for a stage, with braces to fill; empty if there is none for its kind."""
    stage = str(bottleneck["stage"])
    tables = (_BY_TUNED_STAGE, _BY_STAGE) if bottleneck.get("autotuned") else (_BY_STAGE,)
    for table in tables:
        if names := [name for name in table if stage.startswith(name)]:
            best = max(names, key=len)
            inside = best == "TFRecord" and _is_inside(bottleneck)
            return _INSIDE if inside else table[best]
    if stage.startswith(_SOURCES) or fetching:
        return _INSIDE if _is_inside(bottleneck) else _BY_STAGE["TFRecord"].replace("tf.data.TFRecordDataset, ", "")
    return ""


def _is_inside(stage: Mapping[str, Any]) -> bool:
    return str(stage.get("name", "")).startswith("in ")


def _lacking(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a pipeline could have and has not."""
    lacks = []
    if not _ahead(stages[-1:]):
        lacks.append(_PREFETCH)
    if any(str(stage["stage"]).startswith(("Map", "Interleave", "FlatMap")) for stage in stages
           if stage["stage"] != "MapAndBatch"):
        lacks.append(f"{_AUTOTUNE} in map and interleave")
    if not _any(stages, "Cache"):
        lacks.append(_CACHE)
    return lacks


def _any(stages: Iterable[Mapping[str, Any]], kind: str) -> bool:
    return any(kind in str(stage["stage"]) for stage in stages)


def _ahead(stages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of these works while nobody waits for it."""
    return any(_any(stages, kind) for kind in ("Prefetch", "Parallel", "MapAndBatch", "DataService"))


def retrace_advice(changed: str, *, by_xla: bool = False) -> str:
    """What keeps that from changing which changed, as `retraces.explain` says it in the rank.

    by_xla: it is XLA that compiles anew, which it does for each shape, also where a function was traced for all.
    """
    before, arrow, after = changed.partition(": ")[2].partition(";")[0].partition(" → ")
    first, second = _TENSOR.fullmatch(before), _TENSOR.fullmatch(after)
    for words, advice in _BY_WORDS.items():
        if words in changed:
            return advice
    if first and second:
        if first[1] != second[1]:
            return "give it one dtype: tf.cast where the argument is made, or input_signature=[…] on the tf.function"
        if by_xla:
            return (
                "keep the shape: batch(drop_remainder=True), padding to a few fixed sizes; XLA compiles for each shape,"
                " so None in input_signature or reduce_retracing=True only hides it"
            )
        return (
            "pin the shape: batch(drop_remainder=True), padded shapes, input_signature=[…] with None for what varies,"
            " or reduce_retracing=True on the tf.function"
        )
    if arrow and _PLAIN.fullmatch(before) and _PLAIN.fullmatch(after):
        return "pass a tensor instead of a Python value (tf.constant(…)): each value is traced anew"
    return (
        "pin what changes: batch(drop_remainder=True) or padded shapes, input_signature=[…] on the tf.function, tensors"
        " instead of Python numbers as arguments"
    )


_GIVEN: Final = "call it with the same arguments each time: a default that is left out once is another signature"
_BY_WORDS: Final[Mapping[str, str]] = {
    "a new tf.function": "make the tf.function, or the dataset whose function it is, once, outside of the loop",
    ": another ": "pass the same object each time, or make what changes of it a tensor: each object is traced anew",
    ": newly given": _GIVEN,
    ": no longer given": _GIVEN,
}
_TENSOR: Final = re.compile(r"(\w+)\[[\d,?…]*\]")
"""`float32[8,4]`: its dtype, then its shape."""
_PLAIN: Final = re.compile(r"-?[\d.]+(e-?\d+)?|True|False|None|'.*'")
"""A Python value."""
