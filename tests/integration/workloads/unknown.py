"""Trainings under TensorFlows that lack, one after the other, each module that is hooked: what each says and does.

A version in which something has moved or changed can't be made here, but hpcsampler can be shown one: to its imports a
module is gone, or what it means to wrap takes another argument.
"""

from __future__ import annotations

import builtins
import inspect
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

import hpcsampler
from hpcsampler.sampler import hooks
from hpcsampler.sampler.hooks import patches
from hpcsampler.sampler.names import Names
from hpcsampler.sampler.session import Session

STEPS = 3


def train() -> list[float]:
    """An eager loop, a loop in a function, and Keras. What comes out."""
    keras.utils.set_random_seed(1)
    data = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1)))).repeat(STEPS)
    weight = tf.Variable([[0.5], [0.25]])

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    compiled = tf.function(step)
    losses = [float(compiled(x, y)) for x, y in data]

    @tf.function
    def loop(dataset: Any) -> Any:
        last = 0.0
        for x, y in dataset:
            last = step(x, y)
        return last

    losses.append(float(loop(data)))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    history = model.fit(data, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)])
    return [*losses, *history.history["loss"], *model.evaluate(data, verbose=0, return_dict=True).values()]


def hooked() -> list[str]:
    """What is hooked here."""
    found = hooks.HookSet(Names())
    found.install()
    targets = found.hooked()
    found.restore()
    assert not found.problems
    return targets


@contextmanager
def without(module: str) -> Iterator[None]:
    """To hpcsampler that module is gone."""
    real = builtins.__import__

    def gone(name: str, into: Any = None, local: Any = None, parts: Any = (), level: int = 0) -> Any:
        wanted = {name, *(f"{name}.{part}" for part in parts or ())}
        if module in wanted and str((into or {}).get("__name__", "")).startswith("hpcsampler."):
            raise ImportError(f"no module {module}")
        return real(name, into, local, parts, level)

    with mock.patch.object(builtins, "__import__", gone):
        yield


@contextmanager
def other_arguments() -> Iterator[None]:
    """To hpcsampler every function takes one more."""
    real = inspect.signature

    def signature(function: Any, **options: Any) -> inspect.Signature:
        found = real(function, **options)
        kind = inspect.Parameter.KEYWORD_ONLY
        last = [p for p in found.parameters.values() if p.kind == inspect.Parameter.VAR_KEYWORD]
        rest = [p for p in found.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        return found.replace(parameters=[*rest, inspect.Parameter("more", kind, default=None), *last])

    with mock.patch.object(patches.inspect, "signature", signature):
        yield


def main() -> None:
    plain = train()
    all_hooked = hooked()
    cases = {module: without(module) for module in sys.argv[1:]} | {"other arguments": other_arguments()}
    for case, changed in cases.items():
        line: dict[str, Any] = {"case": case}
        Session._hooks = None
        try:
            with changed:
                assert hpcsampler.attach(daemon="never", strict=True)
            found = Session._hooks
            assert found is not None
            line["problems"] = found.problems
            line["lost"] = sorted(set(all_hooked) - set(found.hooked()))
            line["same"] = train() == plain
        except Exception:
            line["error"] = traceback.format_exc()
        hpcsampler.detach()
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
