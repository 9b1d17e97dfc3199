"""A training that waits for its slow input, until it is stopped: `python fed.py keras|eager|function`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import hpcsampler
from hpcsampler.sampler import pipeline, sender

sender._HELLO_S = 1.0
pipeline._COST_MOST = 1.0


def sleep(x: Any) -> Any:
    time.sleep(0.02)
    return x


def decode(x: Any, y: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape), y


def data() -> tf.data.Dataset:
    x, y = np.ones((40, 4), np.float32), np.ones((40, 1), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().map(decode, num_parallel_calls=2)
    return data.shuffle(4).batch(2).prefetch(1)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


variable = tf.Variable([[1.0]] * 4)


@tf.function
def train(x: Any, y: Any) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, variable) - y) ** 2)
    variable.assign_sub(0.01 * tape.gradient(loss, variable))


@tf.function
def train_on_all(batches: tf.data.Dataset) -> None:
    for x, y in batches:
        train(x, y)


assert hpcsampler.attach(daemon="never", strict=True)
match sys.argv[1]:
    case "keras":
        # Each validation has an iterator of its own, that isn't the one that is waited for.
        easy = tf.data.Dataset.from_tensors((np.ones((2, 4), np.float32), np.ones((2, 1), np.float32)))
        model().fit(data(), steps_per_epoch=40, epochs=10**6, validation_data=easy, verbose=0)
    case "eager":
        for x, y in data():
            train(x, y)
    case "function":
        while True:
            train_on_all(data().take(40))
