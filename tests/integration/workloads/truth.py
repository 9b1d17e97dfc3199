"""Trainings that wait for data for a known time, one for each way to consume a tf.data iterator.

`python truth.py WAY…` attaches for each way in turn, runs it with a wait of 0, 5 and 20 ms injected into each element,
and prints one JSON line for each: when it began and ended, how many steps it did, and how long its steps had to wait.

The wait is TensorFlow's own sleep transformation, last in the pipeline: exact, native, in need of no GIL. How many of
the waits a step is blocked by is known for each way: one per element, one more where the end of the data is found by
asking for it. What a GetNext takes on this machine by itself is measured from outside, around plain `next()` calls.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from names import STEPS, WAYS
from tensorflow.python.data.experimental.ops import testing

import hpcsampler

WAITS_MS = (0, 5, 20)
LONG_WAIT_MS = 80
"""Longer than a step, so that it can't hide behind one."""
ROUNDS = 3

compute_s = 0.05
wait_s = 0.0
computed: list[tuple[float, float]] = []


def compute(x: Any) -> Any:
    begin = time.monotonic()
    while time.monotonic() - begin < compute_s:
        pass
    computed.append((begin, time.monotonic()))
    return x


def tf_compute(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(compute, [x], x.dtype), x.shape)


PLAIN = tf.data.Options()
# What tf.data prefetches by itself would hide a part of the wait, and the truth would depend on its luck.
PLAIN.experimental_optimization.inject_prefetch = False
PLAIN.autotune.enabled = False


if keras.__version__.startswith("2."):
    # Its loop gets an element only when the last one's step is done; Keras 3 gets them all at once.
    WAYS["keras_fit_steps_per_execution"] = STEPS

# A distributed iterator would fetch ahead, to the device.
HERE = tf.distribute.InputOptions(experimental_fetch_to_device=False)


beginnings: dict[str, Callable[[], None]] = {}
"""By way: the same without elements. What makes its iterator inside the graph waits for that, too."""


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
    """Passes its input on, and takes `compute_s` for it."""

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

    beginnings["for_dataset_in_function"] = lambda: epoch(dataset(0))
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
        iterator = iter(strategy.experimental_distribute_dataset(dataset(), HERE))
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
        for batch in strategy.experimental_distribute_dataset(dataset(), HERE):
            step(batch)

    return run


def for_distributed_in_function() -> Callable[[], None]:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])

    @tf.function
    def epoch(data: Any) -> None:
        for batch in data:
            strategy.run(train, args=batch)

    return lambda: epoch(strategy.experimental_distribute_dataset(dataset(), HERE))


X, Y = np.ones((1, 4), np.float32), np.ones((1, 1), np.float32)


def elements() -> Iterator[tuple[Any, Any]]:
    for _ in range(STEPS):
        time.sleep(wait_s)
        yield X, Y


def generated() -> tf.data.Dataset:
    signature = (tf.TensorSpec((1, 4), tf.float32), tf.TensorSpec((1, 1), tf.float32))
    return tf.data.Dataset.from_generator(elements, output_signature=signature).with_options(PLAIN)


def generator() -> Callable[[], None]:
    def run() -> None:
        for x, y in generated():
            train_function(x, y)

    return run


SERVICE: list[Any] = []


def served() -> tf.data.Dataset:
    if not SERVICE:
        dispatcher = tf.data.experimental.service.DispatchServer()
        config = tf.data.experimental.service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
        SERVICE.extend([dispatcher, tf.data.experimental.service.WorkerServer(config)])
    distribute = tf.data.experimental.service.distribute("parallel_epochs", SERVICE[0].target)
    return asleep(arrays(STEPS).apply(distribute))


def data_service() -> Callable[[], None]:
    def run() -> None:
        iterator = iter(served())
        for _ in range(STEPS):  # the service may take its time to tell that there is no more
            x, y = next(iterator)
            train_function(tf.ensure_shape(x, (1, 4)), y)

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

    def run() -> None:
        training, validation = dataset(STEPS // 2), arrays(2)
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


def distributed() -> Any:
    return tf.distribute.MirroredStrategy(["/cpu:0"]).experimental_distribute_dataset(dataset(), HERE)


def own_costs_s(source: Callable[[], tf.data.Dataset]) -> list[float]:
    """Seconds that each `next()` takes here by itself, between computations, without hpcsampler."""
    iterator = iter(source())
    costs = []
    for _ in range(STEPS):
        compute(0)
        begin = time.perf_counter()
        next(iterator)
        costs.append(time.perf_counter() - begin)
    return costs


def seconds(call: Callable[[], None]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def run_ahead(way: str, run: Callable[[], Any]) -> None:
    """Elements are fetched ahead: what a step waits for shows in the gaps between computations, seen from outside.

    Between the first and the last computation: what making such an iterator takes is not of interest here.
    """
    global wait_s  # noqa: PLW0603 - what `asleep` reads
    own_s = statistics.median(own_costs_s(distributed)) if way == "distributed_eager" else 0.0
    gap_s = 0.0
    for milliseconds in (*WAITS_MS, LONG_WAIT_MS) * ROUNDS:
        wait_s = milliseconds / 1000
        computed.clear()
        begin_ns = time.monotonic_ns()
        run()
        end_ns = time.monotonic_ns()
        gaps = [b[0] - a[1] for a, b in pairwise(computed)]
        if not wait_s:
            gap_s = statistics.median(gaps)
        blocked_s = sum(max(0.0, gap - gap_s) for gap in gaps)
        report(way, milliseconds, (begin_ns, end_ns), blocked_s, own_s * len(gaps))


def run_plain(way: str, run: Callable[[], Any], own_s: float) -> None:
    """Each wait blocks a step."""
    global wait_s  # noqa: PLW0603 - what `asleep` reads
    for milliseconds in WAITS_MS * ROUNDS:
        wait_s = milliseconds / 1000
        computed.clear()
        begin_ns = time.monotonic_ns()
        run()
        report(way, milliseconds, (begin_ns, time.monotonic_ns()), WAYS[way] * wait_s, own_s)


def report(way: str, wait_ms: int, bounds_ns: tuple[int, int], blocked_s: float, own_s: float) -> None:
    computed_ns = (int(computed[0][0] * 1e9), int(computed[-1][1] * 1e9))
    print(json.dumps({
        "way": way, "wait_ms": wait_ms, "bounds_ns": bounds_ns, "blocked_s": blocked_s, "own_s": own_s, "steps": STEPS,
        "measured_ns": computed_ns if WAYS[way] is None else bounds_ns,
    }), flush=True)


def main() -> None:
    global compute_s, wait_s  # noqa: PLW0603 - what `compute` and `asleep` read
    for way in sys.argv[1:]:
        compute_s = 0.1 if way == "generator" else 0.05
        wait_s = 0.0
        source = {"generator": generated, "data_service": served}.get(way, dataset)
        own_s = min(sum(own_costs_s(source)) for _ in range(2))
        assert hpcsampler.attach(daemon="never", strict=True)
        run: Callable[[], Any] = globals()[way]()
        run()  # traces
        if way in beginnings:
            own_s += min(seconds(beginnings[way]) for _ in range(3))
        if WAYS[way] is None:
            run_ahead(way, run)
        else:
            run_plain(way, run, own_s)
        hpcsampler.detach()


if __name__ == "__main__":
    main()
