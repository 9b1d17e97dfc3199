"""Which of Keras's callbacks takes the time, and in which of its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ext import _keras

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names


class CallbackTimer:
    """Times methods of Keras's list of callbacks, each callback under its own name.

    Keras loops over the list; from one callback to the next is the first one's time. The callbacks and their classes
    stay as they are: they are compared, pickled and inspected.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._whole = names.shared_key("Keras CallbackList")

    def timed(self, method: str, original: Callable[..., Any]) -> _keras.ListMethod:
        """The list's method of that name, to be timed."""
        return _keras.ListMethod(original, method, self._whole, self._new_key)

    def _new_key(self, callback: Any, method: str) -> int:
        label = _label(callback, method)
        return self._names.shared_key(label) if label is not None else 0


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
