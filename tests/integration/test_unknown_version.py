"""A TensorFlow or Keras of tomorrow, in which something has moved: the training runs, and what is not seen is said."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.environment import environment

ROOT = Path(__file__).parents[2]
WORKLOAD = Path(__file__).parent / "workloads" / "unknown.py"
_IMPORT = re.compile(r"^ +from ((?:tensorflow\.python|keras\.src)\.[\w.]+) import ([\w, ]+)$", re.MULTILINE)


def modules() -> list[str]:
    """What the hooks import of TensorFlow and Keras by private names, as `module.name`."""
    found = set()
    for file in (*(ROOT / "src/sampler/hooks").glob("*.py"), ROOT / "src/sampler/pipeline.py"):
        for module, names in _IMPORT.findall(file.read_text()):
            found |= {f"{module}.{name.partition(' as ')[0].strip()}" for name in names.split(",")}
    return sorted(found)


@functools.cache
def outcomes() -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, WORKLOAD, *modules()], env=environment(Path(directory)), capture_output=True,
            text=True, timeout=400, check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines}


@pytest.mark.timeout(420)  # the first case runs them all
@pytest.mark.parametrize("case", [*modules(), "other arguments"])
def test_what_is_gone_is_named_and_the_training_is_the_same(case: str) -> None:
    line = outcomes()[case]
    assert "error" not in line, line["error"]
    assert line["same"]
    assert line["problems"] or not line["lost"]  # of several places to look in, one is enough
    assert all("not hooked" in problem for problem in line["problems"])


def test_what_is_gone_takes_only_its_own_part_along() -> None:
    for case, line in outcomes().items():
        lost = set(line["lost"])
        assert len(lost & {"TensorFlowTrainer.fit", "Checkpoint.save"}) <= 1, case
        if case.startswith("tensorflow.python.") and "tensorflow is not hooked" not in line["problems"][0]:
            assert len(lost & {"OwnedIterator._next_internal", "Function._call", "Checkpoint.save"}) <= 2, case
