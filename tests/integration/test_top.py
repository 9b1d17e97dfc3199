"""`hpcsampler top` as people run it: real processes, a real socket, a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pytest

from tests.support import snapshots

TOP = [sys.executable, "-m", "hpcsampler", "top"]


@contextlib.contextmanager
def publishing(directory: Path, make=snapshots.eight_gpus, frame: bytes | None = None):
    """A daemon's place taken by a publisher, until the block ends."""
    over = threading.Event()

    def publish() -> None:
        with snapshots.Publisher(directory, make) as publisher:
            while not over.wait(0.05):
                publisher.publish() if frame is None else publisher.send(frame)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def directory():
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    yield path
    shutil.rmtree(path)


def run_top(*arguments: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "LC_ALL")}
    return subprocess.run(
        [*TOP, "--runtime-dir", str(directory), *arguments],
        env={**clean, "LC_ALL": "C.UTF-8", **environ}, stdin=subprocess.DEVNULL, capture_output=True,
        encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip


class Terminal:
    """A tmux of its own with one shell in it."""

    def __init__(self, width: int, height: int) -> None:
        self.name = f"hpcsampler-{uuid.uuid4().hex[:8]}"
        self.tmux(
            "new-session",
            "-d",
            "-x",
            str(width),
            "-y",
            str(height),
            "env PS1='$ ' LC_ALL=C.UTF-8 COLUMNS=80 sh",
        )

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.name, "-f", os.devnull, *arguments]
        return subprocess.run(command, check=True, capture_output=True, encoding="utf-8", timeout=20).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def styled(self) -> str:
        return self.tmux("capture-pane", "-p", "-e")

    def await_text(self, text: str, seconds: float = 20.0, *, gone: bool = False) -> str:
        end = time.monotonic() + seconds
        while (text in (screen := self.screen())) is gone:
            assert time.monotonic() < end, f"{text!r} {'still' if gone else 'not'} on the screen:\n{screen}"
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")


@pytest.fixture
def terminal():
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    opened = Terminal(120, 30)
    yield opened
    opened.close()


def start_top(terminal: Terminal, directory: Path, *arguments: str) -> None:
    terminal.type(f"{' '.join(TOP)} --runtime-dir {directory} {' '.join(arguments)}; echo code=$?", "Enter")


