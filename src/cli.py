"""The command line: one parser, a module per subcommand. Whatever is heavy is imported inside a command's `run`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ._version import __version__
from .errors import HpcsamplerError
from .settings import unknown_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("top", "run", "daemon", "doctor", "demo", "stacks")
_SAID_ELSEWHERE = frozenset({"run", "doctor"})
"""Commands after which attach(), or the command itself, says which variables mean nothing."""


class _Parser(argparse.ArgumentParser):
    """Bad usage ends with one line that says what to type instead, and exit code 2."""

    def __init__(self, **options: Any) -> None:
        # A flag that is added later must not change what a script's shortened one means.
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As always, but what is unknown to a subcommand is its own error, and not the main parser's."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these subcommands. Each module has `add_parser(subparsers)` and `run(arguments) -> int`."""
    parser = _Parser(
        prog="hpcsampler",
        description="One always-on sampler that says live, per GPU, why it is not working.",
    )
    parser.add_argument("--version", action="version", version=f"hpcsampler {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in commands:
        module = importlib.import_module(f".commands.{name}", __package__)
        module.add_parser(subparsers).set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    # The modules of the other commands are not worth the time that they take to load: a third of `top`'s first frame.
    asked = [name for name in COMMANDS if argv[:1] == [name]]
    arguments = build_parser(asked or COMMANDS).parse_args(argv)
    if arguments.command not in _SAID_ELSEWHERE:
        for text in unknown_variables(os.environ):
            print(f"hpcsampler: {text}", file=sys.stderr)
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
