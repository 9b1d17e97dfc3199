"""Checkpoints that take a known time, in every way to write and restore one: more cases of phases.py."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from telling import SLEEP_S, sleep, telling, within

import hpcsampler

TIMES = 4
directory = tempfile.mkdtemp()


class Slow(tf.train.experimental.PythonState):
    """Something to be saved that takes its time."""

    def serialize(self) -> str:
        sleep("checkpoint")
        return "x"

    def deserialize(self, value: str) -> None:
        sleep("checkpoint")


class SlowLayer(keras.layers.Layer):
    """A layer that is slow to be saved and restored."""

    def call(self, x: Any) -> Any:
        return x

    def save_own_variables(self, store: Any) -> None:
        sleep("checkpoint")
        super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        sleep("checkpoint")
        super().load_own_variables(store)


def model(*layers: Any) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    made.compile("sgd", "mse", jit_compile=False)
    return made


def path(name: str) -> str:
    return f"{directory}/{name}"


def tf_checkpoint() -> Callable[[], None]:
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0), slow=Slow())
    saved = checkpoint.save(path("warm"))

    @within("checkpoint")
    def run() -> None:
        checkpoint.save(path("a"))
        checkpoint.write(path("b"))
        checkpoint.read(path("b"))
        checkpoint.restore(saved)

    return run


class SlowBeside(tf.train.experimental.PythonState):
    """Something that takes its time to be saved, where nobody waits for it."""

    def serialize(self) -> str:
        time.sleep(SLEEP_S * 4)
        return "x"

    def deserialize(self, value: str) -> None:
        pass


def checkpoint_in_background() -> Callable[[], None]:
    """The second has to wait for the first, the training goes on beside the others."""
    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.zeros(1000)), slow=SlowBeside())
    options = tf.train.CheckpointOptions(enable_async=True)
    checkpoint.save(path("warm"), options)
    checkpoint.sync()

    def run() -> None:
        for wait_s in (0, SLEEP_S * 6, SLEEP_S):
            with telling("checkpoint"):
                checkpoint.save(path("async"), options)
            for _ in range(int(wait_s * 100)):
                with hpcsampler.step():
                    sleep("step", 0.01)
        with telling("checkpoint"):
            checkpoint.sync()

    return run


def checkpoint_manager() -> Callable[[], None]:
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0), slow=Slow())
    manager = tf.train.CheckpointManager(checkpoint, path("managed"), 3)
    manager.save()

    @within("checkpoint")
    def run() -> None:
        for _ in range(TIMES):
            manager.save()
        manager.restore_or_initialize()

    return run


def keras_saving() -> Callable[[], None]:
    made = model(SlowLayer())
    made.save(path("m.keras"))

    @within("checkpoint")
    def run() -> None:
        made.save(path("m.keras"))
        made.save_weights(path("m.weights.h5"))
        made.load_weights(path("m.weights.h5"))
        keras.saving.save_model(made, path("n.keras"))

    return run


def keras_export_and_older_format() -> Callable[[], None]:
    made = model(SlowLayer())

    @within("checkpoint")
    def run() -> None:
        with redirect_stdout(sys.stderr):
            made.export(path("exported"))
        keras.saving.save_model(made, path("m.h5"))
        keras.saving.load_model(path("m.h5"), custom_objects={"SlowLayer": SlowLayer}, compile=False)

    return run


def orbax() -> Callable[[], None]:
    """Keras's callback with something in Orbax's place: it has JAX in tow, and is not at hand here."""
    from keras.src.callbacks import orbax_checkpoint

    def write(step: int, content: Any) -> Any:
        time.sleep(SLEEP_S)
        return SimpleNamespace(result=lambda: time.sleep(SLEEP_S))

    orbax_checkpoint.ocp = SimpleNamespace(Context=nullcontext)
    callback = orbax_checkpoint.OrbaxCheckpoint.__new__(orbax_checkpoint.OrbaxCheckpoint)
    vars(callback).update(
        directory=directory, save_on_background=True, save_weights_only=True, _async_futures=[],
        _multihost_initialized=False,
        checkpointer=SimpleNamespace(
            save_checkpointables_async=write, wait=lambda: None, close=lambda: time.sleep(SLEEP_S),
        ),
    )
    made = model()
    callback._model = made

    @within("checkpoint")
    def run() -> None:
        callback._save_checkpoint(7)
        callback.wait_until_finished()
        callback.on_train_end()

    return run


def saved_model() -> Callable[[], None]:
    """Tracing inside is part of the saving."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((2,), tf.float32)])
        def serve(self, x: Any) -> Any:
            sleep("checkpoint")
            return x + 1

    tf.saved_model.save(tf.Module(), path("warm"))
    module = Module()
    return within("checkpoint")(lambda: tf.saved_model.save(module, path("saved")))
