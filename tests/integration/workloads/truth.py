"""Trainings that wait for data for a known time, one for each way to consume a tf.data iterator.

`python truth.py WAY` attaches, runs the way with a wait of 0, 5 and 20 ms injected into each element, and prints one
JSON line for each: when it began and ended, how many steps it did, and how long its steps had to wait.

The wait is TensorFlow's own sleep transformation, last in the pipeline: exact, native, in need of no GIL. How many of
the waits a step is blocked by is known for each way: one per element, one more where the end of the data is found by
asking for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from names import STEPS, WAYS

import hpcsampler

hpcsampler.attach(daemon="never", strict=True)

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

COMPUTE_S = 0.06
WAITS_MS = (0, 5, 20)

wait_s = 0.0


def compute(x: Any) -> Any:
    begin = time.monotonic()
    while time.monotonic() - begin < COMPUTE_S:
        pass
    return x


def tf_compute(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(compute, [x], x.dtype), x.shape)


PLAIN = tf.data.Options()
# What tf.data prefetches by itself would hide a part of the wait, and the truth would depend on its luck.
PLAIN.experimental_optimization.inject_prefetch = False
PLAIN.autotune.enabled = False


def asleep(data: tf.data.Dataset) -> tf.data.Dataset:
    """Each GetNext of `data` takes `wait_s` longer, the one that finds the end too."""
    data = data.apply(testing.sleep(int(wait_s * 1e6))) if wait_s else data
    return data.with_options(PLAIN)


def arrays(steps: int) -> tf.data.Dataset:
    x = np.ones((steps, 4), np.float32)
    y = np.ones((steps, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(1, drop_remainder=True)


def dataset(steps: int = STEPS) -> tf.data.Dataset:
    return asleep(arrays(steps))


weight = tf.Variable([[1.0]] * 4)


def train(x: Any, y: Any) -> None:
    """A training step whose computing is `compute`."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)
    gradient = tape.gradient(loss, weight)
    weight.assign_sub(0.001 * tf_compute(gradient))


train_function = tf.function(train)


class Busy(keras.layers.Layer):
    """Passes its input on, and takes `COMPUTE_S` for it."""

    def call(self, x: Any) -> Any:
        return x + 0 * tf.stop_gradient(tf_compute(x))


def model(**options: Any) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), Busy(), keras.layers.Dense(1)])
    made.compile("sgd", "mse", jit_compile=False, **options)
    return made


# ---- the ways --------------------------------------------------------------------------------------------------------
# Each is `make() -> run`: what `make` does is warm-up, `run` is what is measured.


def eager_for() -> Callable[[], None]:
    def run() -> None:
        for x, y in dataset():
            train(x, y)

    return run


def eager_for_function() -> Callable[[], None]:
    def run() -> None:
        for x, y in dataset():
            train_function(x, y)

    return run


def eager_next_with_break() -> Callable[[], None]:
    def run() -> None:
        iterator = iter(dataset(STEPS * 2))
        for _ in range(STEPS):
            train_function(*next(iterator))

    return run


