"""`hpcsampler run -- COMMAND`: attach to the TensorFlow trainings that a command starts, without touching them."""

from __future__ import annotations

import os
import re
import signal
import sys
from argparse import REMAINDER
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import as_flag, load

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Mapping, Sequence

    from ..settings import Settings

_PYTHON = re.compile(r"python[0-9.]*$")
_TAKES_VALUE = frozenset("WX")
_ENDS_FLAGS = frozenset("cm")
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""As shells have it."""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> ArgumentParser:
    """Add `run` and its flags."""
    parser = subparsers.add_parser(
        "run",
        help="run a command and attach to the trainings in it",
        description="Run a command, with the sampler attached to every process in it that imports TensorFlow."
        " What a script gives to attach() itself, as attach(job=…), wins over the flags here.",
        usage="hpcsampler run [--job JOB] [--rank RANK] [--world-size N] [--daemon auto|never|ADDRESS] -- COMMAND …",
    )
    parser.add_argument("--job", help="name of the job (default: from the launcher, else the program's name)")
    parser.add_argument("--rank", help="rank of this process (default: from the launcher, else 0)")
    parser.add_argument("--world-size", help="number of ranks (default: from the launcher, else 1)")
    parser.add_argument("--daemon", help="auto (default), never, or the address of a daemon")
    parser.add_argument("program", nargs=REMAINDER, metavar="-- COMMAND", help="the command and its arguments")
    return parser


def run(arguments: Namespace) -> int:
    """Become the command: its exit code, signals and standard streams are then its own. Returns only if that fails."""
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not command:
        print("hpcsampler run: no command: write it after --, as in hpcsampler run -- python train.py", file=sys.stderr)
        return 2
    flags = {
        "job": arguments.job,
        "rank": arguments.rank,
        "world_size": arguments.world_size,
        "daemon": arguments.daemon,
    }
    settings = load(os.environ, as_flag, **flags)
    if flag := ignores_environment(command):
        print(
            f"hpcsampler run: python {flag} starts without PYTHONPATH or sitecustomize, so nothing attaches there:"
            f" leave {flag} out or call hpcsampler.attach() in the script",
            file=sys.stderr,
        )
    environ = environment(os.environ, settings, given=[name for name, value in flags.items() if value is not None])
    # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in the command: a pipeline would then not end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - to run it is the user's wish
    except FileNotFoundError:
        print(f"hpcsampler run: no such command: {command[0]}", file=sys.stderr)
        return _NOT_FOUND
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"hpcsampler run: can't execute {command[0]}: {reason}", file=sys.stderr)
        return _NOT_EXECUTABLE


def environment(environ: Mapping[str, str], settings: Settings, given: Sequence[str]) -> dict[str, str]:
    """The command's environment: `environ`, the settings whose names are `given`, and the way to sitecustomize."""
    inject = str(Path(os.path.abspath(__file__)).parent.parent / "inject")  # noqa: PTH100 - no links resolved
    made = dict(environ)
    made.pop("HPCSAMPLER_ATTACHED_PID", None)  # of the process that this was called from, not of the command
    made["PYTHONPATH"] = os.pathsep.join([inject, *filter(None, [environ.get("PYTHONPATH")])])
    made.update({f"HPCSAMPLER_{name.upper()}": str(getattr(settings, name)) for name in given})
    return made


def ignores_environment(command: Sequence[str]) -> str:
    """The flag (-I, -E or -S) that keeps sitecustomize from the first Python that `command` names, or nothing."""
    python = next((place for place, word in enumerate(command) if _PYTHON.match(os.path.basename(word))), None)  # noqa: PTH119
    if python is None:
        return ""
    words = iter(command[python + 1 :])
    for word in words:
        if not word.startswith("-") or word in {"-", "--"}:
            break
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], start=1):
            if letter in "IES":
                return f"-{letter}"
            if letter in _ENDS_FLAGS:
                return ""
            if letter in _TAKES_VALUE:
                if place == len(word) - 1:
                    next(words, None)
                break
    return ""
