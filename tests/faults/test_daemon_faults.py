"""What goes wrong around a daemon takes nothing else with it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgpack
import pytest
import zmq

from hpcsampler.collector.singleton import Singleton
from hpcsampler.launch import daemon_pid
from hpcsampler.protocol.messages import MAX_MESSAGE_BYTES, Events, encode
from hpcsampler.protocol.phases import Kind, Phase
from hpcsampler.runtime import RuntimeDirectory
from tests.support.daemons import DEADLINE_S, DaemonProcess, Viewer, find, until
from tests.support.ranks import Rank, event, steps

pytest_plugins = ["tests.support.daemon_fixtures"]
MS = 10**6
NOBODY = 65534

ENSURE = """
import sys
from pathlib import Path
from hpcsampler.launch import ensure_daemon
from hpcsampler.runtime import RuntimeDirectory
print("ready", flush=True)
input()
print(ensure_daemon(RuntimeDirectory(Path(sys.argv[1])), linger_s=60, wait_s=15))
"""
RANK = """
import sys, time, zmq
from tests.support.ranks import Rank, event
rank = Rank(zmq.Context(), sys.argv[1], 4)
rank.hello()
rank.events(event(time.monotonic_ns(), 5, 1))
print("sent", flush=True)
input()
"""


def run_daemon(directory: Path, **options) -> subprocess.CompletedProcess[str]:
    """A daemon that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "hpcsampler", "daemon", "run", "--runtime-dir", str(directory)],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options,
    )


def daemons_of(directory: Path) -> list[int]:
    """Processes that were started to be the daemon of a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"run" in words and str(directory).encode() in words:
                found.append(int(process.name))
    return found


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user gets to read."""
    assert done.returncode == 1, done
    assert done.stderr.startswith("hpcsampler: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_killed_daemon_comes_back_and_the_rank_with_all_events_accounted_for(daemon, viewer, context) -> None:
    rank = Rank(context, daemon.events, 2)
    rank.hello()

    def send() -> None:
        now = time.monotonic_ns()
        # Its queue may be full while there is no daemon: those events are lost, and must be counted somewhere.
        with contextlib.suppress(zmq.Again):
            rank.events(steps(now - 2 * MS, 1, input_ns=MS, step_ns=MS), watermark_ns=now)

    viewer.until(lambda s: (r := find(s, 2)) and r["events"] >= 8, "the rank is shown", each=send)
    daemon.kill()
    for _ in range(50):
        send()
    assert (daemon.directory.path / "events.sock").exists()
    daemon.spawn()
    daemon.wait_ready()

    def send_all() -> None:
        rank.hello()
        send()

    snapshot = viewer.until(
        lambda s: s["daemon"].get("pid") == daemon.process.pid and (r := find(s, 2)) and r["events"] > 0,
        "the rank shows again", 10, each=send_all,
    )
    rank.events(steps(time.monotonic_ns(), 1, input_ns=MS, step_ns=MS), lose=True)
    lost = 4
    send()
    sent = rank.recorded
    snapshot = viewer.until(
        lambda s: (r := find(s, 2))["events"] + r["earlier"] + r["dropped"] >= sent, "all that was sent has come",
    )
    shown = find(snapshot, 2)
    assert shown["events"] + shown["earlier"] + shown["dropped"] == sent
    assert shown["earlier"] >= 8
    assert shown["dropped"] == lost
    assert shown["state"] == "training"
    assert "step" not in shown
    assert shown["known_since_s"] > 0


def test_a_killed_rank_is_shown_as_killed_with_its_phase(daemon, viewer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RANK, daemon.events], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout.readline() == b"sent\n"
        in_it = time.monotonic()
        viewer.until(lambda s: (r := find(s, 4)) and r.get("open_phase"), "in its collective")
        until(lambda: time.monotonic() - in_it > 0.5, "a while in it")
        began = time.monotonic()
        process.kill()
        snapshot = viewer.until(lambda s: find(s, 4)["state"] == "killed", "killed")
        assert time.monotonic() - began < 2
        opened = find(snapshot, 4)["open_phase"]
        assert opened["phase"] == "collective"
        assert opened["since_s"] > began - in_it
    finally:
        process.kill()
        process.communicate()


def test_eight_at_once_start_one_daemon(tmp_path: Path) -> None:
    directory = RuntimeDirectory(tmp_path / "r")
    callers = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(directory.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(8)
    ]
    pid = None
    try:
        assert [caller.stdout.readline() for caller in callers] == ["ready\n"] * 8
        for caller in callers:
            caller.stdin.write("\n")
            caller.stdin.flush()
        answers = [caller.communicate(timeout=60)[0] for caller in callers]
        pid = daemon_pid(directory)
        assert answers == ["True\n"] * 8
        assert pid is not None
        # One that came second would still be there, trying to get the lock.
        assert daemons_of(directory.path) == [pid]
        assert directory.log.read_text().count("version") == 1
    finally:
        for caller in callers:
            caller.kill()
            caller.communicate()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            until(lambda: daemon_pid(directory) is None, "the daemon ends")


def test_bad_messages_are_counted_and_shown_and_harm_no_rank(daemon, viewer, context, join) -> None:
    good = join(1)
    bad = Rank(context, daemon.events, 9)
    bad.send_raw(b"\xc1\xc1")
    bad.send_raw(encode(Events("r", 0, 0, 0, 0, 0, b"x" * 24))[:-3])
    bad.send_raw(b"\0" * (MAX_MESSAGE_BYTES + 1))
    bad.send_raw(msgpack.packb([9, "hello", "r", 0, {}]))
    bad.send_raw(msgpack.packb([1, "shell", "r", 0, "rm"]))
    bad.send_raw(msgpack.packb([1, "hello", "r", 0, {"pid": "one"}]))
    bad.send_raw(b"two", b"frames")
    good.events(event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN))
    expected = {"garbage": 2, "oversized": 1, "schema": 1, "type": 1, "field": 1, "frames": 1}
    snapshot = viewer.until(
        lambda s: s["daemon"]["rejected"] == expected and find(s, 1)["events"] == 1, "all are counted",
    )
    assert [r["rank"] for r in snapshot["ranks"]] == [1]


