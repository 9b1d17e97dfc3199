"""From `attach()` to what `top --json` prints, through a daemon that the ranks start themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcsampler.launch import daemon_pid
from hpcsampler.runtime import RuntimeDirectory
from tests.support.environment import environment

TRAIN = """
import sys, time
import hpcsampler
assert hpcsampler.attach(job="test", strict=True)
print("attached", flush=True)
while True:
    with hpcsampler.phase("load"): time.sleep(0.008)
    with hpcsampler.step(): time.sleep(0.012)
"""


class Node:
    """A runtime directory with the ranks of a test, and the daemon that they start."""

    def __init__(self, path: Path) -> None:
        self.directory = RuntimeDirectory(path)
        self.ranks: list[subprocess.Popen[str]] = []

    def start(self, program: str = TRAIN, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(self.directory.path, HPCSAMPLER_LINGER_S="2", **more),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.ranks.append(process)
        return process

    def snapshot(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "hpcsampler", "top", "--json"], env=environment(self.directory.path),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"ranks": []}
        return found

    def until(self, condition: Callable[[dict[str, Any]], bool], what: str, seconds: float = 20) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            found = self.snapshot()
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; last: {found}"

    def close(self) -> None:
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
            process.communicate()
        deadline = time.monotonic() + 20
        while daemon_pid(self.directory) is not None:
            assert time.monotonic() < deadline, "the daemon stays without ranks"
            time.sleep(0.05)


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="hps-") as name:
        made = Node(Path(name))
        yield made
        made.close()


def shown(found: dict[str, Any], state: str, count: int = 1) -> bool:
    return sum(rank["state"] == state for rank in found["ranks"]) == count


def test_a_training_is_shown_with_what_it_waits_for(node: Node) -> None:
    rank = node.start()
    found = node.until(lambda s: shown(s, "training") and s["ranks"][0]["step"] > 100, "it trains")["ranks"][0]
    assert (found["job"], found["rank"], found["world_size"], found["pid"]) == ("test", 0, 1, rank.pid)
    assert sum(found["phases"].values()) == pytest.approx(1, abs=0.001)
    steady = 1 - found["phases"].get("startup", 0)
    assert found["phases"]["user"] / steady == pytest.approx(0.4, abs=0.05)
    assert found["top_cause"]["detail"] == "load"
    assert found["dropped"] == 0
    assert found["overhead"] < 0.05


def test_eight_ranks_at_once_start_one_daemon(node: Node) -> None:
    for number in range(8):
        node.start(HPCSAMPLER_RANK=str(number), HPCSAMPLER_WORLD_SIZE="8")
    found = node.until(lambda s: shown(s, "training", 8), "all eight are there", 60)
    assert sorted(rank["rank"] for rank in found["ranks"]) == list(range(8))
    arguments = str(node.directory.path).encode()
    daemons = [
        entry for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _command_line(entry).count(b"daemon") and arguments in _command_line(entry)
    ]
    assert [int(entry.name) for entry in daemons] == [daemon_pid(node.directory)]


def test_a_daemon_that_is_killed_is_back_within_ten_seconds_and_the_training_unharmed(node: Node) -> None:
    rank = node.start()
    before = node.until(lambda s: shown(s, "training") and s["ranks"][0]["step"] > 100, "it trains")["ranks"][0]
    first = daemon_pid(node.directory)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    after = node.until(
        lambda s: shown(s, "training") and s["ranks"][0]["rank_key"] == before["rank_key"], "the same rank is back", 10,
    )["ranks"][0]
    assert time.monotonic() - killed < 10
    assert daemon_pid(node.directory) not in {first, None}
    # What the first daemon had is no loss; how many steps there were in all, the second one can't know.
    assert after["earlier"] > 400
    assert after["dropped"] < 100  # at most the one batch that was being sent
    assert "step" not in after
    assert after["known_since_s"] < time.monotonic() - killed + 1
    assert rank.poll() is None


def test_a_rank_that_is_killed_is_shown_with_the_phase_it_was_in(node: Node) -> None:
    rank = node.start()
    node.until(lambda s: shown(s, "training"), "it trains")
    rank.kill()
    found = node.until(lambda s: shown(s, "killed"), "it is shown as killed", 5)["ranks"][0]
    assert found["open_phase"]["phase"] in {"user", "step", "host"}


def test_a_rank_that_ends_in_good_order_is_shown_as_exited_and_the_daemon_leaves(node: Node) -> None:
    node.start(TRAIN.replace("while True:", "for _ in range(100):"))
    found = node.until(lambda s: shown(s, "exited"), "it has exited")["ranks"][0]
    assert found["step"] == 100


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
