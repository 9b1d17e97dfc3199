"""What the daemon and the screen cost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import zmq
from tests.support import ranks as synthetic
from tests.support import snapshots
from tests.support.daemons import DaemonProcess, Viewer

from .table import Row

RANKS, STEPS_PER_S, FLUSH_S = 8, 100, 0.1


def cpu_s(pid: int) -> float:
    """CPU time of a process, in seconds: user and system, all threads, from the scheduler's own account."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mib(pid: int) -> float:
    """Resident memory in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def simulated_nvml(folder: Path) -> Path:
    """Build the scripted NVML of the tests."""
    source = Path(__file__).parent.parent / "tests" / "nvml" / "nvml.c"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", folder / "libnvidia-ml.so.1", source], check=True,
    )
    return folder


def daemon_at_work(seconds: float = 25.0) -> list[Row]:
    """8 ranks of 100 steps/s, 8 SIMULATED GPUs at 10 Hz, one viewer: CPU, memory, latency."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = DaemonProcess(
            LD_LIBRARY_PATH=str(simulated_nvml(Path(folder))), SIMULATED_GPUS="8", HPCSAMPLER_GPU_MS="100",
        )
        try:
            context = zmq.Context()
            viewer = Viewer(context, daemon.directory.snapshots_address)
            latencies: list[float] = []
            stop = threading.Event()
            ranks = [synthetic.Rank(context, daemon.events, number) for number in range(RANKS)]
            for rank in ranks:
                rank.hello()
            load = _Load(ranks)
            watcher = threading.Thread(target=_watch, args=(viewer, load, latencies, stop))
            watcher.start()
            load.send(5.0)
            latencies.clear()
            before, begin = cpu_s(daemon.process.pid), time.perf_counter()
            load.send(seconds)
            share = (cpu_s(daemon.process.pid) - before) / (time.perf_counter() - begin)
            rss = rss_mib(daemon.process.pid)
            stop.set()
            watcher.join()
            synthetic.close_all(ranks)
            context.destroy(linger=0)
        finally:
            daemon.close()
    p50, p99 = np.percentile(latencies, (50, 99)) * 1e3
    setting = f"{RANKS} ranks × {STEPS_PER_S} steps/s (4 events each), 8 SIMULATED GPUs at 10 Hz, one viewer"
    return [
        Row("daemon, CPU", f"{share:.2%} of a core", setting, "≤ 1 %", share <= 0.01, {"share": share}),
        Row("daemon, memory", f"{rss:.0f} MiB", setting, "≤ 80 MiB", rss <= 80, {"mib": rss}),
        Row("event → snapshot at the viewer", f"p50 {p50:.0f} ms, p99 {p99:.0f} ms", f"{len(latencies)} steps",
            "p99 ≤ 300 ms", p99 <= 300, {"p50_ms": p50, "p99_ms": p99}),
    ]