def test_lives_in_a_terminal_from_first_frame_to_last(terminal, directory) -> None:
    with publishing(directory):
        start_top(terminal, directory)
        screen = terminal.await_text("waits for input 37 %")
        assert "SSSSSS" in screen
        assert "killed in input after 3.2 s" in screen
        assert "data 0." in screen
        assert "\x1b[" in terminal.styled()
        terminal.type("?")
        terminal.await_text("blocked while a checkpoint is written or restored")
        terminal.type("Escape")
        terminal.await_text("blocked while a checkpoint", gone=True)
        for width, height in ((200, 50), (80, 24)):
            terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
            screen = terminal.await_text("top cause" if width > 160 else "p50/p99 ms goodput")
            assert "q quit" in screen.splitlines()[height - 1], screen
        terminal.type("p")
        terminal.await_text("PAUSED")
        terminal.type("p")
        terminal.await_text("PAUSED", gone=True)
        terminal.type("q")
        screen = terminal.await_text("code=0")
    assert "waits for input" not in screen
    assert terminal.tmux("display", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split() == [
        "0",
        "1",
        "0",
    ]
    terminal.type("echo typed again", "Enter")
    terminal.await_text("\ntyped again")


def test_reconnects_without_a_key(terminal, directory) -> None:
    with publishing(directory):
        start_top(terminal, directory)
        terminal.await_text("data 0.")
    screen = terminal.await_text("daemon silent for")
    assert "OLD" in screen
    assert "old " in screen
    with publishing(directory, snapshots.two_cpu_ranks):
        screen = terminal.await_text("job demo")
        assert "daemon silent" not in screen
        terminal.type("q")
        terminal.await_text("code=0")


def test_opened_first_it_waits_for_the_first_training(terminal, directory) -> None:
    place = directory / "made later"
    start_top(terminal, Path(f"'{place}'"))
    terminal.await_text("waiting for a daemon in")
    assert place.stat().st_mode & 0o777 == 0o700
    with publishing(place, snapshots.two_cpu_ranks):
        terminal.await_text("job demo")
    terminal.type("q")
    terminal.await_text("code=0")


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_ended_by_a_signal_it_gives_the_terminal_back(terminal, directory, signal) -> None:
    with publishing(directory):
        start_top(terminal, directory)
        terminal.await_text("waits for input")
        pids = subprocess.run(
            ["pgrep", "-f", str(directory)], capture_output=True, encoding="utf-8", check=True
        ).stdout
        pid = max(map(int, pids.split()))
        if signal == "INT":
            terminal.type("C-c")
        else:
            os.kill(pid, 15)
        terminal.await_text("code=130" if signal == "INT" else "code=143")
    assert terminal.tmux("display", "-p", "#{alternate_on}").strip() == "0"


def test_no_colour_and_ascii(terminal, directory) -> None:
    with publishing(directory):
        start_top(terminal, directory, "--no-color", "--ascii", "--sort", "stall")
        screen = terminal.await_text("sort: stall")
        assert screen.isascii()
        assert "38;5" not in terminal.styled()
        terminal.type("q")
        terminal.await_text("code=0")


def test_without_textual_it_says_what_to_install(terminal, directory) -> None:
    program = (
        "import sys; sys.modules.update(textual=None, rich=None); from hpcsampler.cli import main;"
        f" sys.exit(main(['top', '--runtime-dir', '{directory}']))"
    )
    with publishing(directory):
        terminal.type(f'{sys.executable} -c "{program}"; echo code=$?', "Enter")
        screen = terminal.await_text("code=1")
    assert "pip install 'hpcsampler[top]'" in screen
    assert "Traceback" not in screen
    assert "waits for input" not in screen
    assert terminal.tmux("display", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


SLOW_TEXTUAL = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "textual":
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from hpcsampler.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("ended_by", ["TERM", "INT"])
def test_the_first_frame_does_not_wait_for_textual(terminal, directory, ended_by) -> None:
    program = directory / "slow.py"
    program.write_text(SLOW_TEXTUAL)
    with publishing(directory):
        terminal.type(f"{sys.executable} {program} top --runtime-dir {directory}; echo code=$?", "Enter")
        screen = terminal.await_text("waits for input 37 %")
        assert "q quit" in screen.splitlines()[29]
        if ended_by == "INT":
            terminal.type("C-c")
        else:
            pids = subprocess.run(["pgrep", "-f", str(program)], capture_output=True, encoding="utf-8", check=True)
            os.kill(max(map(int, pids.stdout.split())), 15)
        screen = terminal.await_text("code=130" if ended_by == "INT" else "code=143")
    assert "waits for input" not in screen
    assert terminal.tmux("display", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


def test_once_prints_a_frame(directory) -> None:
    with publishing(directory):
        done = run_top("--once", directory=directory)
    assert done.returncode == 0, done.stderr
    assert "waits for input 37 % — ParallelMap decode" in done.stdout
    assert "\x1b" not in done.stdout
    assert "q quit" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert done.stderr == ""


def test_without_a_terminal_it_prints_a_frame_too(directory) -> None:
    with publishing(directory):
        done = run_top(directory=directory, COLUMNS="140")
    assert done.returncode == 0
    assert "waits for input" in done.stdout
    assert 100 < max(map(len, done.stdout.splitlines())) <= 140


def test_once_is_ascii_where_the_locale_is(directory) -> None:
    with publishing(directory, snapshots.hostile):
        done = run_top("--once", directory=directory, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_once_with_colour_in_a_terminal(terminal, directory) -> None:
    with publishing(directory):
        start_top(terminal, directory, "--once")
        terminal.await_text("code=0")
        assert "48;5" in terminal.styled()


def test_json_prints_one_snapshot(directory) -> None:
    def make():
        shot = snapshots.eight_gpus()
        shot["ranks"][0]["steps_per_s"] = float("nan")
        return shot

    with publishing(directory, make):
        done = run_top("--json", directory=directory)
    assert done.returncode == 0, done.stderr
    shot = json.loads(done.stdout, parse_constant=pytest.fail)
    assert shot["schema"] == 1
    assert len(shot["ranks"]) == 8
    assert "steps_per_s" not in shot["ranks"][0]
    assert list(shot) == sorted(shot)


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_no_daemon_is_one_line_that_says_what_to_do(directory, option) -> None:
    for place in (directory, directory / "not there"):
        started = time.monotonic()
        done = run_top(option, directory=place)
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr == (
            f"hpcsampler: no hpcsampler daemon answers in {place}: start a training with"
            " hpcsampler.attach(), or: hpcsampler daemon start\n"
        )
        assert time.monotonic() - started < 15
    assert not (directory / "not there").exists()


def test_a_daemon_of_another_version_is_said_so(directory) -> None:
    with publishing(directory, frame=b"\x81\xa6schema\x63"):
        done = run_top("--once", directory=directory)
    assert done.returncode == 1
    assert "another version" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_directory_open_to_others_is_refused(directory) -> None:
    directory.chmod(0o755)
    done = run_top("--once", directory=directory)
    assert done.returncode == 1
    assert "open to others" in done.stderr


def test_a_too_long_path_is_said_so(directory) -> None:
    place = directory / ("long" * 30)
    place.mkdir(mode=0o700)
    done = run_top("--once", directory=place)
    assert done.returncode == 1
    assert "--runtime-dir" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--interval", "0.1"], "from 0.25 to 10"), (["--interval", "soon"], "from 0.25 to 10"),
     (["--interval", "nan"], "from 0.25 to 10"), (["--sort", "size"], "stall"),
     (["--once", "--json"], "not allowed")],
)  # fmt: skip
def test_bad_flags_exit_2_with_one_line(directory, arguments, said) -> None:
    done = run_top(*arguments, directory=directory)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_is_no_error(directory) -> None:
    with publishing(directory, snapshots.many_ranks):
        command = f"{' '.join(TOP)} --json --runtime-dir {directory} | head -1"
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, encoding="utf-8", timeout=60, check=False
        )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_looking_once_needs_no_textual(directory) -> None:
    program = (
        "import sys; from hpcsampler.cli import main; code = main(sys.argv[1:]);"
        " sys.exit(9 if {'textual', 'rich', 'numpy'} & set(sys.modules) else code)"
    )
    with publishing(directory):
        done = subprocess.run(
            [sys.executable, "-c", program, "top", "--once", "--runtime-dir", str(directory)],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0