def eager_new_dataset_each_epoch() -> Callable[[], None]:
    def run() -> None:
        for _ in range(4):
            for x, y in dataset(STEPS // 4):
                train_function(x, y)

    return run


def get_next_in_function() -> Callable[[], None]:
    @tf.function
    def step(iterator: Any) -> None:
        train(*iterator.get_next())

    def run() -> None:
        iterator = iter(dataset())
        while True:
            try:
                step(iterator)
            except tf.errors.OutOfRangeError:
                break

    return run


def next_in_function_captured() -> Callable[[], None]:
    def run() -> None:
        iterator = iter(dataset())

        @tf.function
        def step() -> None:
            train(*next(iterator))

        for _ in range(STEPS):
            step()

    return run


def get_next_as_optional_in_function() -> Callable[[], None]:
    @tf.function
    def step(iterator: Any) -> Any:
        optional = iterator.get_next_as_optional()
        if optional.has_value():
            train(*optional.get_value())
        return optional.has_value()

    def run() -> None:
        iterator = iter(dataset())
        while step(iterator):
            pass

    return run


def for_dataset_in_function() -> Callable[[], None]:
    @tf.function
    def epoch(data: Any) -> None:
        for x, y in data:
            train(x, y)

    return lambda: epoch(dataset())


def for_iterator_in_function() -> Callable[[], None]:
    @tf.function
    def epoch(iterator: Any) -> None:
        for x, y in iterator:
            train(x, y)

    return lambda: epoch(iter(dataset()))


def range_in_function() -> Callable[[], None]:
    @tf.function
    def several(iterator: Any) -> None:
        for _ in tf.range(STEPS // 4):
            train(*next(iterator))

    def run() -> None:
        iterator = iter(dataset())
        for _ in range(4):
            several(iterator)

    return run


def unrolled_in_function() -> Callable[[], None]:
    @tf.function
    def several(iterator: Any) -> None:
        for _ in range(4):
            train(*next(iterator))

    def run() -> None:
        iterator = iter(dataset())
        for _ in range(STEPS // 4):
            several(iterator)

    return run


def distributed_in_function() -> Callable[[], None]:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(lambda batch: train(*batch), args=(next(iterator),))

    def run() -> None:
        iterator = iter(strategy.experimental_distribute_dataset(dataset()))
        while True:
            try:
                step(iterator)
            except tf.errors.OutOfRangeError:
                break

    return run


def distributed_eager() -> Callable[[], None]:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    step = tf.function(lambda batch: strategy.run(train, args=batch))

    def run() -> None:
        for batch in strategy.experimental_distribute_dataset(dataset()):
            step(batch)

    return run


def for_distributed_in_function() -> Callable[[], None]:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])

    @tf.function
    def epoch(data: Any) -> None:
        for batch in data:
            strategy.run(train, args=batch)

    return lambda: epoch(strategy.experimental_distribute_dataset(dataset()))


def generator() -> Callable[[], None]:
    x, y = np.ones((1, 4), np.float32), np.ones((1, 1), np.float32)

    def elements() -> Iterator[tuple[Any, Any]]:
        for _ in range(STEPS):
            time.sleep(wait_s)
            yield x, y

    signature = (tf.TensorSpec((1, 4), tf.float32), tf.TensorSpec((1, 1), tf.float32))

    def run() -> None:
        data = tf.data.Dataset.from_generator(elements, output_signature=signature)
        for x, y in data.with_options(PLAIN):
            train_function(x, y)

    return run


def data_service() -> Callable[[], None]:
    dispatcher = tf.data.experimental.service.DispatchServer()
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1]),
    )

    def run() -> None:
        served = arrays(STEPS).apply(
            tf.data.experimental.service.distribute("parallel_epochs", dispatcher.target),
        )
        for x, y in asleep(served):
            train_function(tf.ensure_shape(x, (1, 4)), y)

    run.keep = (dispatcher, worker)  # type: ignore[attr-defined]
    return run


def explicit_step() -> Callable[[], None]:
    def run() -> None:
        iterator = iter(dataset())
        for _ in range(STEPS):
            with hpcsampler.step():
                train_function(*next(iterator))

    return run


def train_and_validate() -> Callable[[], None]:
    """Two iterators in one loop of the user's own: only the training one's elements are steps."""

    @tf.function
    def validate(x: Any, y: Any) -> Any:
        return tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)

    training, validation = dataset(STEPS // 2), arrays(STEPS // 2)

    def run() -> None:
        for _ in range(2):
            for x, y in training:
                train_function(x, y)
            for x, y in validation:
                validate(x, y)

    return run


def keras_fit() -> Callable[[], None]:
    made = model()
    return lambda: made.fit(dataset(STEPS // 2), epochs=2, verbose=0, shuffle=False)


def keras_fit_unknown_size() -> Callable[[], None]:
    made = model()
    return lambda: made.fit(asleep(arrays(STEPS).filter(lambda x, y: True)), verbose=0, shuffle=False)


def keras_fit_steps_per_execution() -> Callable[[], None]:
    made = model(steps_per_execution=5)
    return lambda: made.fit(dataset(), verbose=0, shuffle=False)


def keras_fit_with_validation() -> Callable[[], None]:
    made = model()
    return lambda: made.fit(
        dataset(STEPS // 2), epochs=2, validation_data=arrays(6), verbose=0, shuffle=False,
    )


def keras_fit_distributed() -> Callable[[], None]:
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        made = model()
    return lambda: made.fit(dataset(), verbose=0, shuffle=False)


def keras_fit_eagerly() -> Callable[[], None]:
    made = model(run_eagerly=True)
    return lambda: made.fit(dataset(), verbose=0, shuffle=False)


def keras_evaluate() -> Callable[[], None]:
    made = model()
    return lambda: made.evaluate(dataset(), verbose=0)


def keras_predict() -> Callable[[], None]:
    made = model()
    return lambda: made.predict(dataset(), verbose=0)


def keras_train_on_batch() -> Callable[[], None]:
    made = model()

    def run() -> None:
        for x, y in dataset():
            made.train_on_batch(x, y)

    return run


def main() -> None:
    global wait_s  # noqa: PLW0603 - what `asleep` reads
    way = sys.argv[1]
    run: Callable[[], Any] = globals()[way]()
    run()  # traces
    for milliseconds in WAITS_MS:
        wait_s = milliseconds / 1000
        begin_ns = time.monotonic_ns()
        run()
        end_ns = time.monotonic_ns()
        print(json.dumps({
            "wait_ms": milliseconds, "begin_ns": begin_ns, "end_ns": end_ns,
            "blocked_s": WAYS[way] * wait_s, "steps": STEPS,
        }), flush=True)
    hpcsampler.detach()


if __name__ == "__main__":
    main()
