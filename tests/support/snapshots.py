"""Snapshots as a daemon makes them, and a real publisher of them, for tests and pictures."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import zmq

from hpcsampler.protocol.snapshot import encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpcsampler.protocol.snapshot import Snapshot

GIB = 1 << 30


def rank(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A rank that waits for its input a good part of the time. A change to None takes the key away."""
    made: dict[str, Any] = {
        "rank_key": f"node01-{4700 + number}-1",
        "job": "resnet50",
        "rank": number,
        "local_rank": number,
        "world_size": 8,
        "pid": 4700 + number,
        "framework": "tensorflow 2.21.0",
        "program": "train.py",
        "state": "training",
        "step": 12_345 + number,
        "evaluation_steps": 200,
        "steps_per_s": 11.8 - 0.3 * number,
        "step_ms": {"p50": 82.1 + number, "p95": 110.0, "p99": 131.4},
        "phases": {
            "step": 0.512,
            "device": 0.06,
            "input": 0.371,
            "host": 0.034,
            "callback": 0.017,
            "gc": 0.006,
        },
        "totals_s": {
            "step": 740.2,
            "device": 81.0,
            "input": 402.5,
            "compile": 31.7,
            "startup": 12.4,
            "host": 44.1,
        },
        "goodput": 0.626,
        "open_phase": {"phase": "input", "since_s": 0.021},
        "top_cause": {"phase": "input", "detail": "ParallelMap decode", "share": 0.371},
        "age_s": 0.1,
        "coverage": 1.0,
        "events": 61_240,
        "dropped": 0,
        "overhead": 0.00021,
        "gpus": [],
        "notes": [],
        "cpu": {"percent": 387.0, "rss_bytes": 3 * GIB, "read_bytes_per_s": 48e6, "write_bytes_per_s": 0.0},
    }
    return _changed(made, changes)


def gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    """A GPU that one rank uses."""
    made: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index:08x}",
        "name": "NVIDIA H100 80GB HBM3",
        "ranks": [index],
        "rank_keys": [f"node01-{4700 + index}-1"],
        "utilization": 0.63,
        "memory_used_bytes": 61 * GIB + index * 37_000_000,
        "memory_total_bytes": 80 * GIB,
        "power_w": 412.6,
        "power_limit_w": 700.0,
        "temperature_c": 58 + index,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
    }
    return _changed(made, changes)


def snapshot(
    ranks: list[dict[str, Any]], gpus: list[dict[str, Any]] | None = None, **changes: Any
) -> Snapshot:
    """A snapshot of these ranks and GPUs on one node."""
    made: dict[str, Any] = {
        "schema": 1,
        "node": "node01",
        "time": "2026-03-14T15:09:26.535Z",
        "monotonic_ns": time.monotonic_ns(),
        "window_s": 10.0,
        "ranks": ranks,
        "gpus": gpus or [],
        "host": {
            "cpu_percent": 48.2,
            "cpu_count": 96,
            "memory_used_bytes": 212 * GIB,
            "memory_total_bytes": 1024 * GIB,
            "load_1m": 44.7,
        },
        "daemon": {
            "version": "0.1.0",
            "pid": 4600,
            "uptime_s": 1312.0,
            "cpu_percent": 0.4,
            "rss_bytes": 36 << 20,
            "rejected": {},
            "gpu_status": "ok",
        },
    }
    return _changed(made, changes)  # type: ignore[return-value] - tests make wrong ones too


def two_cpu_ranks() -> Snapshot:
    """Two ranks of one job without a GPU: one with a slow input pipeline, one that computes."""
    slow = rank(
        0,
        job="demo",
        world_size=2,
        program="demo.py",
        steps_per_s=7.9,
        step_ms={"p50": 121.0, "p95": 158.0, "p99": 171.3},
        phases={"input": 0.642, "step": 0.298, "callback": 0.021, "host": 0.031, "gc": 0.008},
        goodput=0.301,
        top_cause={"phase": "input", "detail": "ParallelMap decode", "share": 0.642},
        step=1422,
        totals_s={"startup": 4.1, "compile": 3.3, "input": 115.8, "step": 54.0, "callback": 3.6, "host": 5.9},
    )
    busy = rank(
        1,
        job="demo",
        world_size=2,
        program="demo.py",
        steps_per_s=23.4,
        step_ms={"p50": 41.8, "p95": 47.0, "p99": 52.6},
        phases={"step": 0.914, "input": 0.032, "callback": 0.024, "host": 0.03},
        goodput=0.868,
        step=4190,
        top_cause={"phase": "input", "detail": "Prefetch", "share": 0.032},
        open_phase={"phase": "step", "since_s": 0.01},
        totals_s={"startup": 4.0, "compile": 3.4, "input": 6.1, "step": 162.2, "callback": 4.4, "host": 6.6},
    )
    return snapshot(
        [slow, busy],
        host={
            "cpu_percent": 93.0,
            "cpu_count": 8,
            "memory_used_bytes": 9 * GIB,
            "memory_total_bytes": 32 * GIB,
            "load_1m": 7.2,
        },
        daemon={
            "version": "0.1.0",
            "cpu_percent": 0.4,
            "rss_bytes": 36 << 20,
            "rejected": {},
            "gpu_status": "no NVIDIA driver here",
        },
    )