def test_a_far_too_long_message_costs_only_its_sender_the_connection(daemon, viewer, context, join) -> None:
    good = join(1)
    bad = Rank(context, daemon.events, 9)
    bad.send_raw(b"\0" * (3 * MAX_MESSAGE_BYTES))
    bad.send_raw(b"\xc1")
    good.events(event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN))
    viewer.until(lambda s: (r := find(s, 1)) and r["events"] == 1, "the good rank goes on")
    # It reconnects by itself, and is heard again.
    viewer.until(
        lambda s: s["daemon"]["rejected"].get("garbage"), "the bad one is heard again",
        each=lambda: bad.send_raw(b"\xc1"),
    )


def test_a_flood_starves_neither_the_others_nor_the_viewers(daemon, viewer, context, join) -> None:
    quiet = join(1)
    stop = threading.Event()
    flooding = Rank(context, daemon.events, 9)
    flooding.hello()
    block = event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN) * 2000

    def flood() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            try:
                flooding.send_raw(b"\xc1" if number % 2 else b"")
                flooding.events(block)
            except zmq.Again:
                pass

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        viewer.until(lambda s: (r := find(s, 9)) and r["events"] > 100_000, "the flood is on")
        for _ in range(3):
            quiet.events(event(time.monotonic_ns(), Phase.STEP, Kind.BEGIN))
            began = time.monotonic()
            seen = quiet.recorded
            viewer.until(lambda s, seen=seen: find(s, 1)["events"] == seen, "the quiet rank's event")
            assert time.monotonic() - began < 2
    finally:
        stop.set()
        thread.join()


