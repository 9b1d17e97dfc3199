"""Two replicas of one `MirroredStrategy` in one process: one arrives at each reduction 30 ms after the other."""

from __future__ import annotations

import json
import time

import numpy as np
import tensorflow as tf

import hpcsampler

STEPS = 40


def main() -> None:
    logical = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [logical(), logical()])
    assert hpcsampler.attach(daemon="never", strict=True)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    arrived: list[float] = []

    def arrive(value: np.ndarray, late: np.ndarray) -> np.ndarray:
        time.sleep(0.03 if late else 0.01)
        arrived.append(time.monotonic())
        return value

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            late = tf.equal(context.replica_id_in_sync_group, 1)
            value = tf.numpy_function(arrive, [tf.constant(1.0), late], tf.float32)
            value.set_shape(())
            return context.all_reduce("sum", value)

        return strategy.reduce("sum", strategy.run(replica), axis=None)

    assert float(step()) == 4.0
    arrived.clear()
    waited_s = 0.0
    begin_ns = time.monotonic_ns()
    for _ in range(STEPS):
        with hpcsampler.step():
            step().numpy()
        first, last = sorted(arrived)
        waited_s += last - first
        arrived.clear()
    print(json.dumps({"bounds_ns": [begin_ns, time.monotonic_ns()], "waited_s": waited_s}), flush=True)


if __name__ == "__main__":
    main()
