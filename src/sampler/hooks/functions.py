"""Where functions end, where gradients are computed, and where an error leaves a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.phases import Flag, Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import GraphMarks
    from .patches import Patches


class FunctionHooks:
    """What tells inferred steps from the Python around them."""

    def __init__(self, marks: GraphMarks) -> None:
        from tensorflow.python.framework import ops
        from tensorflow.python.util import nest, tf_decorator

        self._marks = marks
        self._ops = ops
        self._nest = nest
        self._decorator = tf_decorator

    def install(self, patches: Patches) -> None:
        """Wrap tracing, tapes and errors."""
        from tensorflow.python.data.ops import structured_function
        from tensorflow.python.eager import backprop
        from tensorflow.python.framework import errors_impl, func_graph

        patches.wrap(func_graph, "func_graph_from_py_func", self._trace)
        patches.wrap(structured_function.StructuredFunctionWrapper, "__init__", self._dataset_function)
        patches.wrap(backprop.GradientTape, "gradient", self._gradient)
        patches.wrap(errors_impl.OpError, "__init__", self._error)

    def _trace(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gets elements ends with a mark: what follows in Python is no part of its last step."""

        def func_graph_from_py_func(name: Any, python_func: Any, *args: Any, **kwargs: Any) -> Any:
            def traced(*inputs: Any, **named: Any) -> Any:
                outputs = python_func(*inputs, **named)
                graph = self._marks.graph()
                if graph is not None:
                    tensors = self._nest.flatten(outputs, expand_composites=True)
                    self._marks.place_ends(graph, [t for t in tensors if hasattr(t, "op")])
                return outputs

            marked = self._decorator.make_decorator(python_func, traced)
            return original(name, marked, *args, **kwargs)

        return func_graph_from_py_func

    def _dataset_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def structured_function(*args: Any, **kwargs: Any) -> None:
            with self._marks.dataset_function(1):
                original(*args, **kwargs)

        return structured_function

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whatever feeds a gradient is training data: that tells training from validation loops."""
        marks, ops = self._marks, self._ops

        def gradient(*args: Any, **kwargs: Any) -> Any:
            # A graph that gets its elements itself, or else (the elements came as arguments, or this is eager
            # code) the iterator that this thread consumed last.
            if not marks.gradient_in_graph(ops.get_default_graph()) and (source := _events.last_source()):
                marks.train(source)
            return original(*args, **kwargs)

        return gradient

    @staticmethod
    def _error(original: Callable[..., Any]) -> Callable[..., Any]:
        """An error that comes out of a graph (the end of the data is one) has skipped the marks after it."""
        phase, kind, flag = int(Phase.INPUT), int(Kind.END), Flag.GRAPH | Flag.ABORT

        def init(error: Any, *args: Any, **kwargs: Any) -> None:
            _events.emit(phase, kind, 0, 0, flag)
            original(error, *args, **kwargs)

        return init
