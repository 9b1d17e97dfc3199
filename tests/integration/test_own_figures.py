"""A rank that looks at its own figures: `hpcsampler.snapshot()`, and the Keras callback that logs them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hpcsampler.sampler.own import OwnFigures
from tests.support.environment import environment


def run(program: str, *, seconds: float = 120, **more: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="hs-") as directory:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(Path(directory) / "run", HPCSAMPLER_LINGER_S="1", **more),
            capture_output=True, text=True, timeout=seconds, check=False,
        )
    assert done.returncode == 0, done.stderr
    return done


def test_a_rank_sees_its_own_figures_to_the_last_step() -> None:
    run("""
import time, hpcsampler
assert hpcsampler.snapshot() is None
hpcsampler.attach(job="own", strict=True)
for steps in (5, 12):
    while steps > ((found := hpcsampler.snapshot(10)) or {}).get("step", 0):
        with hpcsampler.step(): time.sleep(0.004)
        with hpcsampler.phase("load"): time.sleep(0.004)
    assert found["step"] == steps and found["job"] == "own", found
    assert found["age_s"] < 10
    assert 0.4 < found["totals_s"]["step"] / (found["totals_s"]["user"] + found["totals_s"]["step"]) < 0.6, found
begin = time.monotonic()
assert hpcsampler.snapshot(0)["step"] == 12 and time.monotonic() - begin < 0.2
hpcsampler.detach()
assert hpcsampler.snapshot() is None
""")


def test_without_a_daemon_there_are_none_and_nothing_waits_long() -> None:
    run("""
import time, hpcsampler
hpcsampler.attach(daemon="never", strict=True)
begin = time.monotonic()
assert hpcsampler.snapshot(0.3) is None
assert 0.29 < time.monotonic() - begin < 3
assert hpcsampler.snapshot(0.5) is None
begin = time.monotonic()
assert [hpcsampler.snapshot(5) for _ in range(100)] == [None] * 100  # an epoch each
assert time.monotonic() - begin < 1
""")


def test_figures_come_again_when_a_daemon_comes() -> None:
    run("""
import subprocess, sys, time, hpcsampler
hpcsampler.attach(daemon="never", strict=True)
assert hpcsampler.snapshot(0.5) is None
daemon = subprocess.Popen([sys.executable, "-m", "hpcsampler", "daemon", "run"], stderr=subprocess.DEVNULL)
end = time.monotonic() + 30
while hpcsampler.snapshot() is None and time.monotonic() < end:
    time.sleep(0.1)
time.sleep(0.3)
assert hpcsampler.snapshot(5)["age_s"] < 0.5
daemon.terminate()
daemon.wait()
""")


def test_where_no_daemon_can_be_there_are_none_and_nothing_is_raised() -> None:
    figures = OwnFigures("ipc:///" + "x" * 200, "0123456789abcdef")
    assert figures.read(1, 0.1) is None
    figures.close()


def test_keras_logs_say_where_each_epoch_went() -> None:
    pytest.importorskip("keras")
    done = run("""
import hpcsampler
hpcsampler.attach(strict=True)
import keras, tensorflow as tf
from hpcsampler.keras import StallLogs
data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 1)))).repeat(20)
def slow(x, y):
    x = tf.py_function(lambda a: (__import__("time").sleep(0.03), a)[1], [x], tf.float32)
    x.set_shape((8, 4))
    return x, y
data = data.map(slow)
options = tf.data.Options(); options.autotune.enabled = False; data = data.with_options(options)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]); model.compile("sgd", "mse")
import csv, os, time
log = os.path.join(os.environ["HPCSAMPLER_RUNTIME_DIR"], "log.csv")
times = []
class Times(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None): times.append(time.monotonic())
logs = [Times(), StallLogs(), Times(), keras.callbacks.CSVLogger(log)]
model.fit(data, epochs=3, verbose=0, callbacks=logs)
took = [after - before for before, after in zip(times[::2], times[1::2])]
assert len(took) == 3 and min(took) < 0.02, took  # it waits for nothing
rows = list(csv.DictReader(open(log)))
phases = [name for name in rows[0] if name.startswith("hpcsampler/") and name != "hpcsampler/goodput"]
assert len(phases) == 13, phases
for row in rows: assert abs(sum(float(row[name]) for name in phases) - 1) < 1e-4, row
history = model.fit(data, epochs=3, verbose=0, callbacks=[StallLogs(wait_s=5.0)]).history
for name in ("hpcsampler/input", "hpcsampler/step", "hpcsampler/goodput"):
    assert len(history[name]) == 3, history.keys()
print(history["hpcsampler/input"][-1], sum(v[-1] for k, v in history.items()
      if k.startswith("hpcsampler/") and k != "hpcsampler/goodput" and len(v) == 3))
""")
    share, _ = (float(word) for word in done.stdout.split()[-2:])
    assert share > 0.5  # 20 waits of 30 ms are most of an epoch of so small a model
