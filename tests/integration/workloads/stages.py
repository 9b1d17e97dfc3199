"""Input pipelines with one slow stage each, consumed as fast as they yield.

`python stages.py WAY…` attaches for each way in turn, iterates, and prints one JSON line for each: when each batch
came. The slow stage sleeps, so what is true doesn't depend on how busy the machine is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

import hpcsampler
from hpcsampler.sampler import pipeline, sender

Dataset = tf.data.Dataset
SLEEP_S = 0.010
RUN_S = 5.0
# Several readings of each way: what is sent every few seconds else.
sender._HELLO_S = 1.2
pipeline._COST_MOST = 1.0


def sleep(x: Any) -> Any:
    time.sleep(SLEEP_S)
    return x


def decode(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape)


def add(x: Any) -> Any:
    return x + 1


def numbers(count: int = 10**9) -> Dataset:
    return Dataset.range(count)


def first() -> Dataset:
    return numbers().map(decode, num_parallel_calls=2).shuffle(8).map(add, num_parallel_calls=2).batch(4)


def middle() -> Dataset:
    data = numbers().map(add, num_parallel_calls=2).map(decode, num_parallel_calls=2, name="resize")
    return data.shuffle(8).map(add).batch(4).prefetch(2)


def last() -> Dataset:
    return numbers().map(add).batch(4).map(decode)


def fused() -> Dataset:
    return numbers().map(decode, num_parallel_calls=2).batch(4, drop_remainder=True).prefetch(2)


def read_shard(shard: Any) -> Dataset:
    return numbers(20).map(decode)


def interleave() -> Dataset:
    return numbers().interleave(read_shard, cycle_length=2, num_parallel_calls=2).batch(4).prefetch(2)


def flat_map() -> Dataset:
    return numbers().flat_map(read_shard).batch(2).prefetch(2)


def generator() -> Dataset:
    def naturals() -> Iterator[int]:
        n = 0
        while True:
            time.sleep(SLEEP_S)
            yield n
            n += 1

    return Dataset.from_generator(naturals, output_signature=tf.TensorSpec((), tf.int64)).map(add).batch(2).prefetch(1)


def cache_being_filled() -> Dataset:
    return numbers().map(decode, num_parallel_calls=2).cache().map(add).batch(4).prefetch(2)


def cache_full() -> Dataset:
    return numbers(8).map(add).cache().repeat().map(decode, num_parallel_calls=2).batch(4).prefetch(2)


def shuffle() -> Dataset:
    return numbers().map(decode, num_parallel_calls=1).shuffle(16).batch(2).prefetch(2)


def filtered() -> Dataset:
    return numbers().map(decode, num_parallel_calls=2).filter(lambda x: x % 2 == 0).batch(2).prefetch(2)


def batch_then_map() -> Dataset:
    return numbers().batch(4).map(decode, num_parallel_calls=2).unbatch().batch(8).prefetch(2)


def data_service() -> Dataset:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1]))
    servers.extend([dispatcher, worker])
    data = numbers().map(decode, num_parallel_calls=2).batch(4)
    return data.apply(service.distribute("parallel_epochs", dispatcher.target)).map(add).prefetch(2)


def compressed_records() -> Dataset:
    """Reading a record takes what it takes to unpack 16 MB; preparing it takes nothing."""
    path = str(Path(os.environ["HPCSAMPLER_RUNTIME_DIR"]) / "records")
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions("GZIP", compression_level=1)) as writer:
        for _ in range(8):
            writer.write(np.zeros(1 << 24, np.uint8).tobytes())
    data = tf.data.TFRecordDataset(path, "GZIP", num_parallel_reads=None).repeat()
    return data.map(tf.strings.length).batch(1).prefetch(2)


def files_read_in_a_map() -> Dataset:
    path = str(Path(os.environ["HPCSAMPLER_RUNTIME_DIR"]) / "file")
    Path(path).write_bytes(bytes(64))

    def load(x: Any) -> Any:
        return tf.strings.length(tf.io.read_file(path)) + tf.cast(decode(x), tf.int32)

    return numbers().map(load, num_parallel_calls=2).batch(4).prefetch(2)


def asleep() -> Dataset:
    return numbers().apply(testing.sleep(int(SLEEP_S * 1e6))).map(add).batch(2).prefetch(2)


def not_tuned() -> Dataset:
    options = tf.data.Options()
    options.autotune.enabled = False
    return first().with_options(options)


servers: list[Any] = []


def main() -> None:
    for way in sys.argv[1:]:
        data = globals()[way]()
        assert hpcsampler.attach(daemon="never", strict=True)
        end = time.monotonic() + RUN_S
        times = []
        for _ in data:
            times.append(time.monotonic())
            if times[-1] > end:
                break
        hpcsampler.detach()
        print(json.dumps({"way": way, "times_s": times}), flush=True)


main()
