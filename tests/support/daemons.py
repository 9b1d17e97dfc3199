"""A real daemon in a process of its own, in a directory of its own, and a viewer that reads its snapshots."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from hpcsampler.launch import daemon_pid
from hpcsampler.protocol.snapshot import TOPIC, decode_snapshot
from hpcsampler.runtime import RuntimeDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcsampler.protocol.snapshot import RankSnapshot, Snapshot

DEADLINE_S = 20.0


def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE_S) -> None:
    """Wait until something holds; fail with `what` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


class DaemonProcess:
    """Starts at once; `directory` is short, as a socket's path must be."""

    def __init__(self, *arguments: str, directory: Path | None = None, **environment: str) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="hps-"))
        self.directory = RuntimeDirectory(directory or self._own / "run")
        self._arguments = arguments
        self._environment = environment
        self.process = self.spawn()
        self.wait_ready()

    @property
    def events(self) -> str:
        return self.directory.events_address

    def spawn(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "hpcsampler", "daemon", "run",
                "--runtime-dir", str(self.directory.path), *self._arguments,
            ],
            env={**os.environ, "HPCSAMPLER_CONFIG": "", **self._environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        return self.process

    def wait_ready(self) -> None:
        until(
            lambda: daemon_pid(self.directory) == self.process.pid or self.process.poll() is not None,
            "the daemon takes connections",
        )
        assert self.process.poll() is None, self.output()

    def kill(self) -> None:
        """As the OOM killer does."""
        self.process.kill()
        self.output()

    def output(self) -> str:
        """What it said; waits for its end."""
        text, _ = self.process.communicate(timeout=DEADLINE_S)
        return text or ""

    def close(self) -> str:
        text = ""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            text = self.output()
        shutil.rmtree(self._own, ignore_errors=True)
        return text


class Viewer:
    """Reads snapshots as `hpcsampler top` does."""

    def __init__(self, context: zmq.Context, address: str) -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.RECONNECT_IVL, 20)
        self._socket.set(zmq.SUBSCRIBE, TOPIC)
        self._socket.connect(address)

    def next(self, seconds: float = DEADLINE_S) -> Snapshot:
        assert self._socket.poll(int(seconds * 1000)), "no snapshot"
        return decode_snapshot(self._socket.recv())

    def until(
        self, condition: Callable[[Snapshot], object], what: str, seconds: float = DEADLINE_S,
        each: Callable[[], object] = lambda: None,
    ) -> Snapshot:
        """Read on until a snapshot meets the condition, and return it. `each` is done once per snapshot."""
        deadline = time.monotonic() + seconds
        while True:
            snapshot = self.next()
            if condition(snapshot):
                return snapshot
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; last: {snapshot}"
            each()

    def close(self) -> None:
        self._socket.close()


def find(snapshot: Snapshot, rank: int) -> RankSnapshot | None:
    """The rank of that number, if it is there."""
    return next((r for r in snapshot["ranks"] if r.get("rank") == rank), None)
