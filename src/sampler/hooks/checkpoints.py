"""Checkpoints: what Keras and TensorFlow write and restore, how long that blocks, and what is written beside it."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...ext import _events
from ...protocol.incidents import TEXT_MOST, CheckpointIncident
from ...protocol.phases import Kind, Phase
from . import checkpoint_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..incidents import Incidents
    from ..names import Names
    from .patches import Patches

_WAITING_MOST = 16
"""Writes in the background that are kept in mind. TensorFlow has one at a time for each `tf.train.Checkpoint`."""


class _Local(threading.local):
    inside = False
    """A checkpoint is being written or restored on this thread: what that calls is part of it."""
    writer = ""
    """Who lets it be written, if that is known better than by what is called."""


class CheckpointHooks:
    """Wraps whatever writes or restores; of nested ones, the outermost counts."""

    def __init__(self, names: Names, incidents: Incidents) -> None:
        self._names = names
        self._incidents = incidents
        self._local = _Local()
        self._ordinals = itertools.count(1)
        self._lock = threading.Lock()
        self._in_background: Callable[[], bool] = bool  # both until TensorFlow's own are known
        self._in_graph: Callable[[], bool] = bool
        self._begun: dict[str, CheckpointIncident] = {}
        self._done: dict[str, CheckpointIncident] = {}

    # ---- what is wrapped ----------------------------------------------------------------------------------------

    def install_tensorflow(self, patches: Patches) -> None:
        """Wrap `tf.train.Checkpoint`, its manager, and `tf.saved_model.save`."""
        from tensorflow.python.checkpoint import checkpoint, checkpoint_context, checkpoint_management
        from tensorflow.python.framework import ops
        from tensorflow.python.saved_model import save

        self._in_background = checkpoint_context.in_async_metrics_context
        self._in_graph = ops.inside_function
        kind = checkpoint_files.TENSORFLOW
        owner = checkpoint.Checkpoint
        # The manager, and the thread of asynchronous checkpoints, call `_write`.
        for name in ("save", "write", "_write"):
            patches.wrap(owner, name, self._checkpoint(f"Checkpoint.{name.strip('_')}", kind))
        for name in ("restore", "read"):
            patches.wrap(owner, name, self._checkpoint(f"Checkpoint.{name}", kind, restores=True, keyword="save_path"))
        patches.wrap(owner, "sync", self._wait("Checkpoint.sync"))
        owner = checkpoint_management.CheckpointManager
        patches.wrap(owner, "save", self._checkpoint("CheckpointManager.save", kind, told=True))
        patches.wrap(
            owner, "restore_or_initialize",
            self._checkpoint("CheckpointManager.restore_or_initialize", kind, restores=True, told=True),
        )
        patches.wrap(
            save, "save_and_return_nodes", self._checkpoint("tf.saved_model.save", "saved model", keyword="export_dir"),
        )

    def install_keras(self, patches: Patches) -> None:
        """Wrap models, the library below them, and the callbacks that use them."""
        model = _first("keras.src.models.model", "keras.src.engine.training", name="Model")
        if model is None:
            patches.missing.append("keras Model.save")
        else:
            for name in ("save", "save_weights", "export"):
                patches.wrap(model, name, self._checkpoint(f"Model.{name}"))
            patches.wrap(model, "load_weights", self._checkpoint("Model.load_weights", restores=True))
        library = _module("keras.src.saving.saving_lib")
        if library is None:
            patches.missing.append("keras saving_lib")
        else:
            for name in ("save_model", "save_weights_only"):
                patches.wrap(library, name, self._checkpoint(f"keras {name}"))
            patches.wrap(library, "load_model", self._checkpoint("keras load_model", restores=True, at=0))
            patches.wrap(library, "load_weights_only", self._checkpoint("keras load_weights_only", restores=True))
        library = _module("keras.src.legacy.saving.legacy_h5_format") or _module("keras.src.saving.legacy.hdf5_format")
        if library is None:
            patches.missing.append("keras HDF5 format")
        else:
            patches.wrap(library, "save_model_to_hdf5", self._checkpoint("keras save_model"))
            patches.wrap(library, "load_model_from_hdf5", self._checkpoint("keras load_model", restores=True, at=0))
        self._install_callbacks(patches)

    def _install_callbacks(self, patches: Patches) -> None:
        callback = _first("keras.src.callbacks.model_checkpoint", "keras.src.callbacks", name="ModelCheckpoint")
        if callback is None or not patches.wrap(callback, "_save_model", self._written_by("ModelCheckpoint")):
            patches.missing.append("keras ModelCheckpoint")
        callback = _first("keras.src.callbacks.backup_and_restore", "keras.src.callbacks", name="BackupAndRestore")
        if callback is None:
            patches.missing.append("keras BackupAndRestore")
        else:
            for name in ("_save_model" if hasattr(callback, "_save_model") else "_backup", "on_train_begin"):
                patches.wrap(callback, name, self._written_by("BackupAndRestore"))
        callback = _first("keras.src.callbacks.orbax_checkpoint", name="OrbaxCheckpoint")
        if callback is not None:
            patches.wrap(callback, "_save_checkpoint", self._orbax)
            for name in ("wait_until_finished", "on_train_end"):
                patches.wrap(callback, name, self._wait(f"OrbaxCheckpoint.{name}"))

    # ---- the wrappers -------------------------------------------------------------------------------------------

    def _checkpoint(
        self, writer: str, kind: str = "", *, restores: bool = False, at: int = 1, keyword: str = "filepath",
        told: bool = False,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a wrapper.

        kind: the format; empty if the path says it.
        at, keyword: where among the arguments the path is. A result that is a text is the path, and a better one.
        told: without a path in the result, nothing was written or restored.
        """
        local = self._local

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if local.inside or not _events.recording() or self._in_graph():
                    return original(*args, **kwargs)

                def path_of(result: Any) -> Any:
                    if told or isinstance(result, str):
                        return result
                    return args[at] if len(args) > at else kwargs.get(keyword)

                return self._blocked(
                    original, args, kwargs, local.writer or writer, kind, path_of,
                    restores=restores, background=not restores and _is_asynchronous((*args, *kwargs.values())),
                )

            return call

        return make

    def _orbax(self, original: Callable[..., Any]) -> Callable[..., Any]:
        local = self._local

        def save_checkpoint(callback: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
            if local.inside or not _events.recording():
                return original(callback, step, *args, **kwargs)
            return self._blocked(
                original, (callback, step, *args), kwargs, "OrbaxCheckpoint", "orbax",
                lambda _result: f"{callback.directory}/{step}",
                restores=False, background=bool(getattr(callback, "save_on_background", True)),
            )

        return save_checkpoint

    def _wait(self, writer: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Waits for a write in the background."""
        span = _events.Span(Phase.CHECKPOINT, self._names.shared_key(writer))

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                with span:
                    return original(*args, **kwargs)

            return call

        return make

    def _written_by(self, writer: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What is written or restored within, if anything, is so by this callback."""
        local = self._local

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                before, local.writer = local.writer, writer
                try:
                    return original(*args, **kwargs)
                finally:
                    local.writer = before

            return call

        return make

    # ---- a checkpoint -------------------------------------------------------------------------------------------

    def _blocked(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], writer: str, kind: str,
        path_of: Callable[[Any], Any], *, restores: bool, background: bool,
    ) -> Any:
        local = self._local
        key = self._names.shared_key(f"{writer}, restore" if restores and "estore" not in writer else writer)
        size = 0
        local.inside = True
        began_ns = _events.now_ns()
        _events.emit(Phase.CHECKPOINT, Kind.BEGIN, key)
        written = False
        result = None
        try:
            try:
                result = original(*args, **kwargs)
                written = True
                return result
            finally:
                seconds = (_events.now_ns() - began_ns) / 1e9
                # What can't be told about it must not fail it now. One that failed is told of only where another waits
                # for its end: it is not being written any more.
                with contextlib.suppress(Exception):
                    path = _text(path_of(result)) if written or self._in_background() else ""
                    if path:
                        made = CheckpointIncident(
                            ordinal=next(self._ordinals), at_ns=began_ns, writer=writer, path=path[:TEXT_MOST],
                            format=kind or checkpoint_files.format_of(path), restored=restores, background=background,
                            blocked_s=seconds, background_s=None, complete_s=None, files=None, bytes=None,
                        )
                        size = self._tell(made, path, seconds, written=written)
        finally:
            local.inside = False
            _events.emit(Phase.CHECKPOINT, Kind.END, key, size)

    def _tell(self, made: CheckpointIncident, path: str, seconds: float, *, written: bool = True) -> int:
        """Have it sent; returns the bytes that are written, 0 if they are not known."""
        beside = replace(made, background=True, blocked_s=0.0, background_s=seconds)
        if self._in_background():
            made = _measured(beside, path) if written else beside
            with self._lock:
                begun = self._begun.pop(path, None)
                if begun is None:  # it was quicker than the call that let it begin
                    self._done[path] = made
                    _bound(self._done)
            if begun is not None:
                self._incidents.add(_joined(begun, made))
        elif made.background:
            with self._lock:
                done = self._done.pop(path, None)
                if done is None:
                    self._begun[path] = made
                    _bound(self._begun)
            made = made if done is None else _joined(made, done)
            self._incidents.add(made)
        elif not _events.drives():  # a thread of the user's own, while the training goes on
            self._incidents.add(made := _measured(replace(beside, complete_s=seconds), path))
        else:
            made = _measured(replace(made, complete_s=seconds), path)
            self._incidents.add(made)
        return made.bytes or 0


def _text(path: Any) -> str:
    """A path as text, also that of an open file; empty for what is none."""
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(getattr(path, "name", ""))


def _joined(begun: CheckpointIncident, done: CheckpointIncident) -> CheckpointIncident:
    written_s = done.background_s or 0.0
    complete_s = (done.at_ns - begun.at_ns) / 1e9 + written_s
    return replace(
        begun, background_s=written_s, complete_s=max(complete_s, 0.0), files=done.files, bytes=done.bytes,
    )


def _measured(made: CheckpointIncident, path: str) -> CheckpointIncident:
    found = checkpoint_files.measure(path, made.format)
    return made if found is None else replace(made, files=found[0], bytes=found[1])


def _bound(table: dict[str, CheckpointIncident]) -> None:
    """Forget the oldest: a write that failed is never done."""
    if len(table) > _WAITING_MOST:
        del table[next(iter(table))]


def _is_asynchronous(values: tuple[Any, ...]) -> bool:
    """Whether `tf.train.CheckpointOptions(enable_async=True)` is among the arguments."""
    return any(getattr(value, "experimental_enable_async_checkpoint", False) is True for value in values[1:])


def _module(name: str) -> Any | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _first(*modules: str, name: str) -> Any | None:
    """The class of this name in the first of these modules that has it."""
    return next((found for module in modules if (found := getattr(_module(module), name, None)) is not None), None)
