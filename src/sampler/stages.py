"""From what tf.data counts in a pipeline to its stages: own time, ceiling, buffer fill. Pure.

tf.data keeps a model of each running pipeline for its autotuning (`tensorflow/core/framework/model.proto`): a tree of
nodes from the root down to the sources, each with the elements that it yielded and the time that it worked for them,
in nanoseconds, summed over threads, without the time of its inputs and without its waits.

The ceiling of a stage is what it could yield by itself, in batches per second (elements of the root)::

    ceiling = threads x elements ÷ processing time ÷ elements per batch

as tf.data's own analysis and Plumber (Kuchnik et al., MLSys 2022) have it. Elements per batch are the product of the
ratios on the way to the root: a stage's own where tf.data knows it (a batch of 32 takes 32), else as counted.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ..protocol.stages import STAGE_TEXT_MOST, STAGES_MOST, Role, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_INTERLEAVE, _ASYNC_INTERLEAVE = 1, 2
_KNOWN_RATIOS: Final = (3, 4)
_ASYNC: Final = (2, 4, 6)
"""Numbers of `NodeClass` in model.proto."""
_INTERLEAVES: Final = (_INTERLEAVE, _ASYNC_INTERLEAVE)
_HIDDEN: Final = {"Root", "Options", "Model", "MaxIntraOpParallelism", "PrivateThreadPool", "MemoryCache"}
"""Nodes that do nothing to an element."""
_RENAMED: Final = {
    "MemoryCacheImpl": "Cache", "MemoryReader": "Cache", "MemoryWriter": "Cache", "FileReader": "Cache",
    "FileWriter": "Cache", "ForeverRepeat": "Repeat", "FiniteRepeat": "Repeat", "FiniteTake": "Take",
    "FiniteSkip": "Skip", "FromTensor": "Tensor", "NonSerializableDataset": "Dataset",
}
_FUSED: Final = {"MapAndBatch": ("Map", "Batch"), "ShuffleAndRepeat": ("Shuffle", "Repeat")}
_OPAQUE: Final = {"Generator", "DataService"}
"""Sources that may prepare as well as read, where tf.data doesn't see it."""
_CALLS_FUNCTIONS: Final = {"Map", "MapAndBatch", "Filter", "Generator", "Scan", "TakeWhile", "GroupByWindow"}
"""What these call runs in TensorFlow's pool of threads, so never on more of them than that has."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the model: an iterator inside the pipeline, with its counts since it began."""

    name: str
    kind: int
    """`NodeClass` of model.proto."""
    elements: int
    processing_ns: int
    bytes_produced: int
    buffered: int
    parallelism: float | None
    autotuned: bool
    """Whether tf.data chooses the parallelism."""
    buffer_size: float | None
    ratio: float
    """Elements that it takes from an input for one of its own; 0 if there is no fixed number."""
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """One transformation as the user wrote it."""

    kind: str
    name: str
    """The dataset's `name=`, else the function's name; empty if it has neither."""
    reads: bool
    """Its function reads files."""
    internal: bool = False
    """TensorFlow's own, within something that the user wrote. It may be gone from what runs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The model of one iterator at one time."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    root: int
    nodes: Mapping[int, Node]

    @property
    def batches(self) -> int:
        """Elements that the pipeline has yielded."""
        return self.nodes[self.root].elements


@dataclass(frozen=True, slots=True)
class Judged:
    """A reading and what it says."""

    reading: Reading
    stages: list[Stage]
    """Sources first."""
    self_ns: Mapping[str, float]
    """Time per element by place in the pipeline, as last known."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A stage before it has its user's name. All instances of one place in the pipeline are one stage."""

    stage: Stage
    kind: str
    depth: int
    """How many interleaves it is inside of."""
    interleave: int
    """Which row that interleave is, counted from the root; -1 if there is none."""
    place: int


@functools.lru_cache(256)
def readable(name: str) -> str:
    """`ParallelMapV2` is ParallelMap."""
    plain = re.sub(r"(Dataset)?(V\d+)?$", "", name.strip("_")) or name
    return _RENAMED.get(plain, plain)


@functools.lru_cache(256)
def kind_of(name: str) -> str:
    """What a stage does, however many threads do it: tf.data runs a Map as a ParallelMap if it sees fit."""
    return readable(name).removeprefix("Legacy").removeprefix("Parallel")


def judge(
    before: Judged | None, now: Reading, written: Sequence[Written] = (), threads: int = 1,
) -> Judged:
    """What the stages did between two readings of one iterator.

    A stage that yielded nothing in between is judged by what is known from before, else by all that it ever did, and
    so are all on the first reading. threads: size of the pool that the pipeline's functions run in.
    """
    walk = _Walk(before, now, threads)
    walk.go([now.root], _Way("", width=1.0, segment=0, per_batch=1.0))
    stages = _named(walk.rows, written)
    if len(stages) > STAGES_MOST:
        slowest = sorted(stages, key=lambda stage: stage.ceiling_per_s or float("inf"))[:STAGES_MOST]
        stages = [stage for stage in stages if stage in slowest][:STAGES_MOST]
    return Judged(now, stages, walk.self_ns)


