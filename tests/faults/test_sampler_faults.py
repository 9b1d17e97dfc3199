"""Whatever happens around it, the training goes on, ends as it would, and says what it would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hpcsampler.ext._timeline import Timeline
from tests.support.capture import Capture
from tests.support.environment import environment

TRAIN = """
import os, sys, time, threading
import hpcsampler
"""


def start(directory: Path, program: str, **options: object) -> subprocess.Popen[str]:
    more = options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, *options.pop("flags", ()), "-c", TRAIN + textwrap.dedent(program)],
        env=environment(directory, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )


def run(directory: Path, program: str, **options: object) -> tuple[int, str, str]:
    process = start(directory, program, **options)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def exit_delay_s(process: subprocess.Popen[str]) -> float:
    """Seconds from the line `end NS`, printed as the program's last act, to the end of the process."""
    out, _ = process.communicate(timeout=60)
    ended = time.monotonic_ns()
    return (ended - int(out.split()[-1])) / 1e9


STEPS = """
for _ in range(5):
    with hpcsampler.step(): time.sleep(0.002)
"""
END = "\nprint('end', time.monotonic_ns(), flush=True)\n"


def plain_exit_s(directory: Path) -> float:
    """How long this machine takes to end a process that imported the same, without the sampler."""
    return min(
        exit_delay_s(start(directory, "import zmq, msgpack, wrapt" + END)) for _ in range(3)
    )


@pytest.mark.parametrize("daemon", ["never", "dead", "deaf"])
def test_the_end_of_the_program_is_not_held_up(daemon: str, tmp_path: Path) -> None:
    program = "hpcsampler.attach(daemon='never', strict=True)" + STEPS
    allowed = plain_exit_s(tmp_path) + 0.2
    if daemon == "never":
        delays = [exit_delay_s(start(tmp_path, program + END)) for _ in range(3)]
    elif daemon == "dead":
        # A daemon that was there, and is gone when the program ends.
        delays = []
        for _ in range(3):
            with Capture(tmp_path) as capture:
                process = start(tmp_path, program + "\nsys.stdin.readline()" + END, stdin=subprocess.PIPE)
                capture.wait_for_hello()
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.close()
            process.stdin = None
            delays.append(exit_delay_s(process))
    else:
        # One that takes connections and reads nothing.
        delays = []
        with Capture(tmp_path) as capture:
            for _ in range(3):
                process = start(tmp_path, program + "\nsys.stdin.readline()" + END, stdin=subprocess.PIPE)
                capture.wait_for_hello()
                capture.ranks.clear()
                capture.deaf = True
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.close()
                process.stdin = None
                delays.append(exit_delay_s(process))
                capture.deaf = False
    assert min(delays) <= allowed


