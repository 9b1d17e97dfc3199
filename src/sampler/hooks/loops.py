"""`for x in dataset` inside a `tf.function`.

AutoGraph turns that loop into `dataset.scan(body).reduce(…)`: no op gets an element that could be marked. But the
body runs once per element, so its end is where the wait for the next begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.phases import Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import GraphMarks
    from .patches import Patches


class LoopHooks:
    """Marks the ends of the bodies of loops over datasets."""

    def __init__(self, marks: GraphMarks) -> None:
        from tensorflow.python.framework import tensor
        from tensorflow.python.util import nest

        self._marks = marks
        self._nest = nest
        self._tensor = tensor.Tensor

    def install(self, patches: Patches) -> None:
        """Wrap AutoGraph's translation of the loop."""
        from tensorflow.python.autograph.operators import control_flow
        from tensorflow.python.data.ops import dataset_ops

        table = control_flow.for_loop_registry._registry  # noqa: SLF001 - it has no way to replace an entry
        patches.wrap_item(table, dataset_ops.DatasetV2, self._for_statement, takes=7)

    def _for_statement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def for_statement(
            dataset: Any, extra_test: Any, body: Any, get_state: Any, set_state: Any, names: Any, options: Any,
        ) -> Any:
            graph = self._marks.graph()
            if graph is None:
                return original(dataset, extra_test, body, get_state, set_state, names, options)
            site = self._marks.site(graph, dataset, "")

            def marked_body(element: Any) -> None:
                with self._marks.dataset_function(0):
                    end = self._marks.place(Kind.END, site, value=1)
                    body(self._marks.behind(end, element))
                    after = [*self._tensors(get_state()), *self._marks.acting_ops()]
                    done = self._marks.place(Kind.POINT, site, phase=Phase.STEP, after=after)
                    self._marks.place(Kind.BEGIN, site, after=[done])

            self._marks.place(Kind.BEGIN, site, after=[*self._tensors(get_state()), *self._marks.acting_ops()])
            original(dataset, extra_test, marked_body, get_state, set_state, names, options)
            # A loop that carries no state is told to be over by the op that runs it alone.
            self._marks.place(Kind.END, site, after=[*self._tensors(get_state()), *self._marks.acting_ops()])
            return None

        return for_statement

    def _tensors(self, state: Any) -> list[Any]:
        return [t for t in self._nest.flatten(state, expand_composites=True) if isinstance(t, self._tensor)]
