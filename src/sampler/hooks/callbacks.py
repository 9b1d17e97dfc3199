"""Which of Keras's callbacks takes the time, and in which of its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ext import _keras

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names

_STAND_INS = "_hpcsampler_stand_ins"
"""Where a list of callbacks keeps, for each method, its `Substitution`."""


class _Known(dict[str, Any]):
    """What a list of callbacks keeps there; a copy of it, pickled or not, begins anew."""

    def __reduce__(self) -> Any:
        return dict, ()


class _StandIn:
    """A callback, but one method of it is timed.

    Keras's loop over its callbacks sees it, and a callback that looks at the list it is in: to that one it is an
    instance of the same class, equal to the callback, and what is set on it is set on the callback.
    """

    def __init__(self, callback: Any, method: str, timed: Callable[..., Any]) -> None:
        vars(self).update({"_callback": callback, method: timed})

    @property  # type: ignore[misc] # what isinstance() asks
    def __class__(self) -> type:
        return type(self._callback)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._callback, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._callback, name, value)

    def __eq__(self, other: object) -> bool:
        mine = vars(self)["_callback"]
        return bool(mine == (vars(other)["_callback"] if type(other) is _StandIn else other))

    def __hash__(self) -> int:
        return hash(self._callback)


class CallbackTimer:
    """Times methods of Keras's list of callbacks, each callback under its own name.

    While one runs, the list holds stand-ins for those callbacks that do something in that method. The callbacks
    themselves, and their classes, stay as they are: they are compared, pickled and inspected.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._whole = names.shared_key("Keras CallbackList")

    def timed(self, method: str, original: Callable[..., Any]) -> _keras.ListMethod:
        """The list's method of that name, to be timed."""
        return _keras.ListMethod(original, method, self._whole, _STAND_INS, self._substitute)

    def _substitute(self, callbacks: Any, method: str) -> _keras.Substitution:
        """The callbacks, with stand-ins for those that do something in this method; none if no one does."""
        real = list(callbacks.callbacks)
        try:
            stand_ins = [self._stand_in(callback, method) for callback in real]
            found = None if all(a is b for a, b in zip(stand_ins, real, strict=True)) else stand_ins
        except Exception:  # noqa: BLE001 - whatever a callback does when it is looked at, the training must go on
            found = None
        made = _keras.Substitution(real, found)
        vars(callbacks).setdefault(_STAND_INS, _Known())[method] = made
        return made

    def _stand_in(self, callback: Any, method: str) -> Any:
        function = getattr(callback, method, None)
        label = _label(callback, method)
        if function is None or label is None:
            return callback
        return _StandIn(callback, method, _keras.TimedMethod(callback, method, self._names.shared_key(label)))


def _label(callback: Any, method: str) -> str | None:
    """`ModelCheckpoint.on_epoch_end`; None if the callback does nothing there."""
    kind = type(callback).__name__
    # Keras marks what it defines itself to do nothing. `on_batch_end` is what `on_train_batch_end` is by itself.
    for name in (method, method.replace("_train_batch_", "_batch_")):
        function = getattr(callback, name, None)
        if function is None or getattr(function, "_is_default", False):
            continue
        if name in getattr(callback, "__dict__", ()):  # a LambdaCallback's
            called = getattr(function, "__name__", "<lambda>")
            return f"{kind}.{name}" if called == "<lambda>" else f"{called}() {name}"
        return f"{kind}.{name}"
    return None
