"""`hpcsampler demo`: two ranks of a real training, one with a slow pipeline, and `top` in front of them."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .. import launch, runtime
from ..demo.folder import DemoFolder, remove_left_over
from ..demo.images import default_folder, image_set
from ..errors import HpcsamplerError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Callable

    from ..runtime import RuntimeDirectory

PIPELINES = ("fast", "slow")
"""One rank each."""
FRAMES = 3
SECONDS_WITHOUT_TERMINAL = 25.0
_START_S = 180.0
"""For imports and the first step: a cold file system can be slow."""
_TOP_END_S = 2.0
"""For `top`, which has a terminal to give back …"""
_END_S = 0.5
"""… and for ranks and daemon, which have nothing to lose: whoever pressed q waits for them."""
_PR_SET_PDEATHSIG = 1
_DAEMON_START_S = 3.0
_POLL_S = 0.2
_LOG_LINES = 12
_NEEDED = (("tensorflow", "tensorflow-cpu"), ("sklearn", "demo"), ("PIL", "demo"))
"""Modules, and the extra that brings each."""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> ArgumentParser:
    """Add `demo` and its flags."""
    parser = subparsers.add_parser(
        "demo",
        help="watch two ranks of a small training on real images",
        description="Train on real images in two ranks, one of them with a slow input pipeline, with top in front."
        " Without a terminal it prints a few frames and ends.",
    )
    parser.add_argument(
        "--seconds", type=_seconds, help="how long to watch (default: until q, without a terminal 25)",
    )
    parser.add_argument("--data", type=Path, default=default_folder(os.environ), help="folder of the images (9 MB)")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ArgumentTypeError(f"{text!r} is no time: write seconds above 0")
    return seconds


def run(arguments: Namespace) -> int:
    """Run the demo; leaves nothing behind but the images, and after a failure the logs."""
    seconds = arguments.seconds
    _need_modules()
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and importlib.util.find_spec("textual") is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    remove_left_over()
    folder = DemoFolder()
    scene = Scene(runtime.RuntimeDirectory(folder.path), arguments.data)
    try:
        scene.prepare_images()
        scene.start_ranks()
        if in_terminal:
            scene.show_top(seconds)
        else:
            scene.print_frames(seconds or SECONDS_WITHOUT_TERMINAL)
    except HpcsamplerError:
        scene.end()
        folder.keep()
        raise
    except BaseException:
        scene.end()
        folder.remove()
        raise
    scene.end()
    folder.remove()
    return 0


class Scene:
    """The ranks, their daemon and their files, all in a folder of their own: never the user's daemon."""

    def __init__(self, directory: RuntimeDirectory, data: Path) -> None:
        self.directory = directory
        self.data = data
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HPCSAMPLER_")
        } | {"HPCSAMPLER_RUNTIME_DIR": str(directory.path)}
        # TensorFlow removes its temporary files when it ends by itself, and here it seldom does.
        self.environment["TMPDIR"] = str(directory.path)
        # TensorFlow greets at length, and not on every machine are there GPUs for it to look for.
        self.environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self._tied = tied_to(os.getpid())

    def log(self, name: str) -> Path:
        """Where a child's output goes."""
        return self.directory.path / f"{name}.log"

    def prepare_images(self) -> None:
        """Write the images, once."""
        if image_set(self.data).ready:
            return
        print(f"writing the images to {self.data} …", flush=True)
        maker = self._start("images", "hpcsampler.demo.images", "--data", str(self.data))
        try:
            if maker.wait() != 0:
                raise HpcsamplerError(f"the images could not be made: {self._last_words('images')}")
        finally:
            _end([maker], _END_S)

    def start_ranks(self) -> None:
        """Start one rank for each pipeline."""
        for rank, pipeline in enumerate(PIPELINES):
            self.ranks.append(
                self._start(
                    f"rank{rank}", "hpcsampler.demo.train",
                    "--rank", str(rank), "--world-size", str(len(PIPELINES)),
                    "--pipeline", pipeline, "--data", str(self.data),
                ),
            )  # fmt: skip
            pid, log = self.ranks[-1].pid, self.log(f"rank{rank}")
            print(f"rank {rank}: {pipeline} pipeline, pid {pid}, log {log}", flush=True)

    def show_top(self, seconds: float | None) -> None:
        """`top` in the terminal, until the user has seen enough."""
        top = subprocess.Popen(self._top(), env=self.environment, preexec_fn=self._tied)  # noqa: PLW1509 - this process has one thread
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        try:
            while top.poll() is None and time.monotonic() < deadline:
                self._check_ranks()
                with suppress(subprocess.TimeoutExpired):
                    top.wait(_POLL_S)
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                top.wait(_TOP_END_S)  # the terminal sent it to top too
            raise
        finally:
            by_itself = top.poll() is not None
            _end([top], _TOP_END_S)
        if by_itself and top.returncode != 0:
            raise HpcsamplerError(f"top ended with exit code {top.returncode}")

    def print_frames(self, seconds: float) -> None:
        """A few frames of `top` as text, spread over the given time of training."""
        print("waiting for both ranks to train …", flush=True)
        self._wait(self._both_train, _START_S)
        for _ in range(FRAMES):
            deadline = time.monotonic() + seconds / FRAMES
            self._wait(lambda: time.monotonic() >= deadline, seconds + _START_S)  # noqa: B023 - called at once
            frame = subprocess.run(
                self._top("--once"), env=self.environment, check=False, stdout=subprocess.PIPE, text=True,
            )
            if frame.returncode != 0:
                raise HpcsamplerError(f"top --once ended with exit code {frame.returncode}")
            print(f"\n{frame.stdout.rstrip()}", flush=True)

    def end(self) -> None:
        """End the ranks and then their daemon, by pid."""
        _end(self.ranks, _END_S)
        # A rank that was just starting the daemon leaves one that is still coming up.
        if self.directory.spawn_lock.exists():
            _poll(lambda: launch.daemon_pid(self.directory) is not None, _DAEMON_START_S)
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = launch.daemon_pid(self.directory)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                _poll(lambda: launch.daemon_pid(self.directory) is None, _END_S)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for top; the ranks are ended by this process
                preexec_fn=self._tied,  # noqa: PLW1509 - this process has one thread
            )

    def _top(self, *flags: str) -> list[str]:
        return [sys.executable, "-m", "hpcsampler", "top", "--runtime-dir", str(self.directory.path), *flags]

    def _both_train(self) -> bool:
        """Whether both have steps in the window."""
        asked = subprocess.run(self._top("--json"), env=self.environment, check=False, capture_output=True, text=True)
        try:
            ranks = json.loads(asked.stdout)["ranks"] if asked.returncode == 0 else []
        except (ValueError, KeyError):
            return False
        # Without a count of steps there are some: its daemon was restarted since.
        steps = [rank.get("step", 1) for rank in ranks if rank["state"] == "training"]
        return len([count for count in steps if count > 0]) == len(PIPELINES)

    def _wait(self, until: Callable[[], bool], most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while not until():
            self._check_ranks()
            if time.monotonic() >= deadline:
                name = "rank0" if launch.daemon_pid(self.directory) is not None else "daemon"
                raise HpcsamplerError(f"nothing to see within {most_s:g} s: {self._last_words(name)}")
            time.sleep(_POLL_S)

    def _check_ranks(self) -> None:
        for rank, process in enumerate(self.ranks):
            if process.poll() is not None:
                raise HpcsamplerError(
                    f"rank {rank} ended early with exit code {process.returncode}: {self._last_words(f'rank{rank}')}",
                )

    def _last_words(self, name: str) -> str:
        try:
            lines = self.log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except OSError as error:
            return f"no {self.log(name)}: {error.strerror}"
        return "\n  ".join([f"the last lines of {self.log(name)}:", *lines])


def _poll(until: Callable[[], bool], most_s: float) -> None:
    deadline = time.monotonic() + most_s
    while not until() and time.monotonic() < deadline:
        time.sleep(_POLL_S / 4)


def _need_modules() -> None:
    for module, extra in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise HpcsamplerError(f"the demo needs {module}: pip install 'hpcsampler[{extra}]'")


def tied_to(parent: int) -> Callable[[], None]:
    """What a child of `parent` calls before it becomes another program, so that it ends when `parent` has gone.

    However `parent` goes: nothing else would tell its ranks of a SIGKILL.
    """
    import ctypes

    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec as little as can be is done

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
        if os.getppid() != parent:  # it went before the line above
            os._exit(1)

    return tie


def _end(processes: list[subprocess.Popen[bytes]], within_s: float) -> None:
    """SIGTERM, some time to end in good order, then SIGKILL."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + within_s
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