@dataclass(frozen=True, slots=True)
class _Way:
    """How the walk came to a place."""

    path: str
    width: float
    """How many instances of the place work at the same time."""
    segment: int
    """Whoever shares it shares a thread."""
    per_batch: float | None
    """Elements of the place in one batch."""
    depth: int = 0
    interleave: int = -1


class _Walk:
    """Goes from the root down to the sources and writes down what it passes on the way back."""

    def __init__(self, before: Judged | None, now: Reading, threads: int) -> None:
        self._before = before.reading if before is not None else None
        self._now = now
        self._threads = threads
        self._segments = 0
        self._places = 0
        self._known = before.self_ns if before is not None else {}
        self.self_ns: dict[str, float] = {}
        self.rows: list[_Row] = []

    def go(self, ids: Sequence[int], way: _Way) -> None:
        """Pass one place of the pipeline: `ids` are its instances, more than one below an interleave."""
        nodes = [self._now.nodes[identity] for identity in ids]
        first = nodes[0]
        way = replace(way, path=f"{way.path}/{first.name}")
        place, self._places = self._places, self._places + 1
        own = below = way.segment
        width = way.width
        if first.kind in _ASYNC and first.inputs:
            below = self._new_segment()
            if first.parallelism is not None:
                own = self._new_segment()  # its functions run in threads of their own
            if first.kind != _ASYNC_INTERLEAVE:
                width = max(width, float(len(ids)))  # instances that work ahead do so all at once
        at_once = width * _parallelism(nodes)
        if first.kind in _INTERLEAVES:
            inner_width = at_once if first.kind == _ASYNC_INTERLEAVE else width
            under = replace(way, width=inner_width, segment=below, depth=way.depth + 1, interleave=place)
            inputs = self._sources(ids, nodes, replace(way, width=1.0, segment=below), under)
        else:
            inputs = self._inputs(ids, nodes, replace(way, width=width, segment=below))
        for group, through in inputs:
            self.go(group, through)
        if first.name not in _HIDDEN:
            stage = self._stage(ids, nodes, replace(way, width=at_once, segment=own))
            self.rows.append(_Row(stage, kind_of(first.name), way.depth, way.interleave, place))

    def _inputs(self, ids: Sequence[int], nodes: list[Node], way: _Way) -> Iterator[tuple[list[int], _Way]]:
        """Each input of a place, and how to get there."""
        first = nodes[0]
        for number in range(max(len(node.inputs) for node in nodes)):
            for group in self._alike(node.inputs[number] for node in nodes if number < len(node.inputs)):
                if first.kind in _KNOWN_RATIOS and first.ratio > 0:
                    taken = None if way.per_batch is None else way.per_batch * first.ratio
                else:
                    taken = self._counted(ids, group, way.per_batch)
                yield group, replace(way, path=f"{way.path}.{number}", per_batch=taken)

    def _sources(
        self, ids: Sequence[int], nodes: list[Node], way: _Way, under: _Way,
    ) -> Iterator[tuple[list[int], _Way]]:
        """What an interleave takes its sources from (`way` leads there), and what is in them (`under`).

        The former is its first input. Once it has come to its end it is gone, and the first input is a source like
        the others.
        """
        outer: list[int] = []
        inner: list[int] = []
        for node in nodes:
            inputs = [identity for identity in node.inputs if identity in self._now.nodes]
            source_like_the_next = len(inputs) > 1 and self._shape(inputs[0]) == self._shape(inputs[1])
            start = 0 if source_like_the_next else 1
            outer += inputs[:start]
            inner += inputs[start:]
        if outer:
            yield outer, replace(way, per_batch=self._counted(ids, outer, way.per_batch))
        for group in self._alike(inner):
            yield group, replace(under, path=f"{under.path}*")

    def _stage(self, ids: Sequence[int], nodes: list[Node], way: _Way) -> Stage:
        first = nodes[0]
        kind = kind_of(first.name)
        self_ns = self._own_time(ids, way.path)
        at_once = min(way.width, float(max(self._threads, 1))) if kind in _CALLS_FUNCTIONS else way.width
        bytes_per_s = None
        if self._before is not None and self._now.at_ns > self._before.at_ns:
            bytes_per_s = self._grown(ids, self._before)[2] * 1e9 / (self._now.at_ns - self._before.at_ns)
        sizes = [node.buffer_size for node in nodes if node.buffer_size is not None]
        role = Role.PREPARES
        if not first.inputs and first.kind not in _INTERLEAVES:
            role = Role.BOTH if kind in _OPAQUE else Role.READS
        return Stage(
            stage=readable(first.name)[:STAGE_TEXT_MOST],
            name="",
            self_ms=None if self_ns is None else self_ns / 1e6,
            parallelism=_parallelism(nodes),
            autotuned=any(node.autotuned for node in nodes),
            ceiling_per_s=at_once * 1e9 / self_ns / way.per_batch if self_ns and way.per_batch else None,
            per_batch=way.per_batch,
            buffered=sum(max(node.buffered, 0) for node in nodes),
            buffer_size=round(sum(sizes)) if sizes else None,
            bytes_per_s=bytes_per_s,
            role=role,
            segment=way.segment,
        )

    def _own_time(self, ids: Sequence[int], path: str) -> float | None:
        """Nanoseconds per element: since the last reading, else as known from before, else of all time."""
        elements, processing_ns, _ = self._grown(ids, self._before)
        if elements <= 0 or processing_ns <= 0:
            if path in self._known:
                self.self_ns[path] = self._known[path]
                return self._known[path]
            elements, processing_ns, _ = self._grown(ids, None)
        if elements <= 0 or processing_ns <= 0:
            return None
        self.self_ns[path] = processing_ns / elements
        return self.self_ns[path]

    def _grown(self, ids: Iterable[int], before: Reading | None) -> tuple[int, int, int]:
        """Elements, processing time (ns) and bytes since `before`; an instance that began since counts in full."""
        elements = processing_ns = produced = 0
        for identity in ids:
            node = self._now.nodes[identity]
            was = before.nodes.get(identity) if before is not None else None
            elements += node.elements - (was.elements if was else 0)
            processing_ns += node.processing_ns - (was.processing_ns if was else 0)
            produced += node.bytes_produced - (was.bytes_produced if was else 0)
        return elements, processing_ns, max(produced, 0)

    def _counted(self, parents: Iterable[int], children: Iterable[int], per_batch: float | None) -> float | None:
        """Elements of `children` per batch, where only counting tells; None before there is something to count."""
        parents, children = list(parents), list(children)
        for before in (self._before, None):
            made, taken = self._grown(parents, before)[0], self._grown(children, before)[0]
            if per_batch is not None and made > 0 and taken > 0:
                return per_batch * taken / made
        return None

    def _shape(self, identity: int) -> tuple[str, ...]:
        """Names from a node down along its first inputs."""
        names: list[str] = []
        while identity in self._now.nodes and len(names) < STAGES_MOST:
            node = self._now.nodes[identity]
            names.append(node.name)
            if not node.inputs:
                break
            identity = node.inputs[0]
        return tuple(names)

    def _alike(self, ids: Iterable[int]) -> list[list[int]]:
        groups: dict[str, list[int]] = {}
        for identity in ids:
            if identity in self._now.nodes:
                groups.setdefault(self._now.nodes[identity].name, []).append(identity)
        return list(groups.values())

    def _new_segment(self) -> int:
        self._segments += 1
        return self._segments


