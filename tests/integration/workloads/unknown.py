"""Trainings under TensorFlows that lack, one after the other, each thing that is hooked: what each says and does.

A version in which something has moved or changed can't be made here, but hpcsampler can be shown one: to its imports a
module is gone, what it means to wrap is gone or takes another argument, or what it calls won't be called by it.
"""

from __future__ import annotations

import builtins
import inspect
import json
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import func_graph, op_def_registry, ops
from tensorflow.python.ops import array_ops
from tensorflow.python.util import nest, tf_decorator

import hpcsampler
from hpcsampler.sampler import hooks
from hpcsampler.sampler.hooks import patches
from hpcsampler.sampler.names import Names
from hpcsampler.sampler.session import Session

STEPS = 3
CALLED = (
    (ops, "colocate_with"), (ops, "control_dependencies"), (func_graph.FuncGraph, "_create_op_internal"),
    (ops.Graph, "get_operations"), (nest, "flatten"), (nest, "map_structure"), (array_ops, "identity"),
    (op_def_registry, "get"), (tf_decorator, "make_decorator"),
)
"""What is called while a function is traced."""


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


def hooked() -> dict[str, tuple[Any, Any]]:
    """What is hooked here: `owner.name`, owner and name of each."""
    found = hooks.HookSet(Names())
    found.install()
    places = [(patch.owner, patch.name) for patch in found._patches._done]
    targets = dict(zip(found._patches.targets(), places, strict=True))
    found.restore()
    return targets


def gone(owner: Any, name: Any) -> AbstractContextManager[Any]:
    """To hpcsampler that name is gone."""
    return mock.patch.dict(owner, {name: None}) if isinstance(owner, MutableMapping) else mock.patch.object(
        owner, name, None,
    )


@contextmanager
def refused(owner: Any, name: str) -> Iterator[None]:
    """That function takes no longer what hpcsampler gives it."""
    real = getattr(owner, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("hpcsampler."):
            raise TypeError(f"{name}() got an unexpected argument")
        return real(*args, **kwargs)

    with mock.patch.object(owner, name, function):
        yield


class Renamed:
    """TensorFlow's context, but what hpcsampler looks at in it has another name."""

    def __getattr__(self, name: str) -> Any:
        if name == "_thread_local_data":
            raise AttributeError(name)
        return getattr(CONTEXT, name)


CONTEXT = context.context()


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
    all_hooked = hooked()
    # This fails if looking what there is has opened TensorFlow's devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()],
    )
    plain = train()
    at_first = {"nothing": nullcontext(), "other arguments": other_arguments()}
    at_first |= {"another context": mock.patch.object(context, "context", Renamed)}
    at_first |= {module: without(module) for module in sys.argv[1:]}
    at_first |= {target: gone(*place) for target, place in all_hooked.items()}
    all_the_time = {name: refused(owner, name) for owner, name in CALLED}
    for case in (*at_first, *all_the_time):
        line: dict[str, Any] = {"case": case}
        Session._hooks = None
        try:
            with all_the_time.get(case, nullcontext()):
                with at_first.get(case, nullcontext()):
                    assert hpcsampler.attach(daemon="never", strict=True)
                found = Session._hooks
                assert found is not None
                line["problems"], line["hooked"] = found.problems, found.hooked()
                line["lost"] = sorted(set(all_hooked) - set(found.hooked()))
                line["same"] = train() == plain
        except Exception:
            line["error"] = traceback.format_exc()
        hpcsampler.detach()
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
