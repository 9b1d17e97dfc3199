"""Tracing and retracing of `tf.function`s: their time, and why; and the first run of those that XLA compiles."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from ...ext import _calls, _events
from ...protocol.incidents import TEXT_MOST, TraceIncident
from ...protocol.phases import Kind, Phase
from . import retraces

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..incidents import Incidents
    from ..names import Names
    from .patches import Patches

_COMPARED = 4
"""Former traces that a new one is compared with, the latest."""


_FOR_XLA = "_XlaMustCompile"
"""The attribute of a function of `jit_compile=True`."""


class _Depth(threading.local):
    depth = 0
    for_xla = False


class TraceHooks:
    """Wraps the one place in which TensorFlow makes a graph of a Python function for a set of arguments."""

    def __init__(self, names: Names, incidents: Incidents) -> None:
        self._names = names
        self._incidents = incidents
        self._local = _Depth()

    def install(self, patches: Patches) -> None:
        """Wrap it."""
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        patches.wrap(tracing_compilation, "_create_concrete_function", self._trace)

    def _trace(self, original: Callable[..., Any]) -> Callable[..., Any]:
        local = self._local

        def create(function_type: Any, *args: Any, **kwargs: Any) -> Any:
            if not _events.recording():
                return original(function_type, *args, **kwargs)
            options = args[2] if len(args) > 2 else kwargs.get("tracing_options")  # noqa: PLR2004 - the fourth
            name = str(getattr(options, "name", "function"))
            key = self._names.shared_key(name)
            local.depth += 1
            local.for_xla = local.for_xla or _is_for_xla(options)
            began_ns = _events.now_ns()
            _events.emit(Phase.COMPILE, Kind.BEGIN, key)
            try:
                return original(function_type, *args, **kwargs)
            finally:
                _events.emit(Phase.COMPILE, Kind.END, key)
                local.depth -= 1
                if local.depth == 0 and local.for_xla:
                    local.for_xla = False
                    _calls.compiles_now(self._names.shared_key(f"XLA {name}"))
                seconds = (_events.now_ns() - began_ns) / 1e9
                # Whatever an unknown version's types do when they are looked at, the trace is good.
                with contextlib.suppress(Exception):
                    self._incidents.add(
                        _incident(name, began_ns, seconds, function_type, options, nested=local.depth > 0),
                    )

        return create


def _is_for_xla(options: Any) -> bool:
    attributes = getattr(options, "attributes", None)
    return isinstance(attributes, dict) and bool(attributes.get(_FOR_XLA))


def _incident(
    name: str, began_ns: int, seconds: float, function_type: Any, options: Any, *, nested: bool,
) -> TraceIncident:
    cache = getattr(options, "function_cache", None)
    keyed = list(getattr(cache, "_primary", {}).items())  # the new one is not in it yet
    new = _arguments(function_type)
    recent = [_arguments(entry.function_type) for _, entry in keyed[-_COMPARED:]]
    # A function that creates variables is traced twice, first to create them.
    scopes = [getattr(getattr(known[0], "scope_type", None), "name", "") for known, _ in keyed]
    after_creation = (
        getattr(options.scope_type, "name", "") == "NO_VARIABLE_CREATION" and scopes == ["VARIABLE_CREATION"]
        and recent == [new]
    )
    retrace = bool(keyed) and not after_creation
    return TraceIncident(
        at_ns=began_ns,
        function=name[:TEXT_MOST],
        ordinal=len(keyed) + 1,
        seconds=seconds,
        nested=nested,
        retrace=retrace,
        changed=retraces.explain(recent, new)[:TEXT_MOST] if retrace else "",
    )


def _arguments(function_type: Any) -> dict[str, Any]:
    return {name: parameter.type_constraint for name, parameter in function_type.parameters.items()}
