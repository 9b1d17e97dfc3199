"""Collectives of TensorFlow's own: when this rank arrives at each, and when it leaves.

`MultiWorkerMirroredStrategy` and `MirroredStrategy` send all reductions and gathers through
`CollectiveReplicaLauncher`, which gives each a running number when it is called. By that number the ranks find each
other, so it is the same on all of them, whatever else happens: with the number of the group it names a collective
across ranks, and needs no counting here.

A mark in a graph with a collective on the CPU is safe from XLA: TensorFlow compiles none there. On GPUs it does, so
there collectives are left alone.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.phases import COLLECTIVE_KEYS, Kind, Phase, collective_value
from .graph import FREE_OP

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import GraphMarks
    from .patches import Patches


@dataclass(slots=True)
class _Call:
    """A collective that is being launched or traced."""

    key: int
    value: int
    """Of its events, without the ordinal."""
    needs: list[Any]
    """What must be there for it to begin: the tensor that it reduces or gathers, and what TensorFlow runs before it."""
    graph: Any
    """That it is traced in; None if it is launched right now."""
    begun: bool = False
    ordinal: Any = None


class CollectiveHooks:
    """Wraps the launcher of a replica's collectives."""

    def __init__(self, marks: GraphMarks) -> None:
        from tensorflow.python.eager import context

        self._marks = marks
        self._context = context.context()
        self._local = threading.local()
        self._traced: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()
        self._last: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
        """Of each graph, by device: the name of the op of the collective that was traced last."""

    def install(self, patches: Patches) -> None:
        """Wrap what each reduction and gather comes through, and where it gets its number."""
        from tensorflow.python.distribute import cross_device_utils
        from tensorflow.python.framework import auto_control_deps

        # Neither kept in order nor alive for their own sake, as TensorFlow treats the older collectives themselves.
        if not patches.wrap(auto_control_deps, "ASYNC_STATEFUL_OPS", lambda types: types | {FREE_OP}):
            return
        launcher = cross_device_utils.CollectiveReplicaLauncher
        patches.wrap(launcher, "_next_instance_key", self._number)
        patches.wrap(launcher, "all_reduce", self._collective)
        patches.wrap(launcher, "_all_gather", self._collective)

    def _collective(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def collective(launcher: Any, input_tensor: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._call(launcher, input_tensor)
            if call is None:
                return original(launcher, input_tensor, *args, **kwargs)
            before = vars(self._local).get("call")
            self._local.call = call
            try:
                result = original(launcher, input_tensor, *args, **kwargs)
            finally:
                self._local.call = before
                if call.begun and call.graph is None:
                    _events.emit(Phase.COLLECTIVE, Kind.END, call.key, call.value)
            if not call.begun or call.graph is None:
                return result
            self._last.setdefault(call.graph, {})[launcher._device] = result.op.name  # noqa: SLF001
            end = self._marks.place(
                Kind.END, call.key, phase=Phase.COLLECTIVE, value=call.value, after=[result], ordinal=[call.ordinal],
                free=True,
            )
            return self._marks.behind(end, result)

        return collective

    def _call(self, launcher: Any, tensor: Any) -> _Call | None:
        """What is known of a collective before it has its number; None if it is left alone."""
        device = str(getattr(launcher, "_device", ""))
        group, members = getattr(launcher, "_group_key", None), getattr(launcher, "_group_size", None)
        if "CPU" not in device.upper() or not isinstance(group, int) or not isinstance(members, int):
            return None
        graph, place, needs = None, 0, [tensor]
        if not self._context.executing_eagerly():
            graph = self._marks.graph()
            if graph is None or self._marks.is_compiled(graph):
                return None
            place = self._place(graph, device)
            before = self._last.get(graph, {}).get(device)
            if before is not None and getattr(launcher, "_ordering_token", None) is not None:
                # TensorFlow runs those of one replica one after the other. Until then this one has not begun, though
                # what it reduces may be there: the loss is, when the gradients are still being computed.
                needs.append(graph.get_operation_by_name(before))
        key = COLLECTIVE_KEYS | (group & (COLLECTIVE_KEYS - 1))
        return _Call(key, collective_value(members, place, 0), needs, graph)

    def _place(self, graph: Any, device: str) -> int:
        """Which of the program's collectives this is: its name is that of the function and the order in it.

        Each replica of a rank traces the same ones.
        """
        traced = self._traced.setdefault(graph, {})
        order = traced[device] = traced.get(device, 0) + 1
        return zlib.crc32(f"{graph.name} {order}".encode())

    def _number(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The number of the collective is asked for right before it is launched, and it does not start without.

        So it starts behind the mark that depends on its inputs, because its number does.
        """

        def next_instance_key(launcher: Any) -> Any:
            number = original(launcher)
            call: _Call | None = vars(self._local).get("call")
            # A plain int is not a running number but the same one at each call of the function: it tells no call
            # from the next.
            if call is None or call.begun or not hasattr(number, "dtype"):
                return number
            call.begun = True
            if call.graph is None:
                call.value |= int(number)
                _events.emit(Phase.COLLECTIVE, Kind.BEGIN, call.key, call.value)
                return number
            call.ordinal = number
            begin = self._marks.place(
                Kind.BEGIN, call.key, phase=Phase.COLLECTIVE, value=call.value, after=call.needs, ordinal=[number],
                free=True,
            )
            return self._marks.behind(begin, number)

        return next_instance_key
