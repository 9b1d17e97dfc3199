"""Trainings that use threads and several iterators; prints for each when it ran and how many steps it did."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hpcsampler

assert hpcsampler.attach(daemon="never", strict=True)

import keras
import numpy as np
import tensorflow as tf

from hpcsampler.ext._events import now_ns

STEPS = 5
INPUT, TARGET = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
WEIGHT = tf.Variable(tf.ones((2, 1)))


def data() -> tf.data.Dataset:
    def batches() -> Iterator[Any]:
        for _ in range(STEPS):
            time.sleep(0.01)
            yield INPUT, TARGET

    return tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((4, 2), tf.float32), tf.TensorSpec((4, 1), tf.float32)),
    )


def train(x: Any, y: Any) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ WEIGHT - y) ** 2)
    WEIGHT.assign_sub(0.1 * tape.gradient(loss, WEIGHT))


def in_a_thread(target: Callable[[], None]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def loop() -> None:
    for x, y in data():
        train(x, y)


def fit() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data(), verbose=0)


def loop_in_a_thread() -> None:
    in_a_thread(loop)


def fit_in_a_thread_and_then_a_loop() -> None:
    in_a_thread(fit)
    loop()


def two_iterators_in_one_function() -> None:
    @tf.function
    def step(one: Any, two: Any) -> None:
        train(*next(one))
        train(*next(two))

    one, two = iter(data()), iter(data())
    for _ in range(STEPS):
        step(one, two)


def data_that_ends_in_a_function_on_a_thread() -> None:
    @tf.function
    def get(iterator: Any) -> Any:
        return next(iterator)

    def prefetch() -> None:
        iterator = iter(data())
        try:
            while True:
                get(iterator)
        except tf.errors.OutOfRangeError:
            pass

    in_a_thread(prefetch)
    time.sleep(1)


WAYS = {
    loop_in_a_thread: STEPS, fit_in_a_thread_and_then_a_loop: 2 * STEPS, two_iterators_in_one_function: STEPS,
    data_that_ends_in_a_function_on_a_thread: 0,
}
for way, steps in WAYS.items():
    begin = now_ns()
    way()
    print(json.dumps({"way": way.__name__, "steps": steps, "bounds_ns": [begin, now_ns()]}))

# TensorFlow's errors pickle themselves by the signature of their constructor.
error = pickle.loads(pickle.dumps(tf.errors.OpError(None, None, "text", 3)))
assert (error.message, error.error_code) == ("text", 3)
assert "sources" in inspect.getfullargspec(tf.GradientTape.gradient).args
