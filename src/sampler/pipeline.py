"""Reading tf.data's model of the pipeline that feeds the training, on the sender's thread."""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .stages import Judged, Node, Reading, Written, judge, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.stages import Stage
    from .hooks.iterators import OpenIterator

_COST_MOST = 0.0005
"""Part of a core that reading may cost: a pipeline with many nodes is read less often."""
_REST_MOST_S = 20.0
_ITERATORS_MOST = 8
"""Iterators that are read at a time: those that train, and the newest."""
_NODES_MOST = 4096
_DATASETS_MOST = 64
_BYTES_MOST = 1 << 20
_READS_FILES = {"ReadFile"}
_FUNCTIONS = ("_map_func", "_predicate", "_scan_func")
_LIBRARIES = ("tensorflow.", "keras.")
_ON_DEVICE = "_PerDeviceGenerator"
"""What a distributed iterator hands to a device. Its own pipeline is on the host, where nothing asks for its model."""

PipelineReading = tuple[list[int], bool, float | None, "list[Stage]"]
"""The fields of a `pipeline` message from `keys` on."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What does not change about a dataset."""

    on_device: bool
    written: list[Written]
    threads: int
    """Size of the pool that its functions run in."""


class PipelineReader:
    """Says now and then how the pipeline that feeds the training is doing. All of it on one thread."""

    def __init__(self, open_iterators: Callable[[], list[OpenIterator]]) -> None:
        import tensorflow as tf
        from tensorflow.python.eager import context
        from tensorflow.python.ops import gen_experimental_dataset_ops

        self.unavailable = ""
        """What this TensorFlow lacks; empty if nothing."""
        self._open_iterators = open_iterators
        self._context = context.context()
        self._threading = tf.config.threading
        # The op itself: the public function wants the iterator, which must not be held while it runs.
        self._get_model = getattr(gen_experimental_dataset_ops, "iterator_get_model_proto", None)
        if self._get_model is None or not hasattr(tf.data.experimental, "get_model_proto"):
            self.unavailable = "tf.data.experimental.get_model_proto (stages of the input pipeline)"
        else:
            from tensorflow.core.framework import model_pb2

            self._proto = model_pb2.ModelProto
        self._last: dict[weakref.ref[Any], Judged] = {}
        self._without_model: weakref.WeakSet[Any] = weakref.WeakSet()
        self._facts: weakref.WeakKeyDictionary[Any, _Facts] = weakref.WeakKeyDictionary()
        self._rest_until_s = 0.0
        self.cost_s = 0.0
        """CPU time of the last reading."""

    def read(self) -> PipelineReading | None:
        """Read the pipeline that feeds the training; None if there is none, or it is not time yet. Never raises."""
        begin_s, used_s = time.monotonic(), time.thread_time()
        if begin_s < self._rest_until_s:
            return None
        try:
            found = self._read()
        except Exception:  # noqa: BLE001 - whatever an unknown version answers: what it can't tell is absent
            found = None
        self.cost_s = time.thread_time() - used_s
        self._rest_until_s = begin_s + min(self.cost_s / _COST_MOST, _REST_MOST_S)
        return found

    def _read(self) -> PipelineReading | None:
        # With asynchronous eager execution the answer would wait for all that the training has asked for before.
        if not self._context.executing_eagerly() or self._context.is_async():
            return None
        living = [one for one in self._open_iterators() if not self._facts_of(one.dataset).on_device]
        tried = living if len(living) <= _ITERATORS_MOST else [
            *[one for one in living if one.trains][-_ITERATORS_MOST // 2 :], *living[-_ITERATORS_MOST // 2 :],
        ]
        readings: dict[weakref.ref[Any], tuple[OpenIterator, Reading]] = {}
        for one in tried:
            reading = self._model(one)
            if reading is not None:
                readings[one.reference] = (one, reading)
        if not readings:
            self._last = {}
            return None
        before = self._last
        one, now = max(
            readings.values(),
            key=lambda pair: (pair[0].trains, pair[1].batches - _batches(before.get(pair[0].reference))),
        )
        was = before.get(one.reference)
        batches_per_s = None
        if was is not None and now.at_ns > was.reading.at_ns:
            batches_per_s = (now.batches - was.reading.batches) * 1e9 / (now.at_ns - was.reading.at_ns)
        facts = self._facts_of(one.dataset)
        judged = judge(was, now, facts.written, facts.threads)
        self._last = {
            reference: Judged(reading, [], before[reference].self_ns if reference in before else {})
            for reference, (_, reading) in readings.items()
        } | {one.reference: judged}
        return one.keys, len(living) == 1, batches_per_s, judged.stages

    def _model(self, one: OpenIterator) -> Reading | None:
        if self._get_model is None or one.dataset in self._without_model:
            return None
        try:
            answer = self._get_model(one.resource).numpy()
        except Exception:  # noqa: BLE001 - not found: autotuning is off, and nothing counts; it stays so
            self._without_model.add(one.dataset)
            return None
        if len(answer) > _BYTES_MOST:
            return None
        at_ns = time.monotonic_ns()
        model = self._proto.FromString(answer)
        if len(model.nodes) > _NODES_MOST or model.output not in model.nodes:
            return None
        return Reading(at_ns, model.output, {number: node_of(node) for number, node in model.nodes.items()})

    def _facts_of(self, dataset: Any) -> _Facts:
        facts = self._facts.get(dataset)
        if facts is None:
            parts = _parts(dataset)
            facts = self._facts[dataset] = _Facts(
                any(type(part).__name__.endswith(_ON_DEVICE) for part in parts),
                [written(part) for part in parts],
                dataset.options().threading.private_threadpool_size
                or self._threading.get_inter_op_parallelism_threads()
                or len(os.sched_getaffinity(0)),
            )
        return facts


def node_of(node: Any) -> Node:
    """One node of a `ModelProto`."""
    parameters = {parameter.name: parameter for parameter in node.parameters}
    threads, buffer = parameters.get("parallelism"), parameters.get("buffer_size")
    return Node(
        name=node.name,
        kind=node.node_class,
        elements=node.num_elements,
        processing_ns=node.processing_time,
        bytes_produced=node.bytes_produced,
        buffered=node.buffered_elements,
        parallelism=None if threads is None else _now(threads),
        autotuned=threads is not None and threads.tunable,
        buffer_size=None if buffer is None else _now(buffer),
        ratio=node.ratio,
        inputs=tuple(node.inputs),
    )


def _now(parameter: Any) -> float:
    """What runs. Of what tf.data tunes, `value` is what it thinks of next."""
    value: float = parameter.state_value if parameter.tunable and parameter.state_value > 0 else parameter.value
    return value


def written(dataset: Any) -> Written:
    """A dataset as its user wrote it."""
    wrapped = next((found for name in _FUNCTIONS if (found := getattr(dataset, name, None)) is not None), None)
    function = getattr(wrapped, "_func", None)
    internal = f"{getattr(function, '__module__', None)}.".startswith(_LIBRARIES)
    name = getattr(dataset, "_name", None) or ("" if internal else _function_name(function))
    return Written(kind_of(type(dataset).__name__), str(name), _reads_files(wrapped), internal)


def _function_name(function: Any) -> str:
    """A function's name; of a lambda, where it is."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", "")
    if name == "<lambda>" and code is not None:
        return f"lambda {os.path.basename(code.co_filename)}:{code.co_firstlineno}"  # noqa: PTH119 - cheaper
    return name


def _reads_files(wrapped: Any) -> bool:
    graph = getattr(getattr(wrapped, "function", None), "graph", None)
    return graph is not None and any(op.type in _READS_FILES for op in graph.get_operations())


def _parts(dataset: Any) -> list[Any]:
    """A dataset and all that it is made from, sources first."""
    order: list[Any] = []
    waiting = [dataset]
    while waiting and len(order) < _DATASETS_MOST:
        part = waiting.pop()
        order.append(part)
        waiting.extend(part._inputs())  # noqa: SLF001 - the public view of a chain does not exist
    # Root first and last inputs first, turned round: each after its inputs, and these in their order.
    return order[::-1]


def _batches(judged: Judged | None) -> int:
    return judged.reading.batches if judged is not None else 0
