"""`doctor` says what can and can't be hooked, in the TensorFlow that is installed and in one that lacks a part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import environment
from tests.support.versions import KERAS, STAGES


def report(directory: Path, *, sitecustomize: str = "") -> dict[str, list[str]]:
    (directory / "sitecustomize.py").write_text(sitecustomize)
    done = subprocess.run(
        [sys.executable, "-m", "hpcsampler.sampler.hooks", "tensorflow", "keras"],
        env=environment(directory, PYTHONPATH=str(directory)), stdout=subprocess.PIPE, timeout=120, check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


LACKS_STAGES = "not hooked: tf.data.experimental.get_model_proto (stages of the input pipeline)"
USUAL = [] if STAGES else [LACKS_STAGES]


def test_all_is_hooked_in_this_tensorflow(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert found["problems"] == USUAL
    assert "OwnedIterator._next_internal" in found["hooked"]
    assert ("TensorFlowTrainer.fit" if KERAS >= (3,) else "Model.fit") in found["hooked"]


def test_what_a_tensorflow_lacks_is_named_and_the_rest_is_hooked(tmp_path: Path) -> None:
    found = report(tmp_path, sitecustomize="""
import wrapt
@wrapt.when_imported("tensorflow.python.saved_model.save")
def lacks(module):
    del module._build_meta_graph
""")
    missing = "not hooked: tensorflow.python.saved_model.save._build_meta_graph"
    assert sorted(found["problems"]) == sorted([missing, *USUAL])
    assert "OwnedIterator._next_internal" in found["hooked"]


@pytest.mark.skipif(not STAGES, reason="it is the TensorFlow without")
def test_a_tensorflow_without_a_model_of_its_pipelines_is_named(tmp_path: Path) -> None:
    found = report(tmp_path, sitecustomize="""
import wrapt
@wrapt.when_imported("tensorflow.python.ops.gen_experimental_dataset_ops")
def lacks(module):
    del module.iterator_get_model_proto
""")
    assert found["problems"] == [LACKS_STAGES]
    assert "OwnedIterator._next_internal" in found["hooked"]
