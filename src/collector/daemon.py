"""The daemon: one loop that takes in what ranks send and publishes what came of it.

It does not wake for each message. It wakes when a snapshot is due, takes in all that has come, and publishes
once: eight ranks that send ten times a second would else wake it eighty times for five snapshots. Where so
much comes that the queues would run full until then, it wakes sooner.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import time
from contextlib import closing, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from hpcsampler import runtime
from hpcsampler._version import __version__
from hpcsampler.launch import LOG_BYTES
from hpcsampler.protocol.snapshot import encode_snapshot

from .attendance import Attendance
from .findings import find
from .gpu import GpuSampler
from .host import HostSampler
from .ingest import Ingest
from .inquiries import Inquiries
from .lockstep import Lockstep
from .process import ProcessFiles, usage
from .ranks import Ranks
from .singleton import AlreadyRunning, Singleton
from .snapshot import Moment, build
from .sockets import Sockets
from .starvation import NodePressure, RunDelay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from hpcsampler.protocol.snapshot import DaemonSnapshot, Finding, HostSnapshot, RankSnapshot
    from hpcsampler.runtime import RuntimeDirectory
    from hpcsampler.settings import Settings

    from .ranks import RankState

RECEIVE_S: Final = 0.05
"""Longest time spent on messages before it is looked whether a snapshot is due."""
FULL_QUEUE: Final = 0.25
"""A queue that was filled so far until it was looked at is looked at sooner the next time."""
SOONER_S: Final = 0.01
HOUSEKEEPING_S: Final = 1.0
FINDINGS_S: Final = 1.0
FIRST_CONTACT_S: Final = 10.0
"""However short it is to linger: the rank that starts a daemon must have the time to find it."""
LEAST_PUBLISH_S: Final = 0.02
"""Between two snapshots, however often viewers come."""


def log(text: str) -> None:
    """Write a line to stderr, the log of a daemon in the background."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with suppress(OSError):  # a full disk or a closed terminal: nothing depends on the log
        os.write(2, f"{now} hpcsampler daemon {os.getpid()}: {text}\n".encode())


def bound_log() -> None:
    """Let a log that is too long start anew. Only for a file of our own, opened to append."""
    with suppress(OSError):
        if os.fstat(2).st_size > LOG_BYTES:
            os.ftruncate(2, 0)