def daemon_at_its_limit(seconds: float = 8.0) -> list[Row]:
    """Events as fast as one daemon takes them."""
    daemon = DaemonProcess()
    try:
        context = zmq.Context()
        rank = synthetic.Rank(context, daemon.events)
        rank.hello()
        time.sleep(0.5)
        pid = daemon.process.pid
        folded = 0
        memory = []
        before, begin = cpu_s(pid), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            # 100 steps of 0.2 ms, 400 events, at times that go on: nothing is cheaper here than it is in earnest.
            now = time.monotonic_ns()
            try:
                rank.events(synthetic.steps(now - 20_000_000, 100, input_ns=50_000, step_ns=150_000))
            except zmq.Again:
                time.sleep(0.001)
                continue
            folded = rank.recorded
            if folded % 40_000 == 0:
                memory.append(rss_mib(pid))
        folded = rank.recorded  # what could not be sent counts as recorded, and shows as dropped
        used = cpu_s(pid) - before
        viewer = Viewer(context, daemon.directory.snapshots_address)
        deadline = time.monotonic() + 20
        seen = 0
        while seen < folded and time.monotonic() < deadline:
            shot = viewer.next()
            seen = sum(one["events"] + one["dropped"] for one in shot["ranks"])
        used = max(used, cpu_s(pid) - before)
        rank.close()
        context.destroy(linger=0)
    finally:
        daemon.close()
    rate = folded / used
    growth = statistics.mean(memory[-3:]) - statistics.mean(memory[len(memory) // 2 :][:3])
    return [
        Row("daemon at the limit", f"{rate / 1e6:.1f} M events per second of CPU",
            f"batches of 400 events, {seen} of {folded} accounted for", "≥ 1 M/s", rate >= 1e6 and seen == folded,
            {"events_per_cpu_s": rate}),
        Row("daemon at the limit, memory over the second half", f"{growth:+.1f} MiB", "the same run", "flat",
            abs(growth) < 4, {"mib": growth}),
    ]


def screen(seconds: float = 20.0) -> list[Row]:
    """`top` at 2 Hz with 8 SIMULATED GPUs, in a tmux of its own."""
    with tempfile.TemporaryDirectory(prefix="hps-") as name:
        directory = Path(name)
        firsts = []
        with snapshots.Publisher(directory, snapshots.moving(snapshots.eight_gpus)) as publisher:
            stop = threading.Event()
            feeder = threading.Thread(target=_publish, args=(publisher, stop))
            feeder.start()
            try:
                for turn in range(5):
                    first_s, share, rss = _one_screen(directory, seconds if turn == 4 else 0.0)
                    firsts.append(first_s)
            finally:
                stop.set()
                feeder.join()
    first = statistics.median(firsts)
    return [
        Row("`top`, CPU", f"{share:.1%} of a core", "8 SIMULATED GPUs, 2 Hz, 120×30", "≤ 2 %", share <= 0.02,
            {"share": share}),
        Row("`top`, first frame", f"{first * 1e3:.0f} ms", "from the start of the process, median of 5", "≤ 500 ms",
            first <= 0.5, {"ms": first * 1e3}),
        Row("`top`, memory", f"{rss:.0f} MiB", "the same", "", None, {"mib": rss}),
    ]


def _one_screen(directory: Path, seconds: float) -> tuple[float, float, float]:
    """(seconds to the first frame, share of a core, MiB)."""
    # A server of its own each time: the last one may still be on its way out.
    tmux = ["tmux", "-L", f"hpcsampler-bench-{os.getpid()}-{time.monotonic_ns()}"]

    def ask(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

    ask("new-session", "-d", "-x", "120", "-y", "30", "cat")  # a server that is there already
    try:
        begin = time.perf_counter()
        command = f"exec {sys.executable} -m hpcsampler top --interval 0.5 --runtime-dir {directory}"
        pid = int(ask("new-window", "-P", "-F", "#{pane_pid}", command))
        while "steps/s" not in ask("capture-pane", "-p"):
            time.sleep(0.005)
        first = time.perf_counter() - begin
        if not seconds:
            return first, 0.0, 0.0
        time.sleep(3)
        before, begin = cpu_s(pid), time.perf_counter()
        time.sleep(seconds)
        return first, (cpu_s(pid) - before) / (time.perf_counter() - begin), rss_mib(pid)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL)


def _publish(publisher: snapshots.Publisher, stop: threading.Event) -> None:
    while not stop.is_set():
        publisher.publish()
        publisher.rest(0.2)


class _Load:
    """Ranks that send as ranks do: every 100 ms, what happened since, each at a moment of its own."""

    def __init__(self, ranks: list[synthetic.Rank]) -> None:
        self._ranks = ranks
        self._turn = 0
        self._begin = time.monotonic_ns()
        self._last = [self._begin] * len(ranks)
        self.ends: list[int] = []
        """When each step of rank 0 ended."""

    def send(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic_ns() + int(seconds * 1e9)
        period_ns, flush_ns = 10**9 // STEPS_PER_S, int(FLUSH_S * 1e9)
        while (now := time.monotonic_ns()) < end:
            self._turn += 1
            due = self._begin + self._turn * flush_ns // len(self._ranks)
            time.sleep(max(0, (due - now) / 1e9))
            now = time.monotonic_ns()
            number = self._turn % len(self._ranks)
            start = self._last[number]
            count = (now - start) // period_ns
            self._last[number] += count * period_ns
            if number == 0:
                self.ends.extend(start + period_ns * (i + 1) for i in range(count))
            self._ranks[number].events(
                synthetic.steps(start, count, input_ns=period_ns // 5, step_ns=period_ns * 4 // 5), watermark_ns=now,
            )


def _watch(viewer: Viewer, load: _Load, latencies: list[float], stop: threading.Event) -> None:
    """How long after its end each step of rank 0 is in a snapshot."""
    seen = 0
    while not stop.is_set():
        shot = viewer.next()
        now = time.monotonic_ns()
        step = next((one.get("step", 0) for one in shot["ranks"] if one.get("rank") == 0), 0)
        latencies.extend((now - end) / 1e9 for end in load.ends[seen:step])
        seen = max(seen, step)
