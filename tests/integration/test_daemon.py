"""A real daemon, real sockets, synthetic ranks: what a viewer sees."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import zmq

from hpcsampler.cli import build_parser
from hpcsampler.commands import daemon as daemon_command
from hpcsampler.launch import daemon_environment, daemon_pid
from hpcsampler.protocol.phases import Kind, Phase
from tests.support.daemons import DEADLINE_S, DaemonProcess, Viewer, find, until
from tests.support.ranks import Rank, event, steps

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["tests.support.daemon_fixtures"]
MS = 10**6


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpcsampler", "daemon", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )


def test_a_rank_is_shown_with_its_truth(daemon, viewer, join) -> None:
    rank = join(3, attach_ns=time.monotonic_ns())
    rank.names({}, {1: "TFRecord"})
    begin = rank.identity.attach_ns
    until(lambda: time.monotonic_ns() - begin > 1000 * MS, "a second has passed")
    rank.events(steps(begin, 10, input_ns=30 * MS, step_ns=70 * MS), watermark_ns=begin + 1000 * MS)
    snapshot = viewer.until(lambda s: (r := find(s, 3)) and r.get("step") == 10, "ten steps")
    shown = find(snapshot, 3)
    assert shown["phases"] == pytest.approx({"input": 0.3, "step": 0.7}, abs=0.01)
    assert (shown["events"], shown["dropped"], shown["coverage"]) == (40, 0, 1.0)
    assert (shown["top_cause"]["phase"], shown["top_cause"]["detail"]) == ("input", "TFRecord")
    assert (shown["pid"], shown["state"]) == (os.getpid(), "training")
    snapshot = viewer.until(
        lambda s: "cpu" in find(s, 3) and "cpu_percent" in s["host"], "CPU of rank and node",
    )
    assert find(snapshot, 3)["cpu"]["rss_bytes"] > 1_000_000
    assert snapshot["host"]["memory_total_bytes"] > 0
    assert snapshot["daemon"]["pid"] == daemon.process.pid
    assert 0 < snapshot["daemon"]["rss_bytes"] < 80 << 20
    assert snapshot["daemon"]["rejected"] == {}


def test_a_new_viewer_need_not_wait_for_the_next_beat(context, tmp_path_factory) -> None:
    daemon = DaemonProcess("--publish-ms", "10000")
    try:
        for _ in range(3):
            viewer = Viewer(context, daemon.directory.snapshots_address)
            assert viewer.next(3)["schema"] == 1
            viewer.close()
    finally:
        daemon.close()


def test_goodbye_is_exited_and_a_second_attach_is_back(viewer, join) -> None:
    rank = join(0)
    rank.bye()
    viewer.until(lambda s: (r := find(s, 0)) and r["state"] == "exited", "exited")
    rank.hello()
    viewer.until(lambda s: find(s, 0)["state"] == "starting", "back")


def test_a_program_that_execs_another_is_one_rank(viewer, daemon, tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import os, sys, time, hpcsampler
assert hpcsampler.attach(daemon="never", rank=5, strict=True)
with hpcsampler.step():
    time.sleep(0.5)
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
sys.stdin.read()
""")
    environment = {**os.environ, "HPCSAMPLER_RUNTIME_DIR": str(daemon.directory.path)}
    with subprocess.Popen([sys.executable, program], env=environment, stdin=subprocess.PIPE) as process:
        snapshot = viewer.until(
            lambda s: len(s["ranks"]) == 2 and s["ranks"][0]["state"] == "exited", "the first is gone",
        )
        assert snapshot["ranks"][1]["state"] not in {"exited", "killed"}
        assert process.stdin is not None
        process.stdin.close()


ATTACHES = """
import os, sys, time, hpcsampler
assert hpcsampler.attach(daemon="never", rank=5, strict=True)
with hpcsampler.step():
    time.sleep(0.2)
sys.stdin.readline()
os.execv("/bin/cat", ["cat"])
"""


def test_a_rank_whose_process_becomes_a_program_that_does_not_attach_has_exited(viewer, daemon) -> None:
    environment = {**os.environ, "HPCSAMPLER_RUNTIME_DIR": str(daemon.directory.path)}
    arguments = [sys.executable, "-c", ATTACHES]
    with subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        viewer.until(lambda s: (r := find(s, 5)) and r["state"] == "training" and "cpu" in r, "it trains")
        process.stdin.write(b"\n")
        process.stdin.flush()
        viewer.until(lambda s: find(s, 5)["state"] == "exited", "the rank has exited")
        assert process.poll() is None
        process.stdin.close()


