"""`hpcsampler run`: the command behaves as without it, and attaches where TensorFlow is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from hpcsampler.protocol.phases import Phase
from tests.support.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = [sys.executable, "-m", "hpcsampler", "run"]
ATTACHED = "HPCSAMPLER_ATTACHED_PID"


def call(*arguments: str, env: dict[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HPCSAMPLER_DAEMON": "never", **(env or {})}
    environ.pop(ATTACHED, None)
    return subprocess.run(
        list(arguments), env=environ, capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment with a `tensorflow` that costs nothing, and a sitecustomize that reports each `attach()`."""

    def make(sitecustomize: str = "") -> dict[str, str]:
        package = tmp_path / "site" / "tensorflow"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("import os\nos.write(1, b'tensorflow runs\\n')\n")
        (package.parent / "sitecustomize.py").write_text(
            textwrap.dedent(
                """
                import os, sys
                import hpcsampler
                def attach(*args, **kwargs):
                    # One write, so that ranks that do so at once don't mix their lines.
                    os.write(1, f"attached {os.getpid()} {'tensorflow' in sys.modules}\\n".encode())
                hpcsampler.attach = attach
                """,
            )
            + sitecustomize,
        )
        return {"PYTHONPATH": str(package.parent)}

    return make


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python that has no package at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return str(tmp_path / "venv" / "bin" / "python")


@pytest.mark.parametrize("code", [0, 3])
def test_passes_the_exit_code_on(code):
    assert call(*RUN, "--", sys.executable, "-c", f"raise SystemExit({code})").returncode == code


