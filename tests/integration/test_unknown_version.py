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

from tests.support.capture import Capture
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
    """What each case said and did; that in which nothing is gone is `nothing`."""
    with tempfile.TemporaryDirectory() as directory, Capture(Path(directory)) as capture:
        done = subprocess.run(
            [sys.executable, WORKLOAD, *modules()], capture_output=True, text=True, timeout=400, check=False,
            env=environment(Path(directory), PYTHONWARNINGS="ignore,default::RuntimeWarning"),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert not re.search("hpcsampler|Traceback", done.stderr), done.stderr[-2000:]
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        capture.wait_for(lambda: len([rank for rank in capture.ranks.values() if rank.bye]) == len(lines))
        ranks = sorted(capture.ranks.values(), key=lambda rank: rank.hello.attach_ns if rank.hello else 0)
    return {
        line["case"]: {**line, "steps": rank.timeline().steps} for line, rank in zip(lines, ranks, strict=True)
    }


def new_problems(case: str) -> str:
    """What is said of a case beyond what this version lacks by itself."""
    usual = outcomes()["nothing"]["problems"]
    return "; ".join(problem for problem in outcomes()[case]["problems"] if problem not in usual)


pytestmark = pytest.mark.timeout(420)  # the first one runs them all


def test_the_training_is_the_same_whatever_is_gone() -> None:
    assert len(outcomes()) > 60
    assert {case: line["error"] for case, line in outcomes().items() if "error" in line} == {}
    assert [case for case, line in outcomes().items() if not line["same"]] == []


def test_what_is_gone_is_named() -> None:
    for case, line in outcomes().items():
        found = new_problems(case)
        assert "not hooked" in found or not line["lost"], case  # of several places to look in, one is enough
        if case in outcomes()["nothing"]["hooked"]:
            assert case.removeprefix("registry.") in found
    for called in ("flatten", "identity", "_create_op_internal"):
        assert f"waits inside tf.function (TypeError: {called}()" in new_problems(called)


def test_what_is_left_counts_steps() -> None:
    steps = {case: line["steps"] for case, line in outcomes().items()}
    assert steps.pop("nothing") == 9
    steps.pop("other arguments")  # of nearly everything
    assert min(steps.values()) >= 3, steps


def test_what_is_gone_takes_only_its_own_part_along() -> None:
    for case, line in outcomes().items():
        lost = set(line["lost"])
        assert len(lost & {"CallbackList.on_epoch_end", "Checkpoint.save"}) <= 1, case
        if case.startswith("tensorflow.python.") and "tensorflow is not hooked" not in new_problems(case):
            assert len(lost & {"OwnedIterator._next_internal", "Function._call", "Checkpoint.save"}) <= 2, case
