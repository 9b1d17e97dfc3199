"""One worker of a `MultiWorkerMirroredStrategy` on the CPU, with a custom loop.

`python workers.py INDEX PORT,PORT,… MODE [attach] [forever]`. MODE is what this worker is slowed by: `none`, `compute`
(20 ms in the backward pass), `input` (20 ms for each batch), `jitter` (50 ms, in one step of ten). Each step computes
for 10 ms, that is, sleeps: the cores are shared. After twelve steps it prints a hash of weights and losses, and ends,
or not.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
INDEX, PORTS, MODE, FOREVER = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], "forever" in sys.argv
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"127.0.0.1:{port}" for port in PORTS]}, "task": {"type": "worker", "index": INDEX},
})

if "attach" in sys.argv:
    import hpcsampler

    assert hpcsampler.attach(job="workers", strict=True)

import hashlib

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(4)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
random = np.random.default_rng(INDEX)


def computing(gradient: Any) -> Any:
    time.sleep(0.01)
    if MODE == "compute":
        time.sleep(0.02)
    elif MODE == "jitter" and random.random() < 0.1:
        time.sleep(0.05)
    return gradient


@tf.custom_gradient
def backward(x: Any) -> Any:
    def gradient(upstream: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(computing, [upstream], tf.float32), upstream.shape)

    return tf.identity(x), gradient


asked = threading.Semaphore(0)
"""TensorFlow would fetch ahead, and on a busy machine a step may take longer than the fetch, and hide it."""


def fetch(x: Any) -> Any:
    asked.acquire()
    time.sleep(0.02)
    return x


def dataset() -> Any:
    data = np.random.default_rng(1).random((64, 8), np.float32)
    made = tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True).repeat()
    if MODE == "input":
        made = made.map(lambda x: tf.ensure_shape(tf.numpy_function(fetch, [x], tf.float32), (8, 8)))
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    return made.with_options(options)


with strategy.scope():
    weights = tf.Variable(np.random.default_rng(2).random((8, 4), np.float32))


def replica_step(x: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(backward(x @ weights) - 1.0))
    gradient = tape.gradient(loss, weights)
    gradient = tf.distribute.get_replica_context().all_reduce("mean", gradient)
    weights.assign_sub(0.1 * gradient)
    return loss


@tf.function
def train(iterator: Any) -> Any:
    losses = strategy.run(replica_step, args=(next(iterator),))
    return strategy.reduce("SUM", losses, axis=None)


def step(iterator: Any) -> Any:
    asked.release()
    return train(iterator)


iterator = iter(strategy.distribute_datasets_from_function(lambda _: dataset()))
losses = [float(step(iterator)) for _ in range(12)]
print(hashlib.sha256(np.array(losses).tobytes() + weights.numpy().tobytes()).hexdigest(), flush=True)
while FOREVER:
    step(iterator)
