"""Keras: steps, evaluation and callbacks, without a callback to add."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...ext import _events, _keras
from ...protocol.phases import Kind, Phase
from .callbacks import CallbackTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names
    from .patches import Patches

_TRACED_BEFORE = (
    "a model was trained before attach(): its waits for input are not seen until it is traced again"
    " (compile() it anew, or attach() earlier)"
)
_WHOLE, _BATCH = 0, 1
"""Keys of evaluation events: the whole of it, and each batch, so that batches can be counted."""


class KerasHooks:
    """Wraps the loops of `fit`, `evaluate` and `predict`, and the `*_on_batch` methods.

    The bounds of a step are the calls that Keras makes to its own list of callbacks around it. Prediction counts as
    evaluation: productive, but no training step.
    """

    def __init__(self, notes: list[str], names: Names) -> None:
        self._notes = notes
        self._timer = CallbackTimer(names)
        self._batches = _keras.Batches(_BATCH)
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, patches: Patches) -> None:
        """Wrap the Keras that is imported: 3, or 2 as it came with TensorFlow 2.15."""
        callback_list, trainer = _classes()
        if callback_list is None or trainer is None:
            patches.missing.append("keras trainer")
            return
        for part, phase in (("train", Phase.STEP), ("test", Phase.EVALUATION), ("predict", Phase.EVALUATION)):
            for edge, bound in (("begin", _keras.batch_begin), ("end", _keras.batch_end)):
                method = f"on_{part}_batch_{edge}"
                patches.wrap(callback_list, method, functools.partial(self._bound, bound, method, phase), takes=3)
        for name in ("train_begin", "train_end", "epoch_begin", "epoch_end", "test_begin", "test_end",
                     "predict_begin", "predict_end"):
            patches.wrap(callback_list, f"on_{name}", functools.partial(self._between, f"on_{name}"))
        patches.wrap(trainer, "fit", self._fit)
        patches.wrap(trainer, "evaluate", self._evaluation)
        patches.wrap(trainer, "predict", self._evaluation)
        patches.wrap(trainer, "train_on_batch", self._train_on_batch)
        patches.wrap(trainer, "test_on_batch", self._evaluate_on_batch)
        patches.wrap(trainer, "predict_on_batch", self._evaluate_on_batch)

    # ---- steps --------------------------------------------------------------------------------------------------

    def _bound(
        self, bound: Callable[..., Any], method: str, phase: Phase, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        made: Callable[..., Any] = bound(self._timer.timed(method, original), self._batches, phase)
        return made

    def _between(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _keras.between(self._timer.timed(method, original), self._batches)

    def _train_on_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        step = _events.StepSpan(1)

        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            with step:
                return original(model, *args, **kwargs)

        return train_on_batch

    # ---- evaluation and prediction ------------------------------------------------------------------------------

    def _evaluation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluation(model: Any, *args: Any, **kwargs: Any) -> Any:
            self._batches.leave()
            with _EVALUATION:
                return original(model, *args, **kwargs)

        return evaluation

    def _evaluate_on_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            _events.emit(Phase.EVALUATION, Kind.BEGIN, _BATCH)
            done = 0
            try:
                result = original(model, *args, **kwargs)
                done = 1
            finally:
                _events.emit(Phase.EVALUATION, Kind.END, _BATCH, done)
            return result

        return on_batch

    # ---- around -------------------------------------------------------------------------------------------------

    def _fit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            driver = _events.set_driver(threading.get_ident(), trains=True)
            if model not in self._seen:
                self._seen.add(model)
                if getattr(model, "train_function", None) is not None and _TRACED_BEFORE not in self._notes:
                    self._notes.append(_TRACED_BEFORE)
            try:
                return original(model, *args, **kwargs)
            finally:
                self._batches.leave()
                _events.set_driver(driver)

        return fit


_EVALUATION = _events.Span(Phase.EVALUATION, _WHOLE)


def _classes() -> tuple[Any, Any]:
    """Keras' list of callbacks and its trainer, or None for what this Keras does not have."""
    try:
        from keras.src.callbacks.callback_list import CallbackList
    except ImportError:
        try:
            from keras.src.callbacks import CallbackList
        except ImportError:
            return None, None
    try:
        from keras.src.backend.tensorflow.trainer import TensorFlowTrainer as Trainer
    except ImportError:
        try:
            from keras.src.engine.training import Model as Trainer
        except ImportError:
            return None, None
    return CallbackList, Trainer