def test_the_data_of_a_rank_that_is_stopped_grow_old_and_new_again(viewer, daemon) -> None:
    environment = {**os.environ, "HPCSAMPLER_RUNTIME_DIR": str(daemon.directory.path)}
    arguments = [sys.executable, "-c", ATTACHES]
    with subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE) as process:
        viewer.until(lambda s: (r := find(s, 5)) and r["state"] == "training" and "cpu" in r, "it trains")
        process.send_signal(signal.SIGSTOP)
        stopped = viewer.until(lambda s: find(s, 5)["age_s"] > 4, "old data")
        assert find(stopped, 5)["state"] == "training"  # as far as is known: what it was doing when it was heard
        process.send_signal(signal.SIGCONT)
        viewer.until(lambda s: find(s, 5)["age_s"] < 1.5, "new data")
        process.kill()


def test_the_framework_is_learned_from_a_later_hello(viewer, context, daemon, join) -> None:
    join(0, key="k", framework="")
    viewer.until(lambda s: find(s, 0), "here")
    join(0, key="k", framework="tensorflow 2.21.0")
    snapshot = viewer.until(lambda s: find(s, 0)["framework"], "framework")
    assert len(snapshot["ranks"]) == 1


def test_a_daemon_without_work_ends_and_one_with_a_rank_stays(context) -> None:
    daemon = DaemonProcess("--linger", "0.5")
    try:
        rank = Rank(context, daemon.events)
        rank.hello()
        viewer = Viewer(context, daemon.directory.snapshots_address)
        viewer.until(lambda s: find(s, 0) and s["daemon"]["uptime_s"] > 2, "a while with a rank and a viewer")
        viewer.close()
        began = time.monotonic()
        until(
            lambda: daemon.process.poll() is not None or time.monotonic() > began + 2, "a while with a rank",
        )
        assert daemon.process.poll() is None
        rank.bye()
        assert "no rank and no viewer for 0.5 s" in daemon.output()
        assert daemon.process.returncode == 0
        assert sorted(p.name for p in daemon.directory.path.iterdir()) == ["daemon.lock"]
        assert daemon.directory.daemon_lock.read_text() == ""
    finally:
        daemon.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly_and_a_hangup_does_not(number: signal.Signals) -> None:
    daemon = DaemonProcess()
    try:
        assert stat.S_IMODE((daemon.directory.path / "events.sock").stat().st_mode) & 0o077 == 0
        daemon.process.send_signal(signal.SIGHUP)
        daemon.process.send_signal(number)
        assert f"ends: {number.name}" in daemon.output()
        assert daemon.process.returncode == 0
        assert not list(daemon.directory.path.glob("*.sock"))
        assert daemon_pid(daemon.directory) is None
    finally:
        daemon.close()


def test_start_status_and_stop_by_hand(tmp_path: Path, context) -> None:
    where = {"HPCSAMPLER_RUNTIME_DIR": str(tmp_path / "r")}
    assert command("status", **where).returncode == 1
    started = command("start", **where)
    try:
        assert started.returncode == 0, started.stderr
        pid = int(started.stdout.split("(pid ")[1].split(")")[0])
        again = command("start", **where)
        assert f"already running (pid {pid})" in again.stdout
        status = command("status", **where)
        assert status.returncode == 0
        assert str(pid) in status.stdout
        assert "gpus:" in status.stdout
        foreground = command("run", **where)
        assert foreground.returncode == 1
        assert foreground.stderr == f"hpcsampler: already running (pid {pid})\n"
        unexpected = command("run", "--background", **where)
        assert (unexpected.returncode, unexpected.stderr.count("\n")) == (0, 1)
    finally:
        stopped = command("stop", **where)
    assert stopped.stdout == f"stopped (pid {pid})\n"
    assert command("status", **where).returncode == 1
    assert command("stop", **where).stdout == "not running\n"
    assert "SIGTERM" in (tmp_path / "r" / "daemon.log").read_text()


def test_status_and_stop_say_that_ranks_are_attached_who_will_start_it_again(daemon, viewer, join) -> None:
    where = {"HPCSAMPLER_RUNTIME_DIR": str(daemon.directory.path)}
    join(0, key="a")
    join(1, key="b").bye()
    viewer.until(lambda s: (r := find(s, 1)) and r["state"] == "exited" and find(s, 0)["age_s"] > 2.5, "one is silent")
    assert "ranks:     1 attached (1 silent), 1 ended\n" in command("status", **where).stdout
    first, second = command("stop", **where).stdout.splitlines()
    assert first == f"stopped (pid {daemon.process.pid})"
    assert second.startswith("1 rank is attached and, unless run with HPCSAMPLER_DAEMON=never, will start it again")