def eight_gpus() -> Snapshot:
    """Eight GPUs, a rank on each, no two ranks in the same trouble."""
    uses = [{"gpus": [f"GPU-{index:08x}"]} for index in range(8)]
    ranks = [
        rank(0, **uses[0]),
        rank(
            1,
            phases={"step": 0.93, "device": 0.055, "host": 0.015},
            goodput=0.94,
            top_cause=None,
            steps_per_s=18.1,
            step_ms={"p50": 54.9, "p95": 57.0, "p99": 61.2},
            open_phase={"phase": "step", "since_s": 0.01},
            **uses[1],
        ),
        rank(
            2,
            phases={"step": 0.55, "collective": 0.4, "host": 0.05},
            goodput=0.71,
            **uses[2],
            top_cause={"phase": "collective", "detail": "all_reduce", "share": 0.4},
        ),
        rank(
            3,
            phases={"collective": 0.7, "step": 0.3},
            state="stalled",
            goodput=0.8,
            **uses[3],
            steps_per_s=0.4,
            open_phase={"phase": "collective", "since_s": 6.9},
            top_cause={"phase": "collective", "detail": "all_reduce", "share": 0.7},
        ),
        rank(
            4,
            phases={"startup": 0.2, "compile": 0.8},
            state="starting",
            step=0,
            steps_per_s=None,
            step_ms=None,
            goodput=0.0,
            top_cause={"phase": "compile", "detail": "train_step", "share": 0.8},
            open_phase={"phase": "compile", "since_s": 8.0},
            **uses[4],
        ),
        rank(
            5,
            phases={"evaluation": 0.88, "input": 0.12},
            state="evaluating",
            **uses[5],
            top_cause={"phase": "input", "detail": "validation set", "share": 0.12},
        ),
        rank(
            6,
            dropped=1204,
            coverage=0.831,
            notes=["functions traced before attach() hold no marks until retraced"],
            **uses[6],
        ),
        rank(
            7,
            state="killed",
            open_phase={"phase": "input", "since_s": 3.2},
            age_s=12.0,
            cpu=None,
            steps_per_s=None,
            **uses[7],
        ),
    ]
    loads = [0.41, 0.97, 0.88, 0.07, 0.0, 0.77, 0.52, None]
    gpus = [gpu(index, utilization=load) for index, load in enumerate(loads)]
    for key in ("memory_used_bytes", "power_w", "temperature_c", "sm_clock_mhz"):
        del gpus[7][key]
    gpus[7]["error"] = "GPU is lost"
    return snapshot(ranks, gpus)


def incidents(late: int, *, steady: bool) -> dict[str, Any]:
    """All that a rank may have a record of: `late` is the rank that the others wait for."""
    straggler = {"source": "collective", "network_share": 0.03, "cause": "input", "steady": steady}
    if steady:
        straggler |= {"score": 0.94, "wait_share": 0.01}
    else:
        straggler |= {"score": 0.02, "wait_share": 0.31, "blamed_on_rank": late}
    changed = "argument x: float32[32,8] → float32[17,8]"
    return {
        "straggler": straggler,
        "callbacks": [
            {"name": "SlowLogger.on_train_batch_end", "seconds": 1.2, "share": 0.12, "count": 300},
            {"name": "ModelCheckpoint.on_epoch_end", "seconds": 0.1, "share": 0.01, "count": 1},
            {"name": "History.on_epoch_end", "seconds": 0.001, "share": 0.0001, "count": 1},
        ],
        "traces": {
            "count": 14,
            "retraces": 3,
            "seconds": 8.1,
            "last": {"function": "train_step", "ordinal": 3, "seconds": 2.1, "changed": changed},
            "worst": [
                {"function": "train_step", "count": 2, "changed": changed},
                {"function": "augment", "count": 1, "changed": ""},
            ],
        },
        "checkpoints": {
            "count": 3,
            "seconds": 4.1,
            "bytes": 360 << 20,
            "restored": 1,
            "step_inflation": 0.12,
            "last": {
                "writer": "ModelCheckpoint",
                "path": "/scratch/run-7/epoch-3.keras",
                "format": "keras",
                "restored": False,
                "blocked_s": 1.3,
                "age_s": 1.3,
                "files": 1,
                "bytes": 120 << 20,
                "background": True,
                "background_s": 0.9,
                "apparent_bytes_per_s": 3e9,
                "durable_bytes_per_s": 96.8e6,
            },
        },
    }