def test_dies_of_the_signal_that_the_command_dies_of():
    done = call(*RUN, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL


def test_passes_stdin_on():
    done = call(*RUN, "--", "cat", input="a line\n")
    assert done.stdout == "a line\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_command(number):
    program = f"""
import signal, sys
signal.signal({int(number)}, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""
    with subprocess.Popen([*RUN, "--", sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(10) == 7


def test_a_pipeline_in_the_command_ends_when_its_reader_has_gone():
    assert call(*RUN, "--", "bash", "-c", "yes | head -1").stdout == "y\n"


def test_without_a_command_says_how_to_write_it():
    done = call(*RUN)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "hpcsampler run: no command: write it after --, as in hpcsampler run -- python train.py",
    ]


def test_a_command_that_is_not_there_gives_127():
    done = call(*RUN, "--", "no-such-command-anywhere")
    assert (done.returncode, done.stderr) == (127, "hpcsampler run: no such command: no-such-command-anywhere\n")


def test_a_command_that_is_no_program_gives_126(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("words")
    done = call(*RUN, "--", str(file))
    assert (done.returncode, done.stderr) == (126, f"hpcsampler run: can't execute {file}: Permission denied\n")


def test_a_bad_setting_is_told_before_the_command_starts():
    done = call(*RUN, "--rank", "first", "--", "echo", "ran")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "whole number" in done.stderr


def test_everything_after_the_command_is_its_own():
    program = "import sys; print(sys.argv[1:])"
    done = call(*RUN, "--job", "a", "--", sys.executable, "-c", program, "--job", "b", "--", "--rank=x", "-h")
    assert done.stdout == "['--job', 'b', '--', '--rank=x', '-h']\n"


def test_flags_become_settings_of_the_command():
    program = "import os; print([os.environ[f'HPCSAMPLER_{n}'] for n in ('JOB', 'RANK', 'WORLD_SIZE', 'DAEMON')])"
    done = call(*RUN, "--job=j", "--rank=1", "--world-size=4", "--daemon=never", "--", sys.executable, "-c", program)
    assert done.stdout == "['j', '1', '4', 'never']\n"


@pytest.mark.parametrize("pythonpath", [None, "/nowhere:/else"])
def test_a_program_without_tensorflow_sees_the_same_python(pythonpath):
    program = (
        "import json, sys; print(json.dumps([sys.path, sorted(set(sys.modules)), sorted(sys.path_importer_cache)]))"
    )
    env = {} if pythonpath is None else {"PYTHONPATH": pythonpath}
    plain = call(sys.executable, "-c", program, env=env)
    under = call(*RUN, "--", sys.executable, "-c", program, env=env)
    assert json.loads(under.stdout) == json.loads(plain.stdout)
    assert under.stderr == plain.stderr


def test_attaches_before_the_code_of_tensorflow_runs(site):
    done = call(*RUN, "--", sys.executable, "-c", "import tensorflow, os; print(os.getpid())", env=site())
    attached, runs, pid = done.stdout.splitlines()
    assert attached == f"attached {pid} False"
    assert runs == "tensorflow runs"
    assert done.stderr == ""


def test_a_hook_on_tensorflow_itself_runs_after_its_import(site):
    hook = """
def attach():
    import wrapt
    wrapt.when_imported("tensorflow")(lambda module: print("hooked", module.__name__, flush=True))
hpcsampler.attach = attach
"""
    program = "import tensorflow; print(type(tensorflow.__loader__).__name__, *vars(tensorflow.__loader__))"
    done = call(*RUN, "--", sys.executable, "-c", program, env=site(hook))
    assert done.stdout.splitlines() == ["tensorflow runs", "hooked tensorflow", "SourceFileLoader name path"]


def test_the_users_sitecustomize_still_runs(site):
    program = "import sitecustomize; print(sitecustomize.mine)"
    done = call(*RUN, "--", sys.executable, "-c", program, env=site("mine = 5"))
    assert done.stdout == "5\n"


def test_an_error_in_the_users_sitecustomize_is_told_as_ever(site):
    env = site("1 / 0")
    plain = call(sys.executable, "-c", "print('on')", env=env)
    under = call(*RUN, "--", sys.executable, "-c", "print('on')", env=env)
    assert "ZeroDivisionError" in plain.stderr
    # Once more, because `hpcsampler run` is a Python with that sitecustomize too.
    assert (under.stdout, under.stderr) == (plain.stdout, plain.stderr * 2)


def test_looking_for_tensorflow_attaches_nothing(site):
    program = "import importlib.util; print(importlib.util.find_spec('tensorflow') is not None)"
    assert call(*RUN, "--", sys.executable, "-c", program, env=site()).stdout == "True\n"


def test_a_folder_named_tensorflow_is_no_tensorflow(tmp_path, bare_python):
    (tmp_path / "tensorflow").mkdir()
    done = call(*RUN, "--", bare_python, "-c", "import tensorflow; print('on')", env={"PYTHONPATH": str(tmp_path)})
    assert (done.stdout, done.stderr) == ("on\n", "")


def test_ranks_of_a_launcher_attach_each(site, tmp_path):
    launcher = tmp_path / "launch.py"
    launcher.write_text(
        "import subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', 'import tensorflow']) for _ in range(2)]\n"
        "sys.exit(sum(rank.wait() for rank in ranks))\n",
    )
    done = call(*RUN, "--", "bash", "-c", f"{sys.executable} {launcher}", env=site())
    assert done.returncode == 0
    assert len({line for line in done.stdout.splitlines() if line.startswith("attached")}) == 2


def test_a_launcher_that_forks_its_ranks_attaches_in_them(site):
    program = """
import os
for _ in range(2):
    if (child := os.fork()) == 0:
        import tensorflow
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = call(*RUN, "--", sys.executable, "-c", program, env=site())
    assert len({line for line in done.stdout.splitlines() if line.startswith("attached")}) == 2


def test_spawned_workers_of_a_training_do_not_attach(site, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, tensorflow\n"
        "def work(x):\n"
        "    import tensorflow\n"
        "    return x + 1\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.map(work, [1, 2]))\n",
    )
    done = call(*RUN, "--", sys.executable, str(script), env=site())
    assert "[2, 3]" in done.stdout
    assert done.stdout.count("attached") == 1


def test_a_program_that_becomes_another_attaches_again(site):
    program = "import os, sys, tensorflow; os.execv(sys.executable, [sys.executable, '-c', 'import tensorflow'])"
    done = call(*RUN, "--", sys.executable, "-c", program, env=site())
    assert done.stdout.count("attached") == 2


def test_run_within_a_training_attaches_its_command(site):
    env = {**site(), ATTACHED: "1"}
    environ = {**os.environ, **env}
    command = [*RUN, "--", sys.executable, "-c", "import tensorflow"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.count("attached") == 1


def test_an_attach_that_fails_leaves_the_program_alone(site):
    broken = """
def attach():
    raise RuntimeError("no")
hpcsampler.attach = attach
"""
    done = call(*RUN, "--", sys.executable, "-c", "import tensorflow; print('on')", env=site(broken))
    assert (done.returncode, done.stdout) == (0, "tensorflow runs\non\n")
    assert done.stderr == "hpcsampler: not attached: RuntimeError('no')\n"


def test_a_python_without_hpcsampler_is_told_and_runs_on(tmp_path, bare_python):
    (tmp_path / "tensorflow.py").write_text("")
    done = call(*RUN, "--", bare_python, "-c", "import tensorflow; print('on')", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.startswith(f"hpcsampler: not attached: {bare_python} can't import it")


def test_python_that_ignores_its_environment_is_told_and_runs():
    done = call(*RUN, "--", sys.executable, "-uI", "-c", "print('on')")
    assert done.stdout == "on\n"
    assert len(done.stderr.splitlines()) == 1
    assert "python -I" in done.stderr


def test_a_training_under_run_is_sampled_from_its_first_import(tmp_path):
    tmp_path.chmod(0o700)
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\nfor _ in tf.data.Dataset.range(5):\n    pass\n")
    with Capture(tmp_path) as capture:
        flags = ["--daemon", capture.address, "--job", "j", "--rank", "3", "--world-size", "4"]
        done = call(*RUN, *flags, "--", sys.executable, str(script))
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + 5
        while not any(rank.bye for rank in capture.ranks.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
    (rank,) = capture.ranks.values()
    assert (rank.hello.job, rank.hello.rank, rank.hello.world_size) == ("j", 3, 4)
    assert rank.hello.program == "train.py"
    assert rank.timeline().steps == 5
    assert rank.timeline().totals_ns()[Phase.STARTUP] > 0.5e9
