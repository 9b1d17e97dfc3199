"""`hpcsampler daemon run|start|stop|status`: the node's daemon, by hand."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpcsampler.errors import HpcsamplerError, UsageError

if TYPE_CHECKING:
    import argparse
    from argparse import Namespace

    from hpcsampler.protocol.snapshot import RankSnapshot, Snapshot
    from hpcsampler.runtime import RuntimeDirectory

WAIT_S: Final = 5.0
"""How long a daemon may take to come up or to go."""
SNAPSHOT_S: Final = 2.0
SILENT_S: Final = 2.0
"""A rank that lives and can, tells something once a second."""
_POLL_S: Final = 0.02


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "daemon",
        help="start, stop or look at the node's daemon",
        description="The daemon takes in what the ranks of this node send and serves `hpcsampler top`."
        " attach() starts it if there is none, so there is seldom a need to do it by hand.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("run", "be the daemon, in the foreground"),
        ("start", "start it in the background"),
        ("stop", "end it"),
        ("status", "say whether it runs, and what it has"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        action.add_argument(
            "--runtime-dir", metavar="DIR", help="where its sockets are (or set HPCSAMPLER_RUNTIME_DIR)",
        )
        if name in {"run", "start"}:
            action.add_argument(
                "--linger", metavar="SECONDS", nargs="?", const="",
                help="end so long after the last rank and viewer have gone (default: stay)",
            )
        if name == "run":
            action.add_argument("--publish-ms", metavar="MS", help="time between snapshots")
            action.add_argument("--gpu-ms", metavar="MS", help="time between readings of the GPUs")
            action.add_argument("--background", action="store_true", help="another daemon is no error")
    return parser


def run(arguments: Namespace) -> int:
    """Run one action; returns the exit code."""
    from hpcsampler import runtime

    if arguments.runtime_dir is None:
        directory = runtime.locate(os.environ, os.getuid())
    else:
        directory = runtime.locate({"HPCSAMPLER_RUNTIME_DIR": arguments.runtime_dir}, os.getuid())
    if arguments.action == "stop":
        return _stop(directory)
    if arguments.action == "status":
        return _status(directory)
    from hpcsampler import settings

    asked = arguments.linger
    flags = {
        "linger_s": asked or None,
        "publish_ms": getattr(arguments, "publish_ms", None),
        "gpu_ms": getattr(arguments, "gpu_ms", None),
    }
    try:
        values = settings.load(os.environ, **flags)
    except UsageError as error:
        text = str(error)
        for name in flags:  # as the user wrote it
            text = text.replace(f"{name}= is", f"--{name.removesuffix('_s').replace('_', '-')} is")
        raise UsageError(text) from None
    linger_s = None if asked is None else values.linger_s
    if arguments.action == "start":
        return _start(directory, linger_s)
    from hpcsampler.collector.daemon import run_daemon

    return run_daemon(directory, values, linger_s=linger_s, background=arguments.background)


def _start(directory: RuntimeDirectory, linger_s: float | None) -> int:
    from hpcsampler import launch

    before = launch.daemon_pid(directory)
    if not launch.ensure_daemon(directory, linger_s=linger_s, wait_s=WAIT_S):
        raise HpcsamplerError(f"the daemon did not come up within {WAIT_S:g} s: see {directory.log}")
    pid = launch.daemon_pid(directory)
    print(f"{'started' if before is None else 'already running'} (pid {pid}) in {directory.path}")
    return 0


def _stop(directory: RuntimeDirectory) -> int:
    import signal

    from hpcsampler import launch, runtime

    pid = launch.daemon_pid(directory)
    if pid is None:
        print("not running")
        return 0
    runtime.check(directory)
    # The pid in the lock may be another's: of another pid namespace, or left by one that was killed.
    if not _has_open(pid, directory.daemon_lock):
        raise HpcsamplerError(f"{directory.daemon_lock} is held, but not by process {pid} of this machine")
    snapshot = None
    with suppress(ValueError):  # of another version: that is what it may be stopped for
        snapshot = _snapshot(directory.snapshots_address)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S
    while launch.daemon_pid(directory) == pid:
        if time.monotonic() >= deadline:
            raise HpcsamplerError(f"the daemon did not end within {WAIT_S:g} s: kill -9 {pid} ends it")
        time.sleep(_POLL_S)
    print(f"stopped (pid {pid})")
    if snapshot is not None and (count := len(_attached(snapshot))):
        print(
            f"{count} {'rank is' if count == 1 else 'ranks are'} attached and, unless run with"
            " HPCSAMPLER_DAEMON=never, will start it again within seconds: it ends by itself after the last of them,"
            " and HPCSAMPLER_ENABLED=0 runs a training without it",
        )
    return 0


def _attached(snapshot: Snapshot) -> list[RankSnapshot]:
    return [rank for rank in snapshot["ranks"] if rank["state"] not in {"exited", "killed"}]


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has this file open; only one's own processes can be looked at."""
    try:
        wanted = path.stat()
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = link.stat()
            except OSError:
                continue  # closed since it was listed
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except OSError:
        pass
    return False


def _status(directory: RuntimeDirectory) -> int:
    from hpcsampler import launch

    pid = launch.daemon_pid(directory)
    if pid is None:
        print(f"not running (in {directory.path})")
        return 1
    problem = f"no snapshot within {SNAPSHOT_S:g} s"
    snapshot = None
    try:
        snapshot = _snapshot(directory.snapshots_address)
    except ValueError as error:
        problem = f"speaks another version ({error}): `hpcsampler daemon stop` ends it"
    lines = [("pid", str(pid)), ("directory", str(directory.path))]
    lines += [("events", directory.events_address), ("snapshots", directory.snapshots_address)]
    if snapshot is None:
        lines.append(("state", problem))
    else:
        daemon = snapshot["daemon"]
        counts = sorted(daemon.get("rejected", {}).items())
        rejected = ", ".join(f"{reason} {count}" for reason, count in counts)
        attached = _attached(snapshot)
        silent = sum(rank["age_s"] > SILENT_S for rank in attached)
        ranks = f"{len(attached)} attached" + (f" ({silent} silent)" if silent else "")
        lines += [
            ("version", daemon.get("version", "?")),
            ("uptime", f"{daemon.get('uptime_s', 0.0):.0f} s"),
            ("ranks", f"{ranks}, {len(snapshot['ranks']) - len(attached)} ended"),
            ("rejected", rejected or "none"),
            ("gpus", f"{len(snapshot['gpus'])}, {daemon.get('gpu_status', '?')}"),
        ]
    print("\n".join(f"{name + ':':<11}{text}" for name, text in lines))
    return 0


def _snapshot(address: str) -> Snapshot | None:
    import zmq

    from hpcsampler.protocol.snapshot import TOPIC, decode_snapshot

    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.set(zmq.LINGER, 0)
        subscriber.set(zmq.SUBSCRIBE, TOPIC)
        subscriber.connect(address)
        if not subscriber.poll(int(SNAPSHOT_S * 1000)):
            return None
        return decode_snapshot(subscriber.recv())