def eventful() -> Snapshot:
    """Two ranks with records of all kinds, on a node whose CPU limit is hit."""
    shot = two_cpu_ranks()
    for at, one in enumerate(shot["ranks"]):
        one.update(incidents(0, steady=at == 0))  # type: ignore[typeddict-item]
        one["totals_s"] |= {"checkpoint": 4.2 + at, "collective": 9.0}
        one["cpu"]["run_delay"] = 0.4
    shot["ranks"][0]["pipeline"] = [
        {"stage": "TFRecord", "parallelism": 1.0, "autotuned": False, "buffered": 0, "bottleneck": False},
        {"stage": "ParallelMap", "name": "decode", "parallelism": 2.0, "autotuned": True, "buffered": 3,
         "bottleneck": True, "self_ms": 121.0, "ceiling_per_s": 8.2, "bytes_per_s": 1e6},
    ]  # fmt: skip
    shot["host"]["cgroup"] = {"throttled": 0.22, "throttled_s_per_s": 0.4}
    shot["host"]["psi"] = {"cpu": 0.64, "io": 0.002, "memory": 0.0}
    return shot


def many_ranks(count: int = 512) -> Snapshot:
    """A node with more ranks than any screen has lines."""
    return snapshot(
        [
            rank(at, world_size=count, phases={"step": 1 - at / count, "input": at / count or 1e-9})
            for at in range(count)
        ],
    )


HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "a\rb\nc\td\x00e\x9b31mf",
    "训练任务分布式数据并行图像分类",
    "🚀🔥👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301 a\u0323\u0302 \u202eright to left\u202c \u200bzero\u2060width",
    "x" * 5000,
    "",
)


def hostile() -> Snapshot:
    """Names that no terminal must get as they are."""
    ranks = [
        rank(
            at,
            job=name,
            program=name,
            framework=name,
            notes=[name],
            state="training",
            top_cause={"phase": "input", "detail": name, "share": 0.4},
            marks={name: {"count": 1, "last": 3}},
        )
        for at, name in enumerate(HOSTILE)
    ]
    gpus = [gpu(0, name=HOSTILE[0], error=HOSTILE[1])]
    daemon = {"version": HOSTILE[0], "gpu_status": HOSTILE[3], "rejected": {HOSTILE[1]: 3}}
    return snapshot(ranks, gpus, node=HOSTILE[0], time=HOSTILE[1], daemon=daemon)


def troubled() -> Snapshot:
    """All that a screen has to say in sentences."""
    shot = eight_gpus()
    shot["daemon"]["rejected"] = {"truncated": 12, "unknown schema": 2}
    shot["ranks"][1]["age_s"] = 5.4
    shot["ranks"][0]["paused"] = True
    return shot


def _changed(made: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**made, **changes}.items() if value is not None}


class Publisher:
    """Publishes snapshots at a real address, as the daemon does: in its time, and at once for a viewer that comes."""

    def __init__(self, directory: Path, make: Callable[[], Snapshot]) -> None:
        self._make = make
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.path = directory / "snapshots.sock"
        self.address = f"ipc://{self.path}"
        self._socket.bind(self.address)

    def publish(self) -> None:
        """Send one, made now."""
        shot = self._make()
        shot["monotonic_ns"] = time.monotonic_ns()
        self._socket.send(encode_snapshot(shot))

    def send(self, frame: bytes) -> None:
        """Send whatever."""
        self._socket.send(frame)

    def rest(self, seconds: float) -> None:
        """Wait, until a viewer comes at most."""
        if self._socket.poll(int(seconds * 1000)):
            self._socket.recv()

    def run(self, seconds: float, every: float = 0.1) -> None:
        """Publish for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.publish()
            time.sleep(every)

    def close(self) -> None:
        """Go, as a daemon that is killed."""
        self._socket.close()
        self._context.term()

    def __enter__(self) -> Publisher:  # noqa: PYI034 - Self is not in the oldest Python
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def moving(make: Callable[[], Snapshot]) -> Callable[[], Snapshot]:
    """Snapshots like those of `make`, but no two alike, as those of a real node are."""
    dice = random.Random(7)

    def made() -> Snapshot:
        shot = make()
        for one in shot["ranks"]:
            wobble = dice.uniform(0.8, 1.2)
            shares = {label: share * dice.uniform(0.7, 1.3) for label, share in one["phases"].items()}
            one["phases"] = {label: share / sum(shares.values()) for label, share in shares.items()}
            one["step"] += int(time.monotonic() * 10) % 10_000
            if "steps_per_s" in one:
                one["steps_per_s"] *= wobble
                one["step_ms"] = {key: value * wobble for key, value in one["step_ms"].items()}
            if "top_cause" in one:
                one["top_cause"]["share"] = one["phases"].get(one["top_cause"]["phase"], 0.1)
        for card in shot["gpus"]:
            if "utilization" in card:
                card["utilization"] = min(card["utilization"] * dice.uniform(0.8, 1.2), 1.0)
            if "power_w" in card:
                card["power_w"] *= dice.uniform(0.9, 1.1)
        return shot

    return made