@pytest.mark.parametrize(
    ("last_act", "code", "error"),
    [
        ("", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("os._exit(5)", 5, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
        ("os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 9, ""),
        ("os.abort()", -signal.SIGABRT, ""),
    ],
)
def test_every_end_is_the_program_s_own(last_act: str, code: int, error: str, tmp_path: Path) -> None:
    with Capture(tmp_path):
        returned, _, err = run(tmp_path, "hpcsampler.attach(daemon='never', strict=True)" + STEPS + last_act)
    assert returned == code
    assert "hpcsampler" not in err
    assert err.endswith(error)
    assert bool(err) == bool(error)


def test_forked_workers_neither_send_nor_hang(tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        code, out, err = run(tmp_path, """
            import multiprocessing
            assert hpcsampler.attach(daemon="never", strict=True)
            pid = os.getpid()

            def load(i):
                # What a data worker might do: it finds itself not attached, whatever it inherited.
                with hpcsampler.step(): hpcsampler.mark("inherited", i)
                with hpcsampler.phase("work"): pass
                hpcsampler.pause(); hpcsampler.resume()
                from hpcsampler.ext import _events
                assert not _events.recording() and os.getpid() != pid
                return i, [t.name for t in threading.enumerate()]

            for _ in range(3):
                with multiprocessing.get_context("fork").Pool(4) as pool:
                    for _ in range(5):
                        with hpcsampler.step(): results = pool.map(load, range(20))
            assert all("hpcsampler" not in names for _, names in results)
            hpcsampler.detach()
            print("done")
        """, flags=["-W", "ignore::DeprecationWarning"])
        rank = capture.only_rank()
    assert (code, out, err) == (0, "done\n", "")
    timeline = rank.timeline()
    assert timeline.steps == 15
    assert timeline.marks() == {}


def test_a_forked_child_may_attach_on_its_own(tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        code, out, err = run(tmp_path, """
            hpcsampler.attach(daemon="never", strict=True, rank=0)
            with hpcsampler.step(): pass
            child = os.fork()
            if child == 0:
                assert hpcsampler.attach(daemon="never", strict=True, rank=1)
                for _ in range(3):
                    with hpcsampler.step(): time.sleep(0.001)
                hpcsampler.detach()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            hpcsampler.detach()
        """, flags=["-W", "ignore::DeprecationWarning"])
        assert (code, out, err) == (0, "", "")
        capture.wait_for(lambda: len([r for r in capture.ranks.values() if r.bye]) == 2)
        ranks = {r.hello.rank: r.timeline().steps for r in capture.ranks.values() if r.hello}
    assert ranks == {0: 1, 1: 3}


def test_attach_twice_pause_resume_detach_and_again(tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        code, _, err = run(tmp_path, """
            for _ in range(2):
                assert hpcsampler.attach(daemon="never", strict=True) and hpcsampler.attach(daemon="never")
                with hpcsampler.step(): pass
                hpcsampler.pause(); hpcsampler.pause()
                with hpcsampler.step(): pass
                hpcsampler.resume(); hpcsampler.resume()
                with hpcsampler.step(): pass
                hpcsampler.detach(); hpcsampler.detach()
                with hpcsampler.step(): pass
        """)
        assert (code, err) == (0, "")
        capture.wait_for(lambda: len([r for r in capture.ranks.values() if r.bye]) == 2)
    for rank in capture.ranks.values():
        timeline: Timeline = rank.timeline()
        assert timeline.steps == 2
        assert timeline.totals_ns()[0] > 0, "the pause is not covered"


def test_a_daemon_that_comes_late_gets_what_the_ring_kept_and_how_much_it_did_not(tmp_path: Path) -> None:
    process = start(tmp_path, """
        hpcsampler.attach(daemon="never", strict=True)
        for i in range(1000):
            with hpcsampler.step(): pass
        print("recorded", flush=True); sys.stdin.readline()
        with hpcsampler.step(): pass
        time.sleep(0.3)
    """, stdin=subprocess.PIPE, env={"HPCSAMPLER_RING_EVENTS": "256", "HPCSAMPLER_FLUSH_MS": "20"})
    assert process.stdout is not None
    assert process.stdout.readline() == "recorded\n"
    with Capture(tmp_path) as capture:
        capture.wait_for(lambda: any(rank.batches for rank in capture.ranks.values()))
        process.communicate("\n", timeout=30)
        rank = capture.only_rank()
    sent = sum(batch.count for batch in rank.batches)
    last = rank.batches[-1]
    # Roles are announced with each hello, so a few events are not steps.
    assert sent + last.dropped == last.first + last.count + last.dropped
    assert sent + last.dropped >= 2002
    assert last.dropped >= 2000 - 256


@pytest.mark.parametrize("trouble", ["file", "long", "foreign", "readonly"])
def test_a_runtime_directory_that_is_no_good_is_said_once_and_harms_nothing(trouble: str, tmp_path: Path) -> None:
    directory = tmp_path / "d"
    if trouble == "file":
        directory.write_text("")
        words = "is not a directory"
    elif trouble == "long":
        directory = tmp_path / ("x" * 100)
        words = "too long"
    elif trouble == "foreign":
        if os.getuid() != 0:
            pytest.skip("making a directory of another user's needs root")
        directory.mkdir(mode=0o700)
        os.chown(directory, 12345, 12345)
        words = "belongs to user 12345"
    else:
        directory = Path("/proc/hpcsampler")
        words = "can't make the runtime directory"
    program = """
        attached = [hpcsampler.attach() for _ in range(3)]
        with hpcsampler.step(): pass
        print(attached)
    """
    code, out, err = run(directory, program, env={"PYTHONWARNINGS": "default"})
    assert (code, out) == (0, "[False, False, False]\n")
    assert err.count(words) == 1
    # Where warnings are errors, that one must not be.
    code, out, err = run(directory, program, env={"PYTHONWARNINGS": "error"})
    assert (code, out) == (0, "[False, False, False]\n")
    assert err.count(words) == 1
    code, out, err = run(directory, "hpcsampler.attach(strict=True)")
    assert code == 1
    assert words in err.splitlines()[-1]


def test_settings_that_can_not_be_are_said_and_harm_nothing(tmp_path: Path) -> None:
    settings = {"HPCSAMPLER_RANK": "-1", "PYTHONWARNINGS": "default"}
    code, out, err = run(tmp_path, "print(hpcsampler.attach())", env=settings)
    assert (code, out) == (0, "False\n")
    assert "HPCSAMPLER_RANK is '-1': write a whole number from 0" in err


def test_sampling_can_be_switched_off_from_outside(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, """
        print(hpcsampler.attach(), [t.name for t in threading.enumerate()], "wrapt" in sys.modules)
    """, env={"HPCSAMPLER_ENABLED": "0"})
    assert (code, out, err) == (0, "False ['MainThread'] False\n", "")


def test_odd_arguments_never_reach_the_training(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, """
        hpcsampler.attach(daemon="never", strict=True)
        for name in ("x", "", "é" * 5000, 7, None, b"b", ("t",)):
            for value in (0, -1, 2**63 - 1, 1.5, True, float("nan"), 2**70, "text", None, object()):
                hpcsampler.mark(name, value)
            with hpcsampler.phase(name): pass
        for i in range(5000): hpcsampler.mark(f"name{i}")
        class Unhashable(list): pass
        hpcsampler.mark(Unhashable()); hpcsampler.phase(Unhashable()).__enter__()
        print("alive")
    """)
    assert (code, out) == (0, "alive\n"), err


def test_a_signal_that_the_program_blocks_to_wait_for_finds_no_thread_of_ours(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, """
        import signal
        hpcsampler.attach(daemon="never", strict=True)
        time.sleep(0.1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.1)
        print(signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1)
    """)
    assert (code, out, err) == (0, "True\n", "")


def test_what_a_former_session_could_not_send_is_none_of_the_next(tmp_path: Path) -> None:
    process = start(tmp_path, """
        hpcsampler.attach(daemon="never", strict=True)
        for _ in range(1500):
            with hpcsampler.step(): pass
        hpcsampler.detach()
        print("detached", flush=True); sys.stdin.readline()
        hpcsampler.attach(daemon="never", strict=True)
        with hpcsampler.step(): pass
    """, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "detached\n"
    with Capture(tmp_path) as capture:
        process.communicate("\n", timeout=30)
        rank = capture.only_rank()
    assert rank.timeline().steps == 1


def test_the_time_until_the_end_is_told_also_without_events(tmp_path: Path) -> None:
    with Capture(tmp_path) as capture:
        code, out, _ = run(tmp_path, """
            hpcsampler.attach(daemon="never", strict=True)
            with hpcsampler.step(): pass
            time.sleep(1.6)
            print(time.monotonic_ns())
        """)
        assert code == 0
        rank = capture.only_rank()
    assert rank.batches[-1].watermark_ns >= int(out)


def test_a_program_that_joins_all_threads_ends(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, """
        threading.settrace(lambda *_: print("traced"))
        hpcsampler.attach(daemon="never", strict=True)
        with hpcsampler.step(): pass
        time.sleep(0.5)
        for thread in threading.enumerate():
            if thread is not threading.main_thread(): thread.join()
        print(threading.active_count())
    """)
    assert (code, out, err) == (0, "1\n", "")
