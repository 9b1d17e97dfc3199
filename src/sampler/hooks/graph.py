"""Placing graph marks while a `tf.function` is traced.

A mark is an op of our own that writes one event when the graph reaches it. It has control edges only, so that it
changes no value; and it is placed only in graphs that XLA could not have compiled anyway (they get elements from an
iterator), because XLA refuses a graph with an op that it does not know.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.phases import ROLE_TRAIN, Flag, Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..names import Names

OP, FREE_OP = "HpcsamplerMark", "HpcsamplerFreeMark"
"""TensorFlow runs ops that act on the world in the order in which they were traced, and so also the marks of the first
kind. Those of the second kind it runs when what they wait for is there: two replicas' collectives are traced one after
the other, but neither ends without the other, so a mark between them that kept the order would hang them."""
OPS = frozenset({OP, FREE_OP})
_ANNOUNCED = 128
"""Roles that are repeated, the latest: half of the sources that a daemon remembers."""


class GraphMarks:
    """Places marks in the graph that is being traced, and remembers which graph got elements where."""

    def __init__(self, names: Names) -> None:
        from tensorflow.core.framework.attr_value_pb2 import AttrValue
        from tensorflow.python.framework import func_graph, op_def_registry, ops
        from tensorflow.python.ops import array_ops
        from tensorflow.python.util import nest

        self._op_registry = op_def_registry
        self._acting: dict[str, bool] = {}
        self._attr_value = AttrValue
        self._array_ops = array_ops
        self._nest = nest
        self._ops = ops
        self._func_graph = func_graph
        self._names = names
        self._local = threading.local()
        self._sites: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()
        self._gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._compiled: weakref.WeakSet[Any] = weakref.WeakSet()
        self._done: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self.unavailable = ""
        """Why no mark can be placed in this TensorFlow; empty if they can."""
        self.trained: dict[int, None] = {}
        """Keys of the sources that gradients are computed from, oldest first."""

    def try_out(self) -> None:
        """Ask once, in a graph that nobody runs, for what tracing will ask for; raises if this TensorFlow has it not.

        All but a device by its name: TensorFlow would open its devices then, before the program could configure them.
        """
        graph = self._func_graph.FuncGraph("hpcsampler")
        with graph.as_default():
            there, number = self._array_ops.zeros((), "bool"), self._array_ops.zeros((), "int32")
            begin = self.place(Kind.BEGIN, 0, beside=there)
            end = self.place(
                Kind.END, 0, after=[begin, there], present=[there], ordinal=[number], beside=there, free=True,
            )
            self.behind(end, (there, number))
            self._nest.flatten((there, number), expand_composites=True)
            self.done_at_end(graph, 0)
            self.place_ends(graph, [there])

    # ---- where marks may be placed ------------------------------------------------------------------------------

    def graph(self) -> Any | None:
        """The function graph being traced, if marks may be placed in it.

        Not inside a tf.data function, whose waits are a data worker's, and not in a TF 1 graph.
        """
        graph = self._ops.get_default_graph()
        if (
            self.unavailable
            or not isinstance(graph, self._func_graph.FuncGraph)
            or vars(self._local).get("dataset_function", 0)
        ):
            return None
        return graph

    @contextmanager
    def dataset_function(self, depth: int) -> Iterator[None]:
        """While a tf.data function is traced (depth 1).

        The body of a loop over a dataset is one too, but runs the user's step: depth 0.
        """
        before = vars(self._local).get("dataset_function", 0)
        self._local.dataset_function = depth
        try:
            yield
        finally:
            self._local.dataset_function = before

    # ---- sites --------------------------------------------------------------------------------------------------

    def site(self, graph: Any, iterator: Any, label: str) -> int:
        """The key of `iterator` in the function that `graph` belongs to: all places that get from it share it.

        label: what is known of where it gets its elements from; may be empty.
        """
        function = self.function_of(graph)
        sites = self._sites.setdefault(function, {})
        key = sites.get(id(iterator))
        if key is None:
            key = sites[id(iterator)] = self._names.key(label or f"in {_readable(function.name)}()")
        return key

    def sites_of(self, graph: Any) -> list[int]:
        """Keys of the iterators that this function gets elements from."""
        return list(self._sites.get(graph, {}).values())

    def done_at_end(self, graph: Any, key: int) -> None:
        """At the end of `graph`, the body or a branch of a loop, it is done with an element of this site."""
        keys = self._done.setdefault(graph, [])
        if key not in keys:
            keys.append(key)

    def done_before_next(self, graph: Any, key: int) -> None:
        """The next element of this site is asked for in `graph`: what was to be done with the last is traced."""
        if key in self._done.get(graph, []):
            self._done[graph].remove(key)
            self.place_done(key, self.acting_ops())

    def place_done(self, key: int, acting: list[Any]) -> None:
        """A mark that says: done with an element. Where nothing acts, nothing tells when that is."""
        if acting:
            self.place(Kind.POINT, key, phase=Phase.STEP, after=acting)

    def place_ends(self, graph: Any, tensors: Iterable[Any]) -> None:
        """At the end of a graph whose outputs are `tensors`: what is done with, and in a function, that it ends."""
        done = self._done.pop(graph, [])
        ended = [] if self.is_control_flow(graph) else self.sites_of(graph)
        if not done and not ended:
            return  # most graphs: nothing to look through all their ops for
        acting = self.acting_ops()
        for key in done:
            self.place_done(key, acting)
        # Python gets the outputs of an outermost function all at once, so a mark may wait for all of them. Those of
        # a nested one may be used one by one.
        outermost = not isinstance(graph.outer_graph, self._func_graph.FuncGraph)
        results = [tensor for tensor in tensors if tensor.graph is graph] if outermost else []
        for key in ended:
            self.place(Kind.END, key, phase=Phase.STEP, after=[*results, *acting])

    def gradient_in(self, graph: Any) -> None:
        """Gradients are computed in `graph`: it trains, and so do the places in it, or around it, that feed it."""
        for function in self._around(graph):
            self._gradients.add(function)
            for key in self.sites_of(function):
                self.train(key)

    def compiled(self, graph: Any) -> None:
        """`graph` is traced for XLA."""
        self._compiled.add(graph)

    def is_compiled(self, graph: Any) -> bool:
        """Whether `graph`, or one around it, is traced for XLA."""
        return any(function in self._compiled for function in self._around(graph))

    def has_gradient(self, graph: Any) -> bool:
        """Whether gradients are computed in `graph`."""
        return graph in self._gradients

    def feeds_itself(self, graph: Any) -> bool:
        """Whether `graph`, or a function around it, gets elements."""
        return any(self.sites_of(function) for function in self._around(graph))

    def _around(self, graph: Any) -> Iterator[Any]:
        """`graph` and the function graphs around it, innermost first."""
        while isinstance(graph, self._func_graph.FuncGraph):
            yield graph
            graph = graph.outer_graph

    def train(self, key: int) -> None:
        """Gradients are computed from what this source yields."""
        if key not in self.trained:
            self.trained[key] = None
            _announce_role(key)

    def announce_roles(self) -> None:
        """Say which sources train: once when it shows, and again now and then for a daemon that came later."""
        for key in tuple(self.trained)[-_ANNOUNCED:]:
            _announce_role(key)

    def function_of(self, graph: Any) -> Any:
        """The function that a branch or a loop body belongs to: both are graphs of their own."""
        while self.is_control_flow(graph) and isinstance(graph.outer_graph, self._func_graph.FuncGraph):
            graph = graph.outer_graph
        return graph

    def loop_body_of(self, graph: Any) -> Any | None:
        """The body of the innermost loop that `graph` is in, within its function; None if it is in none."""
        while self.is_control_flow(graph):
            if _is_a(graph, "WhileBodyFuncGraph"):
                return graph
            graph = graph.outer_graph
        return None

    @staticmethod
    def is_control_flow(graph: Any) -> bool:
        """Whether `graph` is the body, the condition or a branch of a loop or cond."""
        return _is_a(graph, "ControlFlowFuncGraph")

    # ---- marks --------------------------------------------------------------------------------------------------

    def place(
        self,
        kind: Kind,
        key: int,
        *,
        phase: Phase = Phase.INPUT,
        value: int = 0,
        after: Iterable[Any] = (),
        present: Iterable[Any] = (),
        ordinal: Iterable[Any] = (),
        beside: Any = None,
        free: bool = False,
    ) -> Any:
        """One mark in the graph being traced.

        after: tensors or ops that must be there before the mark.
        present: scalar bool tensors; with any, the event's value is 1 if one is true, else 0.
        ordinal: at most one scalar int32 tensor, in host memory: the lower half of the event's value.
        beside: the tensor whose device the mark shares, so that no control edge crosses devices.
        free: run whenever what it waits for is there, and only if something waits for it.
        """
        flags, ordinals = list(present), list(ordinal)
        values = {
            "phase": int(phase), "kind": int(kind), "flags": Flag.GRAPH, "key": key, "value": value,
            "N": len(flags), "M": len(ordinals),
        }
        graph = self._ops.get_default_graph()
        with (
            self._ops.colocate_with(beside) if beside is not None else self._ops.device("/CPU:0"),
            self._ops.control_dependencies(list(after)),
        ):
            return graph._create_op_internal(  # noqa: SLF001 - the public makers need a generated op module
                FREE_OP if free else OP, [*flags, *ordinals], [], name="hpcsampler/mark",
                attrs={name: self._attr_value(i=number) for name, number in values.items()},
            )

    def behind(self, mark: Any, value: Any) -> Any:
        """`value`, for use after `mark`.

        Else a pool of threads that has its hands full with what is done to the value might get to the mark when all
        of that is over.
        """
        with self._ops.control_dependencies([mark]):
            return self._nest.map_structure(self._identity, value, expand_composites=True)

    def _identity(self, tensor: Any) -> Any:
        if not hasattr(tensor, "op"):
            return tensor
        with self._ops.colocate_with(tensor.op):
            return self._array_ops.identity(tensor)

    def acting_ops(self) -> list[Any]:
        """The ops traced so far in this graph that act on the world: what a step is there for.

        TensorFlow runs them all, and no output leaves the graph before they have. So a mark that waits for them,
        and for nothing else, delays nothing, and makes TensorFlow compute nothing that nobody uses.
        """
        graph = self._ops.get_default_graph()
        return [
            op for op in graph.get_operations()
            if op._control_flow_context is None and self._acts(op)  # noqa: SLF001
        ]

    def _acts(self, op: Any) -> bool:
        acts = self._acting.get(op.type)
        if acts is None:
            definition = self._op_registry.get(op.type)
            acts = (
                definition is not None
                and bool(definition.is_stateful)
                and not op.type.startswith(("Read", "Placeholder", "VarHandle", "VarIsInitialized"))
                and "Iterator" not in op.type
                and op.type not in OPS
            )
            self._acting[op.type] = acts
        return acts


def _announce_role(key: int) -> None:
    _events.emit(Phase.INPUT, Kind.POINT, key, ROLE_TRAIN)


def _is_a(graph: Any, kind: str) -> bool:
    return any(base.__name__ == kind for base in type(graph).__mro__)


def framework_library(tensorflow: Any) -> str:
    """Path of the shared library that holds TensorFlow's C API."""
    return str(Path(tensorflow.__file__).parent / "libtensorflow_framework.so.2")


def _readable(name: str) -> str:
    """A function's name as its author knows it: `__inference_train_step_123` is train_step."""
    for prefix in ("__inference_", "__forward_", "__backward_"):
        name = name.removeprefix(prefix)
    head, _, tail = name.rpartition("_")
    return head if head and tail.isdigit() else name
