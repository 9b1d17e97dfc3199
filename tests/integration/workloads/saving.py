"""`python saving.py save DIR` writes a SavedModel whose functions hold marks; `load DIR` runs it without hpcsampler."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if sys.argv[1] == "save":
    import hpcsampler

    assert hpcsampler.attach(daemon="never", strict=True)

import tensorflow as tf

SPEC = tf.TensorSpec((), tf.float32)


class Module(tf.Module):
    def __init__(self) -> None:
        self.state = tf.Variable(0.0)

    @tf.function(input_signature=[SPEC])
    def predict(self, x: Any) -> Any:
        return x * 2

    @tf.function(input_signature=[tf.data.IteratorSpec(SPEC)])
    def train(self, iterator: Any) -> Any:
        self.state.assign_add(next(iterator))
        return self.state

    @tf.function(input_signature=[tf.data.DatasetSpec(SPEC)])
    def loop(self, data: Any) -> Any:
        count = tf.constant(0)
        for _ in data:
            count += 1
        return count

    @tf.function(input_signature=[tf.data.IteratorSpec(SPEC)])
    def optional(self, iterator: Any) -> Any:
        total = tf.constant(0.0)
        for x in iterator:
            total += x
        return total


def marks_in(directory: str) -> int:
    return Path(directory, "saved_model.pb").read_bytes().count(b"HpcsamplerMark")


if sys.argv[1] == "save":
    module = Module()
    functions = [module.train, module.loop, module.optional]
    graphs = [f.get_concrete_function().graph.as_graph_def().SerializeToString() for f in functions]
    assert all(b"HpcsamplerMark" in graph for graph in graphs), "no marks: the test would show nothing"
    tf.saved_model.save(module, sys.argv[2])
    hpcsampler.detach()
else:
    loaded = tf.saved_model.load(sys.argv[2])
    iterator = iter(tf.data.Dataset.from_tensor_slices([1.0, 1.0]))
    print(json.dumps({
        "marks": marks_in(sys.argv[2]),
        "hpcsampler": "hpcsampler" in sys.modules,
        "predicted": float(loaded.predict(tf.constant(3.0))),
        "trained": [float(loaded.train(iterator)), float(loaded.train(iterator))],
        "looped": int(loaded.loop(tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]))),
    }))
