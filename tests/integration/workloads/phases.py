"""Phases with known times, alone and mixed: what each case injects, it injects by a sleep in the very place.

`python phases.py CASE…` attaches, runs each case, and prints one JSON line for it: when it began and ended, and for how
many seconds each phase was on, by its own clock around the sleeps and around what sleeps. Warm-up is not measured.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import checkpointing
import keras
import numpy as np
import tensorflow as tf
from checkpointing import TIMES, Slow, SlowLayer, model, path
from telling import SLEEP_S, sleep, telling, told, within
from tensorflow.python.data.experimental.ops import testing
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

import hpcsampler

# Each is `make() -> run`: what `make` does is warm-up, `run` is what is measured.

# ---- each alone ------------------------------------------------------------------------------------------------------


def arrays(steps: int = TIMES) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors((tf.ones((1, 4)), tf.ones((1, 1)))).repeat(steps)


def tracing() -> Callable[[], None]:
    @tf.function
    def inner(x: Any) -> Any:
        sleep("compile")
        return x + 1

    @tf.function
    def outer(x: Any) -> Any:
        sleep("compile")
        return inner(x)

    @within("compile")
    def run() -> None:
        for size in range(1, TIMES + 1):
            outer.get_concrete_function(tf.TensorSpec(size))

    return run


class Costly:
    """Part of a cycle, and slow to go: a garbage collection that finds it takes so long."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sleep("gc")


def retracing() -> Callable[[], None]:
    """Each trace but the first has a reason of its own."""

    class Thing:
        pass

    @tf.function
    def function(x: Any, y: Any = 3) -> Any:
        return 0

    first, second = Thing(), Thing()
    floats = tf.TensorSpec((8, 4))
    arguments = (
        (floats,), (tf.TensorSpec((9, 4)),), (tf.TensorSpec((8, 4), tf.int32),), (tf.TensorSpec((8,)),), (floats, 4),
        (floats, first), (floats, second), ((floats, floats),), ((floats, floats, floats),), ({"a": floats},),
        ({"a": tf.TensorSpec(())},),
    )

    def run() -> None:
        for given in arguments:
            function.get_concrete_function(*given)
            function.get_concrete_function(*given)

    return run


def first_call_makes_variables() -> Callable[[], None]:
    variables: list[Any] = []

    @tf.function
    def function(x: Any) -> Any:
        if not variables:
            variables.append(tf.Variable(1.0))
        return x * variables[0]

    return lambda: function.get_concrete_function(tf.TensorSpec(()))


def collecting() -> Callable[[], None]:
    def run() -> None:
        for generation in (0, 1, 2, 2):
            Costly()
            gc.collect(generation)

    gc.collect()
    return run


def asleep() -> Any:
    return tf.data.Dataset.from_tensors(1.0).apply(testing.sleep(int(SLEEP_S / 2 * 1e6)))._variant_tensor


def pending(data: Any) -> Any:
    """A tensor that is not computed yet: TensorFlow's own sleep, on the thread of its asynchronous execution.

    Twice as long as for one element: it makes sure that there is no other.
    """
    return tf.raw_ops.DatasetToSingleElement(dataset=data, output_types=[tf.float32], output_shapes=[[]])[0]


def read_all(data: Any) -> None:
    """Every way to wait for a result."""
    for read in (float, bool, lambda tensor: tensor.numpy(), lambda _: context.async_wait()):
        tensor = pending(data)
        with telling("device"):
            read(tensor)


def reading_results() -> Callable[[], None]:
    tf.config.experimental.set_synchronous_execution(False)
    data = asleep()
    read_all(data)
    return lambda: read_all(data)


def copying() -> Callable[[], None]:
    """No GPU: a copy between two devices of the CPU, made slow."""
    original = ops.EagerTensor._copy_to_device

    def slow(tensor: Any, name: str) -> Any:
        sleep("transfer" if "CPU:1" in name else "host")
        return original(tensor, name)

    tensor = tf.constant(1.0)

    def run() -> None:
        ops.EagerTensor._copy_to_device = slow
        for _ in range(TIMES):
            tensor._copy(context.context(), "CPU:1")
            tensor.cpu()  # where it is already
        ops.EagerTensor._copy_to_device = original

    return run


class Sleepy(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        sleep("callback")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        sleep("callback", SLEEP_S / 2)


def draw(epoch: int, logs: Any) -> None:
    sleep("callback")


def callbacks() -> Callable[[], None]:
    made = model()
    made.fit(arrays(), verbose=0)
    called = [Sleepy(), keras.callbacks.LambdaCallback(on_epoch_end=draw)]
    return lambda: made.fit(arrays(2), epochs=2, verbose=0, callbacks=called)


def evaluating() -> Callable[[], None]:
    class Busy(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            def slow(y: Any) -> Any:
                time.sleep(SLEEP_S)
                return y

            return x + 0 * tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), x.shape)

    made = model(Busy())
    made.evaluate(arrays(1), verbose=0)
    data = arrays()
    return within("evaluation")(lambda: made.evaluate(data, verbose=0))


# ---- mixed -----------------------------------------------------------------------------------------------------------


