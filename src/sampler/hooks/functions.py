"""Where functions end, where gradients are computed, and where an error leaves a graph."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ...ext import _calls, _events
from ...protocol.phases import Flag, Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .graph import GraphMarks
    from .patches import Patches


_TRAINS, _SITES = "_hpcsampler_trains", "_hpcsampler_sites"


class FunctionHooks:
    """What tells inferred steps from the Python around them."""

    def __init__(self, marks: GraphMarks) -> None:
        from tensorflow.python.framework import ops
        from tensorflow.python.util import nest, tf_decorator

        self._marks = marks
        self._ops = ops
        self._nest = nest
        self._decorator = tf_decorator
        self._call_code: Any = None
        """By it a frame is one of `Function._call`. None, which no frame has, where that is not there."""
        # If it takes other arguments, it fails here, and not while tracing.
        tf_decorator.make_decorator(self._trace, lambda: None)

    def install(self, patches: Patches) -> None:
        """Wrap tracing, tapes and errors."""
        from tensorflow.python.data.ops import structured_function
        from tensorflow.python.eager import backprop
        from tensorflow.python.eager.polymorphic_function import polymorphic_function
        from tensorflow.python.framework import errors_impl, func_graph

        patches.wrap(func_graph, "func_graph_from_py_func", self._trace)
        patches.wrap(structured_function.StructuredFunctionWrapper, "__init__", self._dataset_function)
        patches.wrap(polymorphic_function.Function, "_call", self._call)
        patches.wrap(backprop.GradientTape, "gradient", self._gradient)
        patches.wrap(errors_impl.OpError, "__init__", self._error)

    def _trace(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gets elements ends with a mark: what follows in Python is no part of its last step."""
        ops = self._ops

        def func_graph_from_py_func(name: Any, python_func: Any, *args: Any, **kwargs: Any) -> Any:
            def traced(*inputs: Any, **named: Any) -> Any:
                # Noted here: a distribution strategy traces on threads of its own.
                if any(getattr(function, "_jit_compile", None) for function in self._functions_being_traced()):
                    self._marks.compiled(ops.get_default_graph())
                outputs = python_func(*inputs, **named)
                self._note_training(ops.get_default_graph())
                graph = self._marks.graph()
                if graph is not None:
                    self._note_sites(self._marks.sites_of(graph))
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

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that computes gradients makes whatever iterator it is fed from a training one, also a new one."""
        self._call_code = getattr(original, "__code__", None)
        return _calls.watched_call(original, _TRAINS, self._marks.train, _SITES)

    def _functions_being_traced(self) -> Iterator[Any]:
        """The `tf.function`s that are being called, innermost first. Walks the stack: only for while tracing."""
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the callers
        while frame is not None:
            if frame.f_code is self._call_code and (function := frame.f_locals.get("self")) is not None:
                yield function
            frame = frame.f_back  # type: ignore[assignment]

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whatever feeds a gradient is training data: that tells training from validation loops."""
        from tensorflow.python.eager.context import executing_eagerly

        marks, ops = self._marks, self._ops

        def gradient(*args: Any, **kwargs: Any) -> Any:
            if not executing_eagerly():
                marks.gradient_in(ops.get_default_graph())
            elif source := _calls.training_source():
                marks.train(source)
            return original(*args, **kwargs)

        return gradient

    def _note_training(self, graph: Any) -> None:
        """A graph has been traced. If it computes gradients, so do the functions that are being called.

        Noted here, not where the gradients are: a distribution strategy traces those on threads of its own.
        """
        if self._marks.has_gradient(graph):
            for function in self._functions_being_traced():
                object.__setattr__(function, _TRAINS, True)
            # A graph gets its elements itself, or as arguments, from what this thread consumed last.
            if not self._marks.feeds_itself(graph) and (source := _calls.last_source()):
                self._marks.train(source)

    def _note_sites(self, keys: list[int]) -> None:
        """A graph that gets elements from these has been traced, by the functions that are being called."""
        if keys:
            for function in self._functions_being_traced():
                object.__setattr__(function, _SITES, tuple({*getattr(function, _SITES, ()), *keys}))

    @staticmethod
    def _error(original: Callable[..., Any]) -> Callable[..., Any]:
        """An error that comes out of a graph (the end of the data is one) has skipped the marks after it.

        Of another thread's errors it is not known out of which graph they come: see `watched_call`.
        """
        phase, kind, flag = int(Phase.INPUT), int(Kind.END), Flag.GRAPH | Flag.ABORT

        def init(error: Any, *args: Any, **kwargs: Any) -> None:
            _events.emit(phase, kind, 0, 0, flag)
            original(error, *args, **kwargs)

        return init
