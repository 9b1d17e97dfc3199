"""A seeded training, with the sampler or without: prints a hash of all weights and losses, and what was raised.

`python seeded.py PROGRAM,PROGRAM,… [attach]`
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ATTACHED = "attach" in sys.argv

if ATTACHED:
    import hpcsampler

    assert hpcsampler.attach(daemon="never", strict=True)

import keras
import numpy as np
import tensorflow as tf

tf.config.experimental.enable_op_determinism()


def data(n: int = 96) -> tf.data.Dataset:
    x = np.random.default_rng(1).random((n, 8, 8, 1), np.float32)
    y = np.random.default_rng(2).integers(0, 3, n)
    augmented = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=3).map(
        lambda a, b: (tf.image.stateless_random_flip_left_right(a, (1, 2)), b), num_parallel_calls=2,
    )
    return augmented.batch(8).prefetch(2)


def network() -> keras.Model:
    return keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3),
        keras.layers.Flatten(), keras.layers.Dense(3),
    ])


def compiled(**options: Any) -> keras.Model:
    made = network()
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], **options)
    return made


def history(made: keras.Model, **options: Any) -> list[Any]:
    # Keras 3.3 fails by itself where fewer batches than steps_per_execution are there to validate with.
    result = made.fit(data(), epochs=2, verbose=0, shuffle=False, validation_data=data(40), **options)
    return [*made.get_weights(), *(np.array(v) for v in result.history.values())]


def fit() -> list[Any]:
    return history(compiled(jit_compile=False))


def fit_with_xla() -> list[Any]:
    return history(compiled(jit_compile=True))


def fit_several_steps_per_execution() -> list[Any]:
    return history(compiled(jit_compile=False, steps_per_execution=4))


class Noting(keras.callbacks.Callback):
    """Notes what it is called with, and what it is itself."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.noted.append(f"{batch} {sorted(logs or {})}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.noted.append(f"{epoch} {sorted(logs or {})} {type(self).__name__} {sorted(vars(self))}")


def fit_with_callbacks_and_checkpoints() -> list[Any]:
    """Written, restored and read in the middle of it."""
    directory = tempfile.mkdtemp()
    made = compiled(jit_compile=False)
    noting = Noting()
    losses: list[Any] = []
    result = history(made, callbacks=[
        noting,
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(np.float64(logs["loss"]))),
        keras.callbacks.ModelCheckpoint(f"{directory}/best.weights.h5", save_best_only=True, save_weights_only=True),
        keras.callbacks.BackupAndRestore(f"{directory}/backup"),
        keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True),
    ])
    made.save(f"{directory}/whole.keras")
    loaded = keras.saving.load_model(f"{directory}/whole.keras")
    made.load_weights(f"{directory}/best.weights.h5")
    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.random.normal((3,))))
    status = checkpoint.restore(checkpoint.save(f"{directory}/ckpt"))
    status.assert_consumed()
    return [*result, *loaded.get_weights(), *made.get_weights(), checkpoint.v.numpy(), *losses, *noting.noted]


def fit_eagerly() -> list[Any]:
    return history(compiled(run_eagerly=True))


def _custom(jit: bool | None, around: Callable[..., Any]) -> list[Any]:
    made = network()
    optimizer = keras.optimizers.Adam()
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(jit_compile=jit)
    def step(x: Any, y: Any) -> Any:
        # Op seeds of TensorFlow's own come from the graph: a mark must not shift them.
        shape = tf.shape(x)
        x += tf.random.stateless_normal(shape, (1, 2)) if jit else tf.random.normal(shape, stddev=0.1)
        with tf.GradientTape() as tape:
            loss = loss_function(y, made(x, training=True))
        gradients = tape.gradient(loss, made.trainable_variables)
        optimizer.apply_gradients(zip(gradients, made.trainable_variables, strict=True))
        return loss

    losses = around(step)
    return [*made.get_weights(), np.array(losses)]


def _loop_in_function(step: Any) -> Any:
    @tf.function
    def epoch(dataset: Any) -> Any:
        total = tf.constant(0.0)
        for x, y in dataset:
            total += step(x, y)
            if total > 1e6:
                break
        return total

    return [epoch(data()) for _ in range(2)]


def _iterator_in_function(step: Any) -> Any:
    @tf.function
    def epoch(iterator: Any) -> Any:
        total = tf.constant(0.0)
        for x, y in iterator:
            total += step(x, y)
        return total

    return [epoch(iter(data())) for _ in range(2)]


def _next_in_function(step: Any) -> Any:
    @tf.function
    def one(iterator: Any) -> Any:
        noise = tf.random.normal(())  # stateful, before the element comes
        x, y = next(iterator)
        return step(x, y) + 0 * noise + tf.random.uniform(())

    iterator = iter(data().repeat())
    return [one(iterator) for _ in range(12)]


def _eager_loop(step: Any) -> Any:
    return [step(x, y) for x, y in data()]


def custom_eager_loop() -> list[Any]:
    return _custom(None, _eager_loop)


def custom_eager_loop_xla() -> list[Any]:
    return _custom(True, _eager_loop)


def custom_next_in_function() -> list[Any]:
    return _custom(None, _next_in_function)


def custom_next_in_function_xla() -> list[Any]:
    return _custom(True, _next_in_function)


def custom_loop_over_dataset() -> list[Any]:
    return _custom(None, _loop_in_function)


def custom_loop_over_dataset_xla() -> list[Any]:
    return _custom(True, _loop_in_function)


def custom_loop_over_iterator() -> list[Any]:
    return _custom(None, _iterator_in_function)


def custom_loop_over_iterator_xla() -> list[Any]:
    return _custom(True, _iterator_in_function)


def distributed() -> list[Any]:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        made = compiled(jit_compile=False)
    return history(made)


def errors_reach_the_program() -> list[Any]:
    """What is raised, and how often, with the words of it: an error in the pipeline, in the step, the end of data."""
    seen: list[str] = []

    def note(action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            seen.append(f"{type(error).__module__}.{type(error).__qualname__}: {(str(error).splitlines() or [''])[0]}")
        else:
            seen.append("nothing")

    def broken(x: Any) -> Any:
        raise KeyError("in the pipeline")

    bad = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(broken, [x], tf.int64))
    note(lambda: next(iter(bad)))
    note(lambda: list(bad))

    @tf.function
    def one(iterator: Any) -> Any:
        return next(iterator)

    note(lambda: one(iter(bad)))
    empty = iter(tf.data.Dataset.range(0))
    note(lambda: one(empty))
    note(lambda: next(empty))
    note(empty.get_next)

    @tf.function(jit_compile=True)
    def impossible(iterator: Any) -> Any:
        return next(iterator) + 1

    # XLA can't compile an iterator: with a mark beside it or without, this must fail alike.
    try:
        impossible(iter(tf.data.Dataset.range(3)))
        seen.append("compiled")
    except Exception as error:
        seen.append(type(error).__qualname__)

    @tf.function
    def checked(iterator: Any) -> Any:
        value = next(iterator)
        tf.debugging.assert_less(value, tf.constant(1, tf.int64), message="too large")
        return value

    iterator = iter(tf.data.Dataset.range(3))
    note(lambda: checked(iterator))
    note(lambda: checked(iterator))
    return seen


def main() -> None:
    for program in sys.argv[1].split(","):
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        digest = hashlib.sha256()
        for part in globals()[program]():
            if isinstance(part, str):
                print(part)
            else:
                digest.update(np.ascontiguousarray(part).tobytes())
        print(program, digest.hexdigest())


if __name__ == "__main__":
    main()