def test_a_daemon_of_another_version_is_said_to_be_one_and_can_be_stopped(
    daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    def foreign(_address: str) -> None:
        raise ValueError("not a snapshot of schema 1")

    monkeypatch.setattr(daemon_command, "_snapshot", foreign)
    parser = build_parser()
    for action in ("status", "stop"):
        arguments = parser.parse_args(["daemon", action, "--runtime-dir", str(daemon.directory.path)])
        assert daemon_command.run(arguments) == 0
    said = capsys.readouterr().out
    assert "speaks another version (not a snapshot of schema 1)" in said
    assert said.endswith(f"stopped (pid {daemon.process.pid})\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--linger", "long"), "--linger is 'long'"),
        (("run", "--publish-ms", "1"), "--publish-ms is '1'"),
        (("start", "--frobnicate"), "--frobnicate"),
        (("begin",), "invalid choice: 'begin'"),
        ((), "ACTION"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(arguments: tuple[str, ...], says: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_daemons_environment_is_not_the_ranks() -> None:
    kept = daemon_environment(
        {
            "HOME": "/home/u", "PYTHONPATH": "lib:/opt/x", "CUDA_VISIBLE_DEVICES": "3", "LD_PRELOAD": "x.so",
            "OMP_NUM_THREADS": "4", "TF_CONFIG": "{}", "HPCSAMPLER_RANK": "1", "HPCSAMPLER_GPU_MS": "500",
            "HPCSAMPLER_RUNTIME_DIR": "/elsewhere", "PYTHONSTARTUP": "x.py",
        },
        "/work",
    )
    assert kept == {
        "HOME": "/home/u", "PYTHONPATH": "/work/lib:/opt/x", "HPCSAMPLER_GPU_MS": "500",
        "PYTHONSAFEPATH": "1",
    }


def test_gpus_are_joined_with_the_ranks_on_them(context, simulated_nvml: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("63 250000 ok")
    daemon = DaemonProcess(
        "--gpu-ms", "50",
        LD_LIBRARY_PATH=str(simulated_nvml), SIMULATED_PIDS=str(os.getpid()), SIMULATED_STATE=str(state),
    )
    try:
        rank = Rank(context, daemon.events, 5)
        rank.hello()
        viewer = Viewer(context, daemon.directory.snapshots_address)
        snapshot = viewer.until(lambda s: s["gpus"] and s["gpus"][0]["ranks"], "GPU 0 has its rank")
        assert snapshot["gpus"][0] == {
            "index": 0, "uuid": "GPU-simulated-0", "name": "SIMULATED GPU 0", "ranks": [5],
            "rank_keys": [rank.identity.rank_key], "utilization": 0.63, "memory_used_bytes": 20 << 30,
            "memory_total_bytes": 80 << 30, "power_w": 250.0, "power_limit_w": 400.0, "sm_clock_mhz": 1410,
            "memory_clock_mhz": 1593,
        }
        assert find(snapshot, 5)["gpus"] == ["GPU-simulated-0"]
        assert snapshot["gpus"][1]["ranks"] == []
        assert snapshot["daemon"]["gpu_status"] == "ok"
        state.write_text("7 90000 ok")
        viewer.until(lambda s: s["gpus"][0].get("utilization") == 0.07, "new utilisation")
        state.write_text("7 90000 lost")
        snapshot = viewer.until(lambda s: s["gpus"][1].get("error"), "GPU 1 is lost")
        assert "lost" in snapshot["gpus"][1]["error"]
        assert "power_w" not in snapshot["gpus"][1]
        assert snapshot["gpus"][0]["power_w"] == 90.0
        rank.close()
    finally:
        daemon.close()


@pytest.mark.parametrize(
    ("environment", "status"),
    [
        ({}, "no NVIDIA driver"),
        ({"SIMULATED_NO_DRIVER": "1"}, "Driver Not Loaded"),
        ({"SIMULATED_GPUS": "0"}, "no GPU"),
    ],
)
def test_a_machine_without_gpus_is_normal(
    context, simulated_nvml: Path, environment: dict[str, str], status: str,
) -> None:
    path = str(simulated_nvml) if environment else ""
    environment = {**environment, "LD_LIBRARY_PATH": path}
    daemon = DaemonProcess(**environment)
    try:
        viewer = Viewer(context, daemon.directory.snapshots_address)
        snapshot = viewer.until(lambda s: status in s["daemon"]["gpu_status"], f"status says {status!r}")
        assert snapshot["gpus"] == []
    finally:
        daemon.close()


def test_nobody_who_listens_means_nobody_to_build_for(daemon, context, join) -> None:
    viewer = Viewer(context, daemon.directory.snapshots_address)
    viewer.next()
    viewer.close()
    rank = join(0)
    rank.events(event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN))
    late = Viewer(context, daemon.directory.snapshots_address)
    snapshot = late.until(lambda s: (r := find(s, 0)) and r["events"] == 1, "taken in all the same")
    assert snapshot["daemon"]["uptime_s"] > 0


def test_slow_viewers_hold_up_nobody(daemon, context, viewer, join) -> None:
    stuck = context.socket(zmq.SUB)
    stuck.set(zmq.RCVHWM, 1)
    stuck.set(zmq.SUBSCRIBE, b"")
    stuck.connect(daemon.directory.snapshots_address)
    rank = join(0)
    for _ in range(10):
        rank.events(event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN))
        seen = rank.recorded
        viewer.until(lambda s, seen=seen: (r := find(s, 0)) and r["events"] == seen, f"{seen} events")
    stuck.close()