def checkpoint_in_callback() -> Callable[[], None]:
    class Saver(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            sleep("callback")
            with telling("checkpoint"):
                self.model.save(path("c.keras"))

    class ToldCheckpoint(keras.callbacks.ModelCheckpoint):
        @within("checkpoint")
        def _save_model(self, *args: Any, **kwargs: Any) -> None:
            super()._save_model(*args, **kwargs)

    class ToldBackup(keras.callbacks.BackupAndRestore):
        @within("checkpoint")
        def _save_model(self) -> None:
            super()._save_model()

        @within("checkpoint")
        def _backup(self, *args: Any, **kwargs: Any) -> None:  # Keras 2
            super()._backup(*args, **kwargs)

    made = model(SlowLayer())
    made.fit(arrays(), verbose=0)
    made.save(path("c.keras"))
    modelcheckpoint = ToldCheckpoint(path("d.weights.h5"), save_weights_only=True)
    backup = ToldBackup(path("backup"))
    return lambda: made.fit(arrays(2), epochs=2, verbose=0, callbacks=[Saver(), modelcheckpoint, backup])


def restored_by_callback() -> Callable[[], None]:
    class Dies(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise InterruptedError

    made = model()
    made.fit(arrays(), verbose=0)

    def run() -> None:
        with suppress(InterruptedError):
            made.fit(arrays(2), epochs=2, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(path("r")), Dies()])
        made.fit(arrays(2), epochs=2, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(path("r"))])

    return run


def device_in_callback() -> Callable[[], None]:
    tf.config.experimental.set_synchronous_execution(False)

    data = asleep()

    class Reader(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            sleep("callback")
            read_all(data)

    made = model()
    made.fit(arrays(), verbose=0)
    return lambda: made.fit(arrays(2), epochs=2, verbose=0, callbacks=[Reader()])


def gc_in_step() -> Callable[[], None]:
    def run() -> None:
        for _ in range(TIMES):
            with hpcsampler.step():
                sleep("step")
                Costly()
                gc.collect()

    gc.collect()
    return run


def compile_in_step() -> Callable[[], None]:
    @tf.function
    def step(x: Any) -> Any:
        sleep("compile")
        return x + 1

    def run() -> None:
        for size in range(1, TIMES + 1):
            with hpcsampler.step():
                sleep("step")
                with telling("compile"):
                    step.get_concrete_function(tf.TensorSpec(size))

    return run


def compiling_for_xla() -> Callable[[], None]:
    """XLA compiles in the first run. The graph around what it compiles waits for its input, which is no compiling."""

    def elements() -> Iterator[Any]:
        for i in range(TIMES):
            sleep("input")
            yield np.float32(i)

    def many(x: tf.Tensor) -> tf.Tensor:
        for _ in range(30):
            x = tf.tanh(tf.matmul(x, x))
        return x

    data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.float32))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    plain, inner = (tf.function(many, jit_compile=True) for _ in range(2))
    ones = tf.ones((16, 16))

    @tf.function
    def around(iterator: Any) -> tf.Tensor:
        return inner(next(iterator) * ones)

    def run() -> None:
        iterator = iter(data.with_options(options))
        with hpcsampler.step():
            with telling("compile"):
                plain(ones)
            plain(ones)
            sleep("step")
        for _ in range(2):
            with hpcsampler.step():
                begin, waited = time.monotonic(), told.get("input", 0.0)
                around(iterator)
                if not waited:
                    told["compile"] += time.monotonic() - begin - told["input"]
                sleep("step")

    return run


def everything() -> Callable[[], None]:
    """Input, step, phases of the user's, checkpoint, trace and collection in one loop."""

    def elements() -> Iterator[Any]:
        for i in range(TIMES):
            sleep("input")
            yield np.float32(i)

    @tf.function
    def compute(x: Any) -> Any:
        sleep("compile")
        return x + 1

    checkpoint = tf.train.Checkpoint(slow=Slow())
    checkpoint.write(path("e"))
    checkpoint.read(path("e"))

    data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.float32))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False

    def run() -> None:
        iterator = iter(data.with_options(options))
        for size in range(1, TIMES + 1):
            next(iterator)
            with hpcsampler.phase("augment"):
                sleep("user")
                Costly()
                gc.collect()
            with hpcsampler.step():
                sleep("step")
                with telling("compile"):
                    compute.get_concrete_function(tf.TensorSpec(size))
            with telling("checkpoint"):
                checkpoint.write(path("e"))
            sleep("host")

    return run


def starting() -> Callable[[], None]:
    """Before the first step: what is compiled then is compiled, the rest is the start."""

    @tf.function
    def first(x: Any) -> Any:
        sleep("compile")
        return x

    def run() -> None:
        sleep("startup")
        with telling("compile"):
            first.get_concrete_function(tf.TensorSpec(3))
        sleep("startup")

    return run


def main() -> None:
    logical = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [logical(), logical()])
    for case in sys.argv[1:]:
        assert hpcsampler.attach(daemon="never", strict=True)
        make = getattr(checkpointing, case, None) or globals()[case]
        run = make()
        if case != "starting":
            with hpcsampler.step():  # so that the start is over
                pass
        gc.collect()
        gc.freeze()  # a collection looks through what the case itself makes, and takes no time of its own
        gc.disable()
        told.clear()
        begin_ns = time.monotonic_ns()
        run()
        end_ns = time.monotonic_ns()
        gc.enable()
        print(json.dumps({"case": case, "bounds_ns": [begin_ns, end_ns], "told_s": told}), flush=True)
        tf.config.experimental.set_synchronous_execution(True)
        hpcsampler.detach()


if __name__ == "__main__":
    main()
