"""A SavedModel made while attached loads anywhere: marks are taken out before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .graph import OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .patches import Patches


def install(patches: Patches, notes: list[str]) -> bool:
    """Wrap the building of the graphs that `tf.saved_model.save` and Keras' `export` write; False if that can't be."""
    from tensorflow.python.saved_model import save

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def build_meta_graph(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                remove_marks(result[0])
            except Exception as error:  # noqa: BLE001 - an unknown version's: what is saved may be needed all the same
                notes.append(f"a SavedModel was written that loads only beside hpcsampler: {error!r}"[:300])
            return result

        return build_meta_graph

    return patches.wrap(save, "_build_meta_graph", wrap)


def remove_marks(meta_graph: Any) -> int:
    """Turn each mark of a MetaGraphDef into a NoOp that keeps its control edges; returns how many there were."""
    graph = meta_graph.graph_def
    count = _neutralize(graph.node, ())
    for function in graph.library.function:
        count += _neutralize(function.node_def, [argument.name for argument in function.signature.input_arg])
    if count:
        from tensorflow.python.framework import op_def_registry

        operations = meta_graph.meta_info_def.stripped_op_list.op
        for operation in [operation for operation in operations if operation.name in OPS]:
            operations.remove(operation)
        if all(operation.name != "NoOp" for operation in operations):
            operations.add().CopyFrom(op_def_registry.get("NoOp"))
    return count


def _neutralize(nodes: Iterable[Any], arguments: Iterable[str]) -> int:
    count = 0
    arguments = set(arguments)
    for node in nodes:
        if node.op not in OPS:
            continue
        # A NoOp has no inputs: what the mark waited for as data, the NoOp waits for as control.
        waits = {"^" + name.removeprefix("^").split(":")[0] for name in node.input}
        node.op = "NoOp"
        node.attr.clear()
        node.input[:] = sorted(wait for wait in waits if wait[1:] not in arguments)
        count += 1
    return count
