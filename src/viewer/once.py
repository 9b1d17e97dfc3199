"""One frame as text, or one snapshot as JSON, for scripts, logs and terminals without a screen."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from ..errors import HpcsamplerError
from ..source import SnapshotSource, made_at_ns
from .frame import View, compose
from .style import to_ansi, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from ..protocol.snapshot import Snapshot
    from .cells import Glyphs

FIRST_WAIT_S = 3.0
"""How long a daemon that is there may take for its first snapshot."""
_PLAIN_CELLS = 100
_LEAST_CELLS = 40


def first_snapshot(address: str, place: str, *, wait_s: float = FIRST_WAIT_S) -> Snapshot:
    """The next snapshot of the daemon. Raises `HpcsamplerError` if there is none: it says what to do."""
    source = SnapshotSource(address)
    try:
        snapshot = source.wait(wait_s)
        bad = source.bad_frames
    finally:
        source.close()
    if snapshot is not None:
        return snapshot
    if bad:
        raise HpcsamplerError(
            f"the daemon in {place} speaks another version: end it (hpcsampler daemon stop), the next"
            " training starts one of this version",
        )
    raise no_daemon(place)


def no_daemon(place: str) -> HpcsamplerError:
    """The error of whoever finds nobody in `place`."""
    return HpcsamplerError(
        f"no hpcsampler daemon answers in {place}: start a training with hpcsampler.attach(),"
        " or: hpcsampler daemon start",
    )


def frame_text(snapshot: Snapshot, *, cells: int, sort: str, glyphs: Glyphs, color: bool) -> str:
    """One frame, whole, however many lines it takes."""
    now = time.monotonic_ns()
    age_s = (now - made_at_ns(snapshot, now)) / 1e9
    lines = compose(snapshot, View(width=cells, age_s=age_s, sort=sort, glyphs=glyphs)).lines
    return to_ansi(lines) if color else to_text(lines)


def snapshot_json(snapshot: Snapshot) -> str:
    """One JSON object with its keys in order.

    A number that JSON doesn't have (NaN, infinity) is unknown: its key goes.
    """
    return json.dumps(_finite(snapshot), indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items() if not _is_unknown(inner)}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value if not _is_unknown(inner)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def _is_unknown(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def width_of(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Cells to print for: the terminal's, else $COLUMNS, else 100, which most pagers and logs hold."""
    try:
        cells = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        cells = 0
    if not cells:
        text = environ.get("COLUMNS", "")
        cells = int(text) if text.isascii() and text.isdigit() else 0
    return max(cells, _LEAST_CELLS) if cells else _PLAIN_CELLS


def write(text: str) -> None:
    """To stdout, whatever its encoding."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()
