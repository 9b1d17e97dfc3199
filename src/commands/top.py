"""`hpcsampler top`: the live screen, one frame of it (`--once`), or one snapshot (`--json`)."""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HpcsamplerError
from ..runtime import RuntimeDirectory, check, locate, prepare
from ..viewer.order import SORTS

if TYPE_CHECKING:
    from typing import Any

_FASTEST_S, _SLOWEST_S = 0.25, 10.0
_PATIENCE_S = 0.15
"""A daemon that is there answers a new viewer at once."""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """The options of `top`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "top",
        help="show live why each GPU is not working",
        description="Shows live, per GPU or per rank, where the time goes and what it waits for."
        " Without a terminal it prints one frame.",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--once", action="store_true", help="print one frame as text, and end")
    shape.add_argument("--json", action="store_true", help="print one snapshot as JSON, and end")
    parser.add_argument(
        "--interval",
        type=_interval,
        default=0.5,
        metavar="SECONDS",
        help=f"between two updates, {_FASTEST_S:g} to {_SLOWEST_S:g} (default 0.5)",
    )
    parser.add_argument("--sort", choices=SORTS, default="gpu", help="order of the rows (default gpu)")
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        help="where the daemon keeps its sockets (default $HPCSAMPLER_RUNTIME_DIR or the user's own)",
    )
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    parser.add_argument("--no-color", action="store_true", help="no colour (so does $NO_COLOR)")
    return parser


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _FASTEST_S <= seconds <= _SLOWEST_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no interval: write seconds from {_FASTEST_S:g} to {_SLOWEST_S:g}"
        )
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Show what was asked for; returns the exit code."""
    chosen = arguments.runtime_dir
    directory = (
        RuntimeDirectory(Path(chosen).expanduser().absolute()) if chosen else locate(os.environ, os.getuid())
    )
    has_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if arguments.once or arguments.json or not has_screen:
        return _print_once(arguments, directory)
    return _live(arguments, directory)


def _print_once(arguments: argparse.Namespace, directory: RuntimeDirectory) -> int:
    from ..viewer import once

    place = str(directory.path)
    if not directory.path.exists():
        raise once.no_daemon(place)
    check(directory)
    snapshot = once.first_snapshot(directory.snapshots_address, place)
    if arguments.json:
        once.write(once.snapshot_json(snapshot))
        return 0
    from ..viewer.cells import glyphs_for

    color = sys.stdout.isatty() and _wants_color(arguments) and os.environ.get("TERM", "dumb") != "dumb"
    cells = once.width_of(sys.stdout, os.environ)
    glyphs = glyphs_for(sys.stdout.encoding, os.environ, force_ascii=arguments.ascii)
    once.write(once.frame_text(snapshot, cells=cells, sort=arguments.sort, glyphs=glyphs, color=color))
    return 0


def _live(arguments: argparse.Namespace, directory: RuntimeDirectory) -> int:
    # A screen that is opened before the first training waits for it: its directory must be there and safe.
    if directory.path.exists():
        check(directory)
    else:
        prepare(directory)
    from ..source import SnapshotSource
    from ..viewer.cells import glyphs_for
    from ..viewer.early import first_frame
    from ..viewer.frame import View

    gc.disable()  # all that is imported stays: to look through it for garbage is a tenth of the time to the first frame
    source = SnapshotSource(directory.snapshots_address)
    color = _wants_color(arguments)
    view = View(
        width=80,
        height=24,
        sort=arguments.sort,
        interval_s=arguments.interval,
        place=str(directory.path),
        glyphs=glyphs_for(sys.stdout.encoding, os.environ, force_ascii=arguments.ascii),
    )
    patience_s = _PATIENCE_S if (directory.path / "snapshots.sock").exists() else 0.0
    try:
        with first_frame(source, view, patience_s=patience_s, color=color) as first:
            _set_up_textual()
            try:
                from ..viewer.top import run_live
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] not in ("textual", "rich"):
                    raise
                raise HpcsamplerError(
                    "the live screen needs Textual: pip install 'hpcsampler[top]' (or use --once / --json)",
                ) from None
        gc.freeze()
        gc.enable()
        return run_live(source, view, first, color=color)
    finally:
        source.close()


def _set_up_textual() -> None:
    """Correct what Textual, when it is imported, takes from the environment."""
    for name in ("COLUMNS", "LINES"):  # it takes them for the size, for good; the terminal knows better
        os.environ.pop(name, None)
    if os.environ.get("TERM") != "linux":  # the others have 256 colours
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", "256")


def _wants_color(arguments: argparse.Namespace) -> bool:
    return not arguments.no_color and not os.environ.get("NO_COLOR")