def test_a_hanging_driver_blocks_nothing_and_is_said(context, simulated_nvml: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("63 250000 ok")
    daemon = DaemonProcess("--gpu-ms", "50", LD_LIBRARY_PATH=str(simulated_nvml), SIMULATED_STATE=str(state))
    try:
        viewer = Viewer(context, daemon.directory.snapshots_address)
        viewer.until(lambda s: s["gpus"] and "power_w" in s["gpus"][0], "power")
        state.write_text("63 250000 hang")
        snapshot = viewer.until(lambda s: "hangs" in s["daemon"]["gpu_status"], "the hang is said")
        left = {"index", "uuid", "name", "ranks", "rank_keys", "error"}
        assert [set(gpu) for gpu in snapshot["gpus"]] == [left, left]
        first = viewer.next()["monotonic_ns"]
        assert viewer.next(1)["monotonic_ns"] > first
        daemon.process.send_signal(signal.SIGTERM)
        assert "SIGTERM" in daemon.output()
        assert daemon.process.returncode == 0
    finally:
        daemon.close()


def test_a_directory_that_vanishes_ends_the_daemon_and_spares_its_successor(context) -> None:
    daemon = DaemonProcess()
    try:
        first = daemon.process
        first.send_signal(signal.SIGSTOP)  # so that it notices only once its successor is there
        shutil.rmtree(daemon.directory.path)
        daemon.spawn()
        daemon.wait_ready()
        first.send_signal(signal.SIGCONT)
        text, _ = first.communicate(timeout=DEADLINE_S)
        assert first.returncode == 0
        assert "its runtime directory was removed" in text
        Viewer(context, daemon.directory.snapshots_address).next()
    finally:
        daemon.close()


def test_a_stale_socket_is_replaced(context) -> None:
    daemon = DaemonProcess()
    try:
        daemon.kill()
        assert (daemon.directory.path / "snapshots.sock").exists()
        assert daemon_pid(daemon.directory) is None
        daemon.spawn()
        daemon.wait_ready()
        Viewer(context, daemon.directory.snapshots_address).next()
    finally:
        daemon.close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "r"
    directory.mkdir(mode=0o700)
    precious = directory / "events.sock"
    precious.write_text("precious")
    assert f"{precious} is in the way and is no socket" in said(run_daemon(directory))
    assert precious.read_text() == "precious"


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    assert "too long for a socket" in said(run_daemon(tmp_path / ("d" * 120)))


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("")
    assert "is not a directory" in said(run_daemon(tmp_path / "r"))


def test_a_directory_open_to_others(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r").chmod(0o755)
    assert "chmod 700" in said(run_daemon(tmp_path / "r"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_another_users_directory(tmp_path: Path) -> None:
    theirs = tmp_path / "r"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}, not to you (0)" in said(run_daemon(theirs))


@pytest.fixture
def tiny(tmp_path: Path):
    """A file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", place], capture_output=True, check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("can't mount a tmpfs here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_directory(tiny: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (tiny / "fill").write_bytes(b"\0" * (1 << 20))
    assert "free some space" in said(run_daemon(tiny))


def test_a_read_only_directory(tiny: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    assert "Read-only file system" in said(run_daemon(tiny))


def test_stop_does_not_kill_whom_the_lock_does_not_belong_to(tmp_path: Path) -> None:
    directory = RuntimeDirectory(tmp_path / "r")
    directory.path.mkdir(mode=0o700)
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with directory.daemon_lock.open("w") as file:
            file.write(f"{bystander.pid}\n")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            done = subprocess.run(
                [sys.executable, "-m", "hpcsampler", "daemon", "stop", "--runtime-dir", str(directory.path)],
                capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            )
        assert "is held, but not by process" in said(done)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.communicate()


def test_a_look_at_the_lock_turns_no_daemon_away(tmp_path: Path) -> None:
    directory = RuntimeDirectory(tmp_path)
    with directory.daemon_lock.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        ends = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        ends.start()
        try:
            Singleton(directory).close()
        finally:
            ends.join()


def test_another_listener_on_the_path_is_not_a_daemon(tmp_path: Path) -> None:
    """A socket without the lock behind it is stale, whoever made it."""
    directory = tmp_path / "r"
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(directory / "events.sock"))
        DaemonProcess(directory=directory).close()
