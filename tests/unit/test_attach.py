"""What `attach()` and its like tell whoever calls them: in a process of their own, without TensorFlow."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys

import hpcsampler
from tests.support.environment import environment


def run(program: str, directory, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = environment(directory, HPCSAMPLER_DAEMON="never", **environ) | {"PYTHONWARNINGS": "default"}
    return subprocess.run(
        [sys.executable, "-c", f"import hpcsampler\n{program}"],
        env=variables, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


WRONG = "rank= is 5, but world_size= is 2: write a rank from 0 to 1"


def test_a_rank_beyond_the_world_is_said_once_and_the_program_goes_on(tmp_path):
    done = run("print([hpcsampler.attach(rank=5, world_size=2) for _ in range(2)])", tmp_path)
    assert done.returncode == 0
    assert done.stdout == "[False, False]\n"
    assert done.stderr.count(WRONG) == 1


def test_a_rank_beyond_the_world_is_raised_where_that_was_asked_for(tmp_path):
    done = run("hpcsampler.attach(rank=5, world_size=2, strict=True)", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"UsageError: {WRONG}")


def test_a_variable_that_means_nothing_is_said_once_and_the_program_is_sampled(tmp_path):
    program = "print(hpcsampler.attach(), hpcsampler.attach()); hpcsampler.detach(); print(hpcsampler.attach())"
    done = run(program, tmp_path, HPCSAMPLER_WORLDSIZE="2")
    assert done.returncode == 0
    assert done.stdout == "True True\nTrue\n"
    assert done.stderr.count("the nearest that does is HPCSAMPLER_WORLD_SIZE") == 1


def test_switched_off_it_says_nothing_at_all(tmp_path):
    done = run("print(hpcsampler.attach())", tmp_path, HPCSAMPLER_ENABLED="0", HPCSAMPLER_WORLDSIZE="2")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_what_a_program_gives_to_attach_wins_over_run(tmp_path):
    program = (
        "import os; from hpcsampler.settings import load\n"
        "assert os.environ['HPCSAMPLER_JOB'] == 'flag'\n"
        "print(load(os.environ, job='script').job, load(os.environ).job)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpcsampler", "run", "--job", "flag", "--", sys.executable, "-c", program],
        env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "script flag\n", done.stderr


def test_help_shows_how_mark_is_called():
    assert str(inspect.signature(hpcsampler.mark)) == "(name, value=0)"
    assert "mark(name, value=0)" in pydoc.plain(pydoc.render_doc(hpcsampler.mark))


def test_phases_named_anew_for_each_step_are_not_kept_for_ever(tmp_path):
    program = """
from hpcsampler.sampler import api
for number in range(5000):
    with hpcsampler.phase(f"step {number}"):
        pass
assert hpcsampler.phase("step 0") is hpcsampler.phase("step 0")
print(len(api._spans) <= 1024)
"""
    assert run(program, tmp_path).stdout == "True\n"
