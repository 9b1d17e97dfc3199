"""What sampling costs a whole training, and one call of a function with marks in it."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from .stats import Interval, bootstrap_median
from .table import Row, within

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BLOCK_S = 0.12
"""Steps between two switches of the sampler take about this long, so that drift hits both sides alike."""


def whole_training(seconds: float = 60.0) -> list[Row]:
    """Keras `fit` at three step sizes, in one process: recording and paused in turns, within one `fit`."""
    import hpcsampler

    rows = []
    for target_ms, budget in ((1, 0.005), (10, 0.001), (100, None)):
        assert hpcsampler.attach(strict=True)
        blocks = _fit(target_ms / 1000, seconds)
        hpcsampler.detach()
        rows.append(_row("Keras `fit`, {step_ms:.1f} ms steps", blocks, budget))
    assert hpcsampler.attach(strict=True)
    rows.append(_row("loop of one's own, {step_ms:.1f} ms steps", _own_loop(0.001, seconds), 0.005))
    hpcsampler.detach()
    return rows


def graph_marks(rounds: int = 60, calls: int = 400) -> Row:
    """A `tf.function` that gets its element itself: traced before `attach()`, and after."""
    import tensorflow as tf

    import hpcsampler

    def make() -> Callable[[], float]:
        data = tf.data.Dataset.from_tensors(tf.zeros(())).repeat()
        total = tf.Variable(0.0)

        @tf.function
        def step(iterator: Any) -> None:
            total.assign_add(next(iterator))

        iterator = iter(data)
        step(iterator)

        def run() -> float:
            times = []
            for _ in range(calls):
                begin = time.perf_counter()
                step(iterator)
                times.append(time.perf_counter() - begin)
            # The calls that nothing else on this machine got in the way of.
            return statistics.quantiles(times, n=10)[0]

        return run

    without = make()
    hpcsampler.attach(strict=True)
    marked = make()
    added = []
    bare = []
    for turn in range(rounds):
        first, second = (without, marked) if turn % 2 else (marked, without)
        a, b = first(), second()
        plain, with_marks = (a, b) if turn % 2 else (b, a)
        added.append((with_marks - plain) * 1e6)
        bare.append(plain * 1e6)
    hpcsampler.detach()
    times = bootstrap_median(added)
    return Row(
        "marks of one GetNext in a graph (begin, end, function end): added to the call",
        f"{times.middle:.1f} µs [{times.low:.1f}, {times.high:.1f}]",
        f"the same function traced without ({statistics.median(bare):.0f} µs)", "≤ 3 µs",
        within(times.low, times.high, 3),
        {"us": times.middle, "low": times.low, "high": times.high},
    )


def _row(what: str, blocks: list[tuple[bool, float, float]], budget: float | None) -> Row:
    """blocks: (recording, wall seconds per step, CPU seconds per step), in the order in which they ran."""
    wall, cpu = _paired(blocks, 1), _paired(blocks, 2)
    step_ms = statistics.median(block[1] for block in blocks if not block[0]) * 1e3
    return Row(
        what.format(step_ms=step_ms),
        f"wall {wall.middle:+.2%} [{wall.low:+.2%}, {wall.high:+.2%}],"
        f" CPU {cpu.middle:+.2%} [{cpu.low:+.2%}, {cpu.high:+.2%}]",
        f"the same, paused ({len(blocks)} blocks)", "" if budget is None else f"upper end ≤ {budget:.1%}",
        None if budget is None else within(wall.low, wall.high, budget),
        {"step_ms": step_ms, "wall": wall.middle, "wall_low": wall.low, "wall_high": wall.high, "cpu": cpu.middle,
         "cpu_low": cpu.low, "cpu_high": cpu.high},
    )


def _paired(blocks: list[tuple[bool, float, float]], column: int) -> Interval:
    """Each recording block against the mean of its paused neighbours, so that a linear drift cancels."""
    changes = []
    for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False):
        if block[0] and not before[0] and not after[0]:
            changes.append(block[column] / ((before[column] + after[column]) / 2) - 1)
    return bootstrap_median(changes)


class _Switch:
    """Turns recording on and off after every so many steps, and times what is between."""

    def __init__(self, steps: int, seconds: float) -> None:
        self.blocks: list[tuple[bool, float, float]] = []
        self._steps = steps
        self._seconds = seconds
        self._count = 0
        self._recording = True
        self._end = time.perf_counter() + seconds
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def step(self) -> bool:
        """One step is over; False when the time is up."""
        import hpcsampler

        self._count += 1
        if self._count % self._steps:
            return True
        wall, cpu = time.perf_counter(), time.process_time()
        if self._count > self._steps:  # the first block warms up
            self.blocks.append(
                (self._recording, (wall - self._wall) / self._steps, (cpu - self._cpu) / self._steps),
            )
        self._recording = not self._recording
        (hpcsampler.resume if self._recording else hpcsampler.pause)()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return wall < self._end


def _work(seconds: float) -> Callable[[Any], Any]:
    """A computation of about so long: always the same amount of it."""
    import tensorflow as tf

    size = 192
    matrix = tf.random.stateless_uniform((size, size), (1, 2)) / size

    def multiply(x: Any, times: Any) -> Any:
        for _ in tf.range(times):
            x = tf.matmul(matrix, x)
        return x

    function = tf.function(multiply)
    x = tf.ones((size, size))
    function(x, tf.constant(50))
    begin = time.perf_counter()
    function(x, tf.constant(400))
    times = max(1, int(400 * seconds / (time.perf_counter() - begin)))
    # Added to the input as nothing, so that the step needs it and its values stay as they are.
    return lambda value: value + 0 * tf.reduce_sum(tf.function(multiply)(x, tf.constant(times)))


def _fit(step_s: float, seconds: float) -> list[tuple[bool, float, float]]:
    import keras
    import tensorflow as tf

    work = _work(step_s)

    class Work(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return work(x)

    model = keras.Sequential([keras.Input((4,)), Work(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 1)))).repeat().prefetch(2)
    model.fit(data, steps_per_epoch=20, verbose=0)

    class Switches(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.switch = _Switch(max(2, int(BLOCK_S / step_s)), seconds)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
            if not self.switch.step():
                self.model.stop_training = True

    switches = Switches()
    model.fit(data, steps_per_epoch=10**7, verbose=0, callbacks=[switches])
    return switches.switch.blocks


def _own_loop(step_s: float, seconds: float) -> list[tuple[bool, float, float]]:
    import tensorflow as tf

    import hpcsampler

    work = _work(step_s)
    total = tf.Variable(tf.zeros((8, 4)))

    @tf.function
    def train(iterator: Any) -> None:
        total.assign_add(work(next(iterator)))

    iterator = iter(tf.data.Dataset.from_tensors(tf.ones((8, 4))).repeat().prefetch(2))
    for _ in range(20):
        train(iterator)
    switch = _Switch(max(2, int(BLOCK_S / step_s)), seconds)
    going = True
    while going:
        with hpcsampler.step():
            train(iterator)
        going = switch.step()
    return switch.blocks
