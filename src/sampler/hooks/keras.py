"""Keras: steps, evaluation and callbacks, without a callback to add."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.phases import Flag, Kind, Phase
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
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._batch_begin = 0
        self._step_open = False

    def install(self, patches: Patches) -> None:
        """Wrap the Keras that is imported: 3, or 2 as it came with TensorFlow 2.15."""
        callback_list, trainer = _classes()
        if callback_list is None or trainer is None:
            patches.missing.append("keras trainer")
            return
        patches.wrap(callback_list, "on_train_batch_begin", self._train_batch_begin)
        patches.wrap(callback_list, "on_train_batch_end", self._train_batch_end)
        for part in ("test", "predict"):
            for name, make in (("begin", self._other_batch_begin), ("end", self._other_batch_end)):
                method = f"on_{part}_batch_{name}"
                patches.wrap(callback_list, method, functools.partial(make, method))
        for name in ("train_begin", "train_end", "epoch_begin", "epoch_end", "test_begin", "test_end",
                     "predict_begin", "predict_end"):
            patches.wrap(callback_list, f"on_{name}", functools.partial(self._callbacks, f"on_{name}"))
        patches.wrap(trainer, "fit", self._fit)
        patches.wrap(trainer, "evaluate", self._evaluation)
        patches.wrap(trainer, "predict", self._evaluation)
        patches.wrap(trainer, "train_on_batch", self._train_on_batch)
        patches.wrap(trainer, "test_on_batch", self._evaluate_on_batch)
        patches.wrap(trainer, "predict_on_batch", self._evaluate_on_batch)

    # ---- steps --------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        _events.emit(Phase.STEP, Kind.BEGIN)
        self._step_open = True

    def _end_step(self, value: int, flags: int = 0) -> None:
        if self._step_open:
            self._step_open = False
            _events.emit(Phase.STEP, Kind.END, 0, value, flags)

    def _train_batch_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        run = self._timer.timed("on_train_batch_begin", original)

        def on_train_batch_begin(callbacks: Any, batch: int, logs: Any = None) -> None:
            run(callbacks, batch, logs)
            self._batch_begin = batch
            self._begin_step()

        return on_train_batch_begin

    def _train_batch_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        run = self._timer.timed("on_train_batch_end", original)

        def on_train_batch_end(callbacks: Any, batch: int, logs: Any = None) -> None:
            # With steps_per_execution > 1 this many steps at most; the marks in the graph count the elements that
            # really came, and win.
            self._end_step(_distance(self._batch_begin, batch))
            run(callbacks, batch, logs)

        return on_train_batch_end

    def _train_on_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        step = _events.StepSpan(1)

        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            with step:
                return original(model, *args, **kwargs)

        return train_on_batch

    # ---- evaluation and prediction ------------------------------------------------------------------------------

    def _other_batch_begin(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        run = self._timer.timed(method, original)

        def on_batch_begin(callbacks: Any, batch: int, logs: Any = None) -> None:
            run(callbacks, batch, logs)
            self._batch_begin = batch
            _events.emit(Phase.EVALUATION, Kind.BEGIN, _BATCH)

        return on_batch_begin

    def _other_batch_end(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        run = self._timer.timed(method, original)

        def on_batch_end(callbacks: Any, batch: int, logs: Any = None) -> None:
            _events.emit(Phase.EVALUATION, Kind.END, _BATCH, _distance(self._batch_begin, batch))
            run(callbacks, batch, logs)

        return on_batch_end

    def _evaluation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluation(model: Any, *args: Any, **kwargs: Any) -> Any:
            self._end_step(0, Flag.EXACT)  # the data ended inside it
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

    def _callbacks(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        run = self._timer.timed(method, original)

        def call(callbacks: Any, *args: Any, **kwargs: Any) -> None:
            self._end_step(0, Flag.EXACT)  # the data ended inside it
            run(callbacks, *args, **kwargs)

        return call

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
                self._end_step(0, Flag.EXACT)  # an exception left it open
                _events.set_driver(driver)

        return fit


_EVALUATION = _events.Span(Phase.EVALUATION, _WHOLE)


def _distance(begin: int, end: object) -> int:
    """Steps from batch `begin` to batch `end`, both included. Keras 3 tells both ends as indices."""
    return max(1, int(end) - begin + 1) if isinstance(end, int) else 1


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
