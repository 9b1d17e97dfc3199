"""Everything that could be wrapped is what it was after `detach()`; prints what is not."""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import hpcsampler

PACKAGES = ("tensorflow", "keras")


def attributes() -> dict[str, Any]:
    """Every attribute of every class and module of TensorFlow and Keras, by name."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(PACKAGES) or module is None:
            continue
        for key, value in list(vars(module).items()):
            found[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({f"{name}.{key}.{k}": v for k, v in vars(value).items()})
    registry = sys.modules["tensorflow.python.autograph.operators.control_flow"].for_loop_registry._registry
    found["gc.callbacks"] = len(gc.callbacks)
    found.update({f"for_loop_registry.{kind.__name__}": value for kind, value in registry.items()})
    return found


def train() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tf.ones((4, 2)), tf.ones((4, 1)), verbose=0)


train()  # whatever is imported or made on first use is there
before = attributes()
hooked = []
for _ in range(3):
    assert hpcsampler.attach(daemon="never", strict=True)
    during = attributes()
    hooked.append([name for name, value in before.items() if during.get(name) is not value])
    train()
    hpcsampler.detach()
after = attributes()
train()
print(json.dumps({
    "changed": [name for name, value in before.items() if after.get(name) is not value],
    "left": [name for name, value in after.items() if "hpcsampler" in repr(getattr(value, "__module__", "")).lower()],
    "hooks_seen": all(len(names) > 15 for names in hooked),
}))
