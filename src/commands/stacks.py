"""`hpcsampler stacks RANK`: what the Python threads of a rank are in, right now."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HpcsamplerError
from ..runtime import RuntimeDirectory, check, locate

if TYPE_CHECKING:
    from typing import Any

_PATIENCE_S = 10.0
"""The daemon gives up on the rank long before."""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """The options of `stacks`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "stacks",
        help="print what the threads of a rank are in",
        description="Asks a rank that runs on this node what its Python threads are in, and prints their stacks,"
        " innermost call first. The rank goes on as if nothing had happened.",
    )
    parser.add_argument("rank", type=_rank, metavar="RANK", help="number of the rank, as top shows it")
    parser.add_argument("--job", default="", metavar="JOB", help="of this job, if several have such a rank here")
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        help="where the daemon keeps its sockets (default $HPCSAMPLER_RUNTIME_DIR or the user's own)",
    )
    return parser


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no rank: write its number, from 0 on")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print; returns the exit code."""
    chosen = arguments.runtime_dir
    directory = (
        RuntimeDirectory(Path(chosen).expanduser().absolute()) if chosen else locate(os.environ, os.getuid())
    )
    check(directory)
    found, text = _ask(directory, arguments.rank, arguments.job)
    if not found:
        raise HpcsamplerError(text)
    sys.stdout.write(_printable(text) + "\n")
    return 0


def _ask(directory: RuntimeDirectory, rank: int, job: str) -> tuple[bool, str]:
    import zmq

    from ..launch import daemon_pid
    from ..protocol.control import Ask, decode_answer, encode
    from ..protocol.messages import ProtocolError

    if daemon_pid(directory) is None:
        raise HpcsamplerError(f"no daemon runs in {directory.path}: nothing is attached on this node")
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(directory.control_address)
        dealer.send(encode(Ask(rank, job)))
        if not dealer.poll(int(_PATIENCE_S * 1000)):
            raise HpcsamplerError("the daemon does not answer: is it of an older version? (hpcsampler daemon status)")
        try:
            answer = decode_answer(dealer.recv())
        except ProtocolError as error:
            raise HpcsamplerError(f"the daemon is of another version: {error}") from None
        return answer.found, answer.text


def _printable(text: str) -> str:
    """Without what would steer the terminal: names of threads and files are anybody's."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
