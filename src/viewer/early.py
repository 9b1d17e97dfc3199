"""The first frame, painted before Textual has been imported: that takes longer than all that comes before it.

Nothing of the terminal is changed but that its other screen is shown, without a cursor: as Textual will have it too.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from ..source import made_at_ns
from .frame import compose
from .history import History
from .style import to_ansi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..protocol.snapshot import Snapshot
    from ..source import SnapshotSource
    from .frame import View

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H", "\x1b[?1049l\x1b[?25h"


@contextmanager
def first_frame(source: SnapshotSource, view: View, *, patience_s: float, color: bool) -> Iterator[Snapshot | None]:
    """While inside, the first snapshot is on the screen, if one came within `patience_s`; it is what is yielded.

    Who leaves with an exception finds the terminal as it was; who doesn't has taken over the screen.
    """
    snapshot = source.wait(patience_s)
    if snapshot is None:
        yield None
        return
    ended: list[int] = []

    def end(number: int, _frame: object) -> NoReturn:
        ended.append(128 + number)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        _write(_ENTER + _paint(snapshot, view, color=color))
        yield snapshot
    except BaseException:
        _write(_LEAVE)
        if ended:  # inside an import, C code may make another exception of it
            raise SystemExit(ended[0]) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _paint(snapshot: Snapshot, view: View, *, color: bool) -> str:
    now = time.monotonic_ns()
    made_ns = made_at_ns(snapshot, now)
    history = History()
    history.add(snapshot, made_ns / 1e9)
    cells, height = os.get_terminal_size(sys.stdout.fileno())
    age_s = (now - made_ns) / 1e9
    view = replace(view, width=cells, height=height, age_s=age_s, history=history, until=history.bucket)
    return to_ansi(compose(snapshot, view).lines, color=color).removesuffix("\n")  # the last line's would scroll


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