class Daemon:
    """Owns all state. Runs in one thread; only the GPUs have one of their own."""

    def __init__(
        self,
        lock: Singleton,
        sockets: Sockets,
        settings: Settings,
        *,
        linger_s: float | None,
        background: bool,
    ) -> None:
        self._lock = lock
        self._sockets = sockets
        self._publish_s = settings.publish_ms / 1000
        self._linger_s = linger_s
        self._background = background
        self._ranks = Ranks()
        self._inquiries = Inquiries(sockets)
        self._ingest = Ingest(self._ranks, time.monotonic_ns(), self._inquiries.told)
        self._attendance = Attendance()
        self._lockstep = Lockstep()
        self._run_delay = RunDelay()
        self._pressure = NodePressure()
        self._gpus = GpuSampler(settings.gpu_ms / 1000)
        self._host = HostSampler()
        self._host_now: HostSnapshot = {}
        self._mtbf_s = settings.mtbf_h * 3600
        self._findings: list[Finding] = []
        self._findings_due = 0.0
        self._node = socket.gethostname()
        self._began = time.monotonic()
        self._files = ProcessFiles(os.getpid())
        self._own = self._files.read(time.monotonic_ns())
        self._daemon_now: DaemonSnapshot = {"version": __version__, "pid": os.getpid()}
        self._deserted_since = self._began + FIRST_CONTACT_S
        self._published = 0.0
        self._why_stop = ""

    def stop(self, why: str) -> None:
        """End the loop, soon. Safe from a signal handler."""
        self._why_stop = why

    def run(self) -> None:
        """Take in and publish until stopped."""
        self._gpus.start()
        publish_at = housekeeping_at = wake_at = time.monotonic()
        while not self._why_stop:
            if self._sockets.wait(wake_at - time.monotonic()):
                publish_at = min(publish_at, self._published + LEAST_PUBLISH_S)
            fullness = self._sockets.receive(self._take, RECEIVE_S)
            now = time.monotonic()
            if now >= housekeeping_at:
                housekeeping_at = now + HOUSEKEEPING_S
                self._housekeep(now)
            if now >= publish_at:
                # On a fixed beat, unless it was missed by a whole one.
                publish_at = max(publish_at + self._publish_s, now)
                self._publish(now)
                self._inquiries.look(list(self._ranks), time.monotonic_ns())
            wake_at = publish_at
            if fullness is None:
                wake_at = now
            elif fullness > FULL_QUEUE:
                wake_at = min(publish_at, now + SOONER_S)
        log(f"ends: {self._why_stop}")

    def close(self) -> None:
        """Let go of everything but the lock and the sockets."""
        self._gpus.stop()
        self._attendance.close()
        self._run_delay.close()
        self._pressure.close()
        self._host.close()
        self._files.close()

    def _take(self, frames: list[bytes]) -> None:
        now_ns = time.monotonic_ns()
        arrived = self._ingest.take(frames, now_ns)
        if arrived is not None:
            self._attendance.arrived(arrived, now_ns)
            self._attendance.replaced(arrived, self._ranks)
            log(f"{_called(arrived)} is here")

    def _publish(self, now: float) -> None:
        now_ns = time.monotonic_ns()
        for state in self._attendance.look(self._ranks, now_ns):
            log(f"{_called(state)} {'has exited' if state.ending == 'exited' else 'was killed'}")
        if not self._sockets.has_viewers:
            return
        self._published = now
        gpus = self._gpus.state()
        daemon = self._daemon_now.copy()
        daemon["uptime_s"] = now - self._began
        daemon["rejected"] = dict(self._ingest.rejected)
        daemon["gpu_status"] = gpus.status
        moment = Moment(self._node, now_ns, time.time())
        snapshot = build(moment, list(self._ranks), gpus.gpus, self._host_now, daemon, self._judge)
        self._sockets.publish(encode_snapshot(snapshot))

    def _judge(self, ranks: Sequence[RankSnapshot], host: HostSnapshot) -> list[Finding]:
        """Find anew once a second: a person reads them, and numbers of a window of ten do not change faster."""
        now = time.monotonic()
        if now >= self._findings_due:
            self._findings_due = now + FINDINGS_S
            self._findings = find(ranks, host, self._mtbf_s)
        return self._findings

    def _housekeep(self, now: float) -> None:
        now_ns = time.monotonic_ns()
        if not self._lock.holds_directory():
            self.stop("its runtime directory was removed")
            return
        if self._background:
            bound_log()
        self._ingest.expire(now_ns)
        for state in self._ranks.expire(now_ns):
            self._attendance.forget(state)
        living = self._ranks.living()
        self._attendance.measure(living, now_ns)
        for state in living:
            state.checkpoint()
        self._lockstep.look(living, now_ns)
        self._run_delay.look(living, now_ns)
        self._host_now = {**self._host.read(), **self._pressure.read(now_ns)}
        own = self._files.read(now_ns)
        if own is not None and self._own is not None and own.at_ns > self._own.at_ns:
            cpu = usage(self._own, own)
            self._daemon_now["cpu_percent"] = cpu["percent"]
            self._daemon_now["rss_bytes"] = cpu["rss_bytes"]
        self._own = own
        if living or self._sockets.has_viewers:
            self._deserted_since = now
        elif self._linger_s is not None and now - self._deserted_since >= self._linger_s:
            self.stop(f"no rank and no viewer for {self._linger_s:g} s")


def run_daemon(
    directory: RuntimeDirectory, settings: Settings, *, linger_s: float | None, background: bool,
) -> int:
    """Be the daemon of this directory until told to end; returns the exit code.

    linger_s: end once the last rank and the last viewer have been gone for so many seconds; None: stay.
    background: someone else started this, so a daemon that is there already is no error.
    Raises `AlreadyRunning`, and `RuntimeDirectoryError` where the directory can't be used.
    """
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    runtime.prepare(directory)
    _allow_descriptors()
    try:
        lock = Singleton(directory)
    except AlreadyRunning as error:
        if not background:
            raise
        log(str(error))
        return 0
    with closing(lock):
        lock.clear_sockets()
        with Sockets(directory) as sockets, closing(
            Daemon(lock, sockets, settings, linger_s=linger_s, background=background),
        ) as daemon:

            def end(number: int, _frame: FrameType | None) -> None:
                daemon.stop(signal.Signals(number).name)

            signal.signal(signal.SIGTERM, end)
            signal.signal(signal.SIGINT, end)
            lock.announce()
            log(f"version {__version__}, Python {sys.version.split()[0]}, in {directory.path}")
            gc.freeze()  # what was imported stays: no need to look through it again and again
            daemon.run()
    return 0


def _called(state: RankState) -> str:
    hello = state.hello
    name = f"rank {hello.rank} of {hello.job!r}" if hello.rank >= 0 else f"a rank of {hello.job!r}"
    return f"{name} (pid {hello.pid})"


def _allow_descriptors() -> None:
    # A rank needs four: its connection, its process, and two files of /proc.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
