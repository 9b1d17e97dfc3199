"""The command line: one parser, a module per subcommand. Whatever is heavy is imported inside a command's `run`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from ._version import __version__
from .errors import HpcsamplerError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("top", "run", "daemon", "doctor", "demo", "stacks")


class _Parser(argparse.ArgumentParser):
    """Bad usage ends with one line that says what to type instead, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands. Each module has `add_parser(subparsers)` and `run(arguments) -> int`."""
    parser = _Parser(
        prog="hpcsampler",
        description="One always-on sampler that says live, per GPU, why it is not working.",
    )
    parser.add_argument("--version", action="version", version=f"hpcsampler {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in COMMANDS:
        module = importlib.import_module(f".commands.{name}", __package__)
        module.add_parser(subparsers).set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except HpcsamplerError as error:
        print(f"hpcsampler: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone (`hpcsampler top --once | head`): nothing is left to say, and the interpreter must
        # not try to flush what nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