def _parallelism(nodes: Sequence[Node]) -> float:
    return max(node.parallelism or 1.0 for node in nodes)


def _named(rows: list[_Row], written: Sequence[Written]) -> list[Stage]:
    """Give each stage the name that its user knows it by. Inside an interleave only the interleave's is known."""
    found_at = _matched(rows, written)
    by_place = {row.place: found_at[number].name for number, row in enumerate(rows) if number in found_at}
    found = []
    for number, row in enumerate(rows):
        one = found_at.get(number)
        name = one.name if one else ""
        if row.depth and by_place.get(row.interleave):
            name = f"in {by_place[row.interleave]}"
        found.append(row.stage.called(name, reads=bool(one and one.reads)))
    return found


def _matched(rows: list[_Row], written: Sequence[Written]) -> dict[int, Written]:
    """Which row is which transformation.

    tf.data fuses, parallelises, adds and drops stages, so it goes by kind: the second of three Maps is the second of
    three. If there aren't as many as were written, with or without those that TensorFlow wrote itself, none is
    matched.
    """
    ran: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if not row.depth:
            for kind in _FUSED.get(row.kind, (row.kind,)):
                ran.setdefault(kind, []).append(number)
    if rows and rows[0].kind == "Cache":  # full: what filled it runs no more
        last = max((number for number, one in enumerate(written) if one.kind == "Cache"), default=0)
        written = written[last:]
    found: dict[int, Written] = {}
    for kind in sorted(ran, key=lambda kind: kind != "Map"):  # of fused stages, the function's name says most
        numbers = ran[kind]
        every = [one for one in written if one.kind == kind]
        for alike in (every, [one for one in every if not one.internal]):
            if len(alike) == len(numbers):
                for number, one in zip(numbers, alike, strict=True):
                    if number not in found or not found[number].name:
                        found[number] = one
                break
    return found
