"""The live screen. Needs Textual, so nothing else imports this module before it is wanted.

One widget paints the lines of `compose`. A timer polls the socket; only lines that changed are painted anew.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.color import Color
from rich.segment import Segment as RichSegment
from rich.style import Style
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ..source import made_at_ns
from .frame import Frame, View, compose
from .help import help_page
from .history import History
from .order import SORTS
from .style import LOOKS, Line, Look, colorless

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer

    from ..protocol.snapshot import Snapshot
    from ..source import SnapshotSource

INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between two updates, as + and - step through them."""
_EAGER_S = 0.01
"""Between two looks at the socket before the first snapshot has come …"""
_EAGER_FOR_S = 1.0
"""… and for how long, as there may be no daemon for hours."""


def _rich_styles(*, color: bool) -> dict[str, Style]:
    def rich(look: Look) -> Style:
        return Style(
            color=None if look.color is None else Color.from_ansi(look.color),
            bgcolor=None if look.background is None else Color.from_ansi(look.background),
            bold=look.bold or None,
            dim=look.dim or None,
            reverse=look.reverse or None,
            underline=look.underline or None,
        )

    return {name: rich(look if color else colorless(look)) for name, look in LOOKS.items()}


class Painter(Widget):
    """Paints lines; knows nothing of what they say."""

    DEFAULT_CSS = "Painter { width: 100%; height: 100%; }"

    def __init__(self, styles: dict[str, Style]) -> None:
        super().__init__()
        self._styles = styles
        self._lines: tuple[Line, ...] = ()

    def show(self, lines: tuple[Line, ...]) -> None:
        """Replace the lines; only those that differ are painted."""
        before, self._lines = self._lines, lines
        cells = self.size.width
        changed = [
            Region(0, at, cells, 1)
            for at in range(max(len(before), len(lines)))
            if before[at : at + 1] != lines[at : at + 1]
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """One line, filled up to the width of the widget."""
        line = self._lines[y] if y < len(self._lines) else Line()
        segments = [RichSegment(segment.text, self._styles[segment.style]) for segment in line.segments]
        return Strip(segments, line.cells).adjust_cell_length(self.size.width)


class TopApp(App[int]):
    """`hpcsampler top`. Holds a view of the newest snapshot; every key changes the view and draws it."""

    CSS = "TopApp, TopApp > * { background: ansi_default; color: ansi_default; }"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "leave"),
        ("ctrl+c", "close"),
        ("ctrl+z", "suspend_process"),
        ("question_mark,h", "help"),
        ("escape", "close_help"),
        ("p,space,u", "pause"),
        ("plus,equals_sign", "interval(-1)"),
        ("minus,underscore", "interval(1)"),
        ("s,full_stop", "sort(1)"),
        ("comma", "sort(-1)"),
        ("r", "reverse"),
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup", "page(-1)"),
        ("pagedown", "page(1)"),
        ("home,g", "move(-1000000)"),
        ("end,G", "move(1000000)"),
    ]

    def __init__(self, source: SnapshotSource, view: View, first: Snapshot | None = None, *, color: bool) -> None:
        """`first`: the snapshot that is on the screen already, if there is one."""
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self._source = source
        self._history = History()
        self._view = replace(view, history=self._history)
        self._painter = Painter(_rich_styles(color=color))
        self._frame = Frame(())
        self._snapshot: Snapshot | None = None
        self._made_ns = 0
        if first is not None:
            self._take(first)
        self._help_first: int | None = None
        """The line of the help at the top; None while help is not shown."""
        self._eager_until = time.monotonic() + _EAGER_FOR_S
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self._painter

    def on_mount(self) -> None:
        """Start: a first look at the socket at once, then by the timer."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, 128 + signal.SIGTERM)
        self._tick()
        self._run_timer()

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self._view = replace(self._view, width=event.size.width, height=event.size.height)
        self._draw()

    def _run_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        eager = self._snapshot is None and time.monotonic() < self._eager_until
        self._timer = self.set_interval(_EAGER_S if eager else self._view.interval_s, self._tick)

    def _tick(self) -> None:
        snapshot = self._source.poll()
        if snapshot is not None:
            self._take(snapshot)
        self._draw()
        if self._eager_until and (self._snapshot is not None or time.monotonic() > self._eager_until):
            self._eager_until = 0.0
            self._run_timer()

    def _take(self, snapshot: Snapshot) -> None:
        made_ns = made_at_ns(snapshot, time.monotonic_ns())
        self._history.add(snapshot, made_ns / 1e9)
        if not self._view.paused:
            self._snapshot, self._made_ns = snapshot, made_ns

    def _draw(self) -> None:
        view = self._view
        if self._help_first is not None:
            page = help_page(self._help_first, view.width, view.height or 1, view.glyphs)
            self._help_first = page.first
            self._painter.show(page.lines)
            return
        until = view.until if view.paused else self._history.bucket
        age_s = max(time.monotonic_ns() - self._made_ns, 0) / 1e9
        view = replace(view, age_s=age_s, until=until, bad_frames=self._source.bad_frames)
        self._frame = compose(self._snapshot, view)
        self._view = replace(view, first=self._frame.first)
        self._painter.show(self._frame.lines)

    def _change(self, **changes: Any) -> None:
        self._view = replace(self._view, **changes)
        self._draw()

    def action_leave(self) -> None:
        """Out of the help; or out of the program."""
        if self._help_first is not None:
            self.action_close_help()
        else:
            self.exit(0)

    def action_close(self) -> None:
        """Out of the program, from wherever."""
        self.exit(130)

    def action_help(self) -> None:
        """Show the help, or go back."""
        self._help_first = 0 if self._help_first is None else None
        self._draw()

    def action_close_help(self) -> None:
        """From the help to the table."""
        self._help_first = None
        self._draw()

    def action_pause(self) -> None:
        """Hold the screen as it is, or go on with the newest data."""
        if self._snapshot is not None:
            self._change(paused=not self._view.paused)
            if not self._view.paused:
                self._tick()

    def action_interval(self, step: int) -> None:
        """The next slower (1) or faster (-1) interval."""
        now = self._view.interval_s
        longer = [one for one in INTERVALS if one > now]
        shorter = [one for one in INTERVALS if one < now]
        chosen = longer[:1] if step > 0 else shorter[-1:]
        if chosen:
            self._change(interval_s=chosen[0])
            self._run_timer()

    def action_sort(self, step: int) -> None:
        """The next (1) or the last (-1) order; from its top."""
        at = (SORTS.index(self._view.sort) + step) % len(SORTS)
        self._change(sort=SORTS[at], reverse=False, selected=None, first=0)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._change(reverse=not self._view.reverse, selected=None, first=0)

    def action_move(self, rows: int) -> None:
        """Select the row so many further down."""
        if self._help_first is not None:
            self._help_first = max(self._help_first + rows, 0)
            self._draw()
        elif self._frame.keys:
            at = min(max(self._frame.selected + rows, 0), len(self._frame.keys) - 1)
            self._change(selected=self._frame.keys[at])

    def action_page(self, pages: int) -> None:
        """Select the row so many pages further down."""
        page = self._frame.page if self._help_first is None else (self._view.height or 1) - 1
        self.action_move(pages * max(page, 1))


def run_live(source: SnapshotSource, view: View, first: Snapshot | None, *, color: bool) -> int:
    """The live screen until it is left; returns the exit code. Has the terminal restored then."""
    app = TopApp(source, view, first, color=color)
    code = app.run(mouse=False)
    return code if code is not None else (app.return_code or 0)
