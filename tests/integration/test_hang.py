"""A rank that hangs is shown as stalled, with where; and what its threads are in can be asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.daemons import DaemonProcess, Viewer, find
from tests.support.environment import environment

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["tests.support.daemon_fixtures"]

RANK = """
import ctypes, sys, threading, time
import hpcsampler
assert hpcsampler.attach(job="test", rank=0, strict=True)
never = threading.Lock(); never.acquire()
def wait_for_ever(): never.acquire()
def in_c(): time.sleep(1000)
def in_c_with_the_gil(): ctypes.PyDLL(None).sleep(1000)
def evaluate():
    with hpcsampler.phase("simulate", productive=True): time.sleep(1000)
def load_for_ever(): time.sleep(1000)
threading.Thread(target=load_for_ever, name="loader", daemon=True).start()
hang = globals()[sys.argv[1]]
for i in range(300):
    with hpcsampler.step(): time.sleep(0.01)
print("hangs", flush=True)
hang()
"""


class Rank:
    def __init__(self, directory: Path, hang: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, hang], env=environment(directory), stdout=subprocess.PIPE, text=True,
        )

    def hangs(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "hangs\n"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def rank(daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[Rank]:
    made = Rank(daemon.directory.path, request.param)
    yield made
    made.close()


def ask(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpcsampler", "stacks", *arguments], env=environment(directory), capture_output=True,
        text=True, timeout=60, check=False,
    )


@pytest.mark.parametrize("rank", ["wait_for_ever", "in_c"], indirect=True)
def test_a_rank_that_hangs_is_stalled_and_says_where_each_thread_is(
    rank: Rank, daemon: DaemonProcess, viewer: Viewer, request: pytest.FixtureRequest,
) -> None:
    rank.hangs()
    since = time.monotonic()
    snapshot = viewer.until(lambda s: (find(s, 0) or {}).get("state") == "stalled", "it is stalled")
    assert time.monotonic() - since >= 4.5  # a hiccup is none
    found = find(snapshot, 0)
    assert found is not None
    assert found["open_phase"]["phase"] == "host"
    assert found["stalled_s"] >= 5
    assert found["step"] == 300
    done = ask(daemon.directory.path, "0")
    assert (done.returncode, done.stderr) == (0, "")
    main, loader = done.stdout.split("Thread loader")
    assert main.startswith("Thread MainThread")
    assert f"    {request.node.callspec.params['rank']} (<string>:" in main
    assert "load_for_ever (<string>:" in loader
    assert rank.process.poll() is None


@pytest.mark.parametrize("rank", ["in_c_with_the_gil"], indirect=True)
def test_a_rank_whose_interpreter_is_held_is_told_as_the_kernel_sees_it(
    rank: Rank, daemon: DaemonProcess, viewer: Viewer,
) -> None:
    rank.hangs()
    viewer.until(lambda s: (find(s, 0) or {}).get("state") == "stalled", "it is stalled")
    done = ask(daemon.directory.path, "0", "--job", "test")
    assert done.returncode == 0
    assert "It does not answer" in done.stdout
    assert f"    {rank.process.pid} python" in done.stdout
    assert rank.process.poll() is None


@pytest.mark.parametrize("rank", ["evaluate"], indirect=True)
def test_what_takes_its_time_is_no_stall(rank: Rank, daemon: DaemonProcess, viewer: Viewer) -> None:
    rank.hangs()
    end = time.monotonic() + 8
    while time.monotonic() < end:
        assert (find(viewer.next(), 0) or {"state": "training"})["state"] == "training"


@pytest.mark.parametrize("rank", ["wait_for_ever"], indirect=True)
def test_asking_for_what_is_not_there_says_what_is(rank: Rank, daemon: DaemonProcess, viewer: Viewer) -> None:
    rank.hangs()
    done = ask(daemon.directory.path, "7")
    assert done.returncode == 1
    assert done.stderr == "hpcsampler: no rank 7 runs on this node: there are 0\n"
    assert ask(daemon.directory.path, "-1").returncode == 2
    assert ask(daemon.directory.path, "first").returncode == 2


def test_asking_without_a_daemon_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    done = ask(tmp_path, "0")
    assert done.returncode == 1
    assert "no daemon runs in" in done.stderr
