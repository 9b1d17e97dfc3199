"""A program that attaches in the middle of its training."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.capture import Capture
from tests.support.environment import environment


def test_steps_of_what_was_traced_before_are_counted_and_the_user_is_told_what_is_not_seen(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import keras, tensorflow as tf, hpcsampler, time
        data = tf.data.Dataset.from_tensors((tf.ones((2, 4)), tf.ones((2, 1)))).repeat(7)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(data, verbose=0)
        hpcsampler.attach(daemon="never", strict=True)
        model.fit(data, epochs=2, verbose=0)
        time.sleep(2.5)  # the next hello carries the note
        hpcsampler.detach()
    """)
    with Capture(tmp_path) as capture:
        subprocess.run([sys.executable, "-c", program], env=environment(tmp_path), timeout=120, check=True)
        rank = capture.only_rank()
    assert rank.hello is not None
    assert [note for note in rank.hello.notes if "before attach()" in note]
    assert rank.timeline().steps == 14
