"""Two replicas of one process that reduce and gather, on two logical CPUs: prints what came out as JSON.

`python collective_graphs.py [attach]`
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if "attach" in sys.argv:
    import hpcsampler

    assert hpcsampler.attach(daemon="never", strict=True)

import tensorflow as tf
from tensorflow.python.distribute import collective_util, cross_device_utils
from tensorflow.python.eager import context

DEVICES = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2,
)
context.context().configure_collective_ops(collective_leader=DEVICES[0])
keys = cross_device_utils.CollectiveKeys(7)
group = keys.get_group_key(list(DEVICES))
launchers = [
    cross_device_utils.CollectiveReplicaLauncher(group, 2, keys, device, collective_util.Options())
    for device in DEVICES
]


class Module(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((3,), tf.float32)])
    def reduce(self, x: Any) -> Any:
        return [launcher.all_reduce(x * float(i + 1)) for i, launcher in enumerate(launchers)]

    @tf.function(input_signature=[tf.TensorSpec((3,), tf.float32)])
    def gather(self, x: Any) -> Any:
        return [launcher.all_gather(x * float(i + 1), 0) for i, launcher in enumerate(launchers)]

    @tf.function(input_signature=[tf.TensorSpec((3,), tf.float32)], jit_compile=True)
    def compiled(self, x: Any) -> Any:
        return launchers[0].all_reduce(x)

    @tf.function(input_signature=[tf.TensorSpec((3,), tf.float32)], jit_compile=True)
    def around(self, x: Any) -> Any:
        return self.inner(x) + 1.0

    @tf.function(input_signature=[tf.TensorSpec((3,), tf.float32)])
    def inner(self, x: Any) -> Any:
        return launchers[0].all_reduce(x)


def marks(function: Any) -> int:
    graph = function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return sum(node.op.startswith("Hpcsampler") for node in nodes)


def refusal(function: Any) -> str:
    try:
        function(x)
    except tf.errors.UnimplementedError as error:
        return str(error).split(".")[0]
    return "compiled"


module = Module()
x = tf.constant([1.0, 2.0, 3.0])
found: dict[str, Any] = {
    "reduced": [[t.numpy().tolist() for t in module.reduce(x)] for _ in range(3)],
    "gathered": [t.numpy().tolist() for t in module.gather(x)],
    "refusals": [refusal(module.compiled), refusal(module.around)],
}
if "attach" in sys.argv:
    found["marks"] = [marks(module.reduce), marks(module.gather) > 0]
print(json.dumps(found))
