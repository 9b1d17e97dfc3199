"""A loop over a dataset inside a `tf.function` that carries nothing from one step to the next, whose first element is
slow, as one behind a shuffle buffer is. Prints when it began, when the first step did, and when it ended (ns)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import hpcsampler

began: list[int] = []
total = tf.Variable(0.0)


def elements() -> Iterator[Any]:
    for number in range(4):
        time.sleep(0.6 if number == 0 else 0.0)
        yield np.float32(number)


def note() -> np.float32:
    began.append(time.monotonic_ns())
    time.sleep(0.05)
    return np.float32(0)


@tf.function
def epoch(data: Any) -> None:
    for x in data:
        total.assign_add(x + tf.numpy_function(note, [], tf.float32))


assert hpcsampler.attach(daemon="never", strict=True)
dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.float32))
epoch(dataset)
began.clear()
begin_ns = time.monotonic_ns()
epoch(dataset)
print(begin_ns, began[0], time.monotonic_ns())
hpcsampler.detach()
