"""Which of Keras's callbacks takes the time, and in which of its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names

_STAND_INS = "_hpcsampler_stand_ins"
"""Where a list of callbacks keeps, for each method: the ids of those that it had, and who stands in for them."""


class _Known(dict[str, Any]):
    """What a list of callbacks keeps there; a copy of it, pickled or not, begins anew."""

    def __reduce__(self) -> Any:
        return dict, ()


_NONE = _Known()


class _StandIn:
    """A callback, but one method of it is timed. Nobody but Keras's loop over its callbacks ever sees it."""

    def __init__(self, callback: Any, method: str, timed: Callable[..., Any]) -> None:
        self.__dict__ = {"_callback": callback, method: timed}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._callback, name)


class CallbackTimer:
    """Times methods of Keras's list of callbacks, each callback under its own name.

    While one runs, the list holds stand-ins for those callbacks that do something in that method. The callbacks
    themselves, and their classes, stay as they are: they are compared, pickled and inspected.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._all = _events.Span(Phase.CALLBACK, names.shared_key("Keras CallbackList"))

    def timed(self, method: str, original: Callable[..., Any]) -> Callable[..., None]:
        """Make of the list's method of that name one that is timed."""
        span, recording, renew = self._all, _events.recording, self._renew

        def call(callbacks: Any, *args: Any, **kwargs: Any) -> None:
            with span:
                stand_ins = None
                if recording():
                    real = callbacks.callbacks
                    known = callbacks.__dict__.get(_STAND_INS, _NONE).get(method)
                    # What stands in holds on to the callbacks, so none of those can have another's id.
                    stand_ins = known[1] if known and known[0] == [*map(id, real)] else renew(callbacks, method)
                if stand_ins is None:
                    original(callbacks, *args, **kwargs)
                    return
                callbacks.callbacks = stand_ins
                try:
                    original(callbacks, *args, **kwargs)
                finally:
                    if callbacks.callbacks is stand_ins:
                        callbacks.callbacks = real

        return call

    def _renew(self, callbacks: Any, method: str) -> list[Any] | None:
        """The callbacks, with stand-ins for those that do something in this method; None if none does."""
        real = callbacks.callbacks
        stand_ins = [self._stand_in(callback, method) for callback in real]
        found = None if all(a is b for a, b in zip(stand_ins, real, strict=True)) else stand_ins
        callbacks.__dict__.setdefault(_STAND_INS, _Known())[method] = [*map(id, real)], found
        return found

    def _stand_in(self, callback: Any, method: str) -> Any:
        function = getattr(callback, method, None)
        label = _label(callback, method)
        if function is None or label is None:
            return callback
        span = _events.Span(Phase.CALLBACK, self._names.shared_key(label))

        def timed(*args: Any, **kwargs: Any) -> Any:
            with span:
                return getattr(callback, method)(*args, **kwargs)

        return _StandIn(callback, method, timed)


def _label(callback: Any, method: str) -> str | None:
    """`ModelCheckpoint.on_epoch_end`; None if the callback does nothing there."""
    kind = type(callback).__name__
    # Keras marks what it defines itself to do nothing. `on_batch_end` is what `on_train_batch_end` is by itself.
    for name in (method, method.replace("_train_batch_", "_batch_")):
        function = getattr(callback, name, None)
        if function is None or getattr(function, "_is_default", False):
            continue
        if name in vars(callback):  # a LambdaCallback's
            called = getattr(function, "__name__", "<lambda>")
            return f"{kind}.{name}" if called == "<lambda>" else f"{called}() {name}"
        return f"{kind}.{name}"
    return None
