"""The screen: one pure function from a snapshot and the state of the view to styled lines.

`--once` prints its lines as text, the live screen paints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cells import UNICODE, Glyphs, clean, fit, width, wrap
from .columns import Column, Sight, cause, choose, columns_for, trend_cell, trend_span
from .detail import detail_lines
from .header import join, legend_line, node_line, title_line
from .messages import Message, messages_of
from .numbers import number
from .rows import Row, first_visible, ordered, rows_of
from .style import Line, Segment, clip
from .words import OLD_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol.snapshot import Snapshot
    from .history import History

_ONE_LINE_FROM = 160
"""Cells from which everything of a row stands well on one line."""
_WIDE = 100
"""Cells from which columns stand two apart."""
_HEAD = 4
"""Lines above the rows: title, node, legend, column titles."""
_LEAST_TREND = 8
_LEAST_KEPT = 5
"""Lines for the detail and what sets it apart for which a message has to give way."""


@dataclass(frozen=True, slots=True)
class View:
    """How the snapshot is looked at."""

    width: int
    height: int | None = None
    """None: as many lines as it takes, nothing to scroll, no keys to name."""
    age_s: float = 0.0
    """Of the snapshot: since the daemon made it."""
    sort: str = "gpu"
    reverse: bool = False
    selected: str | None = None
    """Key of a row; None is the first."""
    first: int = 0
    """The row that was at the top."""
    paused: bool = False
    interval_s: float = 0.5
    bad_frames: int = 0
    """What came and was no snapshot."""
    history: History | None = None
    until: int = 0
    """The newest bucket of the history to show."""
    place: str = ""
    """Where the daemon is looked for, in words."""
    glyphs: Glyphs = UNICODE


@dataclass(frozen=True, slots=True)
class Frame:
    """Lines, none wider than the view, and what the keys that move need to know."""

    lines: tuple[Line, ...]
    keys: tuple[str, ...] = ()
    """Of all rows, in order."""
    selected: int = 0
    first: int = 0
    page: int = 0
    """Rows that are visible at once."""
    row_lines: int = 1


@dataclass(frozen=True, slots=True)
class _Room:
    """How the lines between head and footer are shared out."""

    row_lines: int
    page: int
    messages: int
    apart: bool
    """Whether a blank line stands above the messages."""
    detail: int
    """Lines of the detail that have room below a blank one."""


def compose(snapshot: Snapshot | None, view: View) -> Frame:
    """The whole screen."""
    if snapshot is None:
        return _waiting(view)
    glyphs, cells = view.glyphs, view.width
    rows = ordered(rows_of(snapshot, 0.0 if view.paused else view.age_s), view.sort, reverse=view.reverse)
    keys = tuple(row.key for row in rows)
    selected = keys.index(view.selected) if view.selected in keys else 0
    said = messages_of(
        snapshot, age_s=view.age_s, paused=view.paused, bad_frames=view.bad_frames, glyphs=glyphs
    )
    spoken = _spoken(said, cells, glyphs)
    live = view.height is not None
    detail = detail_lines(rows[selected], cells, glyphs) if live and rows else []
    room = _share_out(view, len(rows), len(spoken), len(detail))
    first = first_visible(view.first, selected, room.page, len(rows)) if live else 0
    shown = rows[first : first + room.page]

    head = [
        title_line(snapshot, cells, glyphs, age_s=view.age_s, paused=view.paused),
        node_line(snapshot, cells, glyphs),
        legend_line(snapshot, cells, glyphs),
    ]
    sight = Sight(
        glyphs,
        number(snapshot, "window_s"),
        view.history,
        view.until,
        old=view.age_s > OLD_S and not view.paused,
    )
    body = _table(rows, shown, rows[selected] if live and rows else None, sight, view, room)
    lines = [*head, *body, *[Line()] * room.apart, *_messages(spoken, room.messages, cells, glyphs)]
    if view.height is not None:
        low = [*detail[: room.detail], _footer(view, first, len(shown), len(rows))]
        blank = [Line()] * max(view.height - len(lines) - len(low), 0)
        # Where not even the head has room, the keys still do: someone must find the way out.
        lines = [*[*lines, *blank][: max(view.height - len(low), 0)], *low][: view.height]
    return Frame(
        tuple(clip(line, cells, glyphs) for line in lines), keys, selected, first, room.page, room.row_lines
    )


def _share_out(view: View, rows: int, messages: int, detail: int) -> _Room:
    """Rows first, but a message can't be crowded out.

    Then messages; but the detail keeps half of what is left then, if that shows something. Then blank lines.
    """
    two = view.width < _ONE_LINE_FROM
    if view.height is None:
        return _Room(2 if two else 1, rows, messages, apart=messages > 0, detail=0)
    space = max(view.height - _HEAD - 1, 1)
    said = min(messages, 1) if space > 1 else 0
    row_lines = 2 if two and 2 * rows <= space - said else 1
    if row_lines > 1 and 3 * rows + messages + detail + 2 <= space:
        row_lines = 3
    page = max(min(rows, (space - said) // row_lines), 1)
    left = space - said - page * row_lines
    kept = min(left // 2, detail + 2)  # blank lines stand above it and above the messages
    more = min(messages - said, left - (kept if kept >= _LEAST_KEPT else 0))
    left -= more
    apart = left > 0 and said > 0 and row_lines < 3  # noqa: PLR2004 - else the last row brings its blank line
    return _Room(row_lines, page, said + more, apart=apart, detail=min(detail, max(left - apart - 1, 0)))


def _table(
    rows: Sequence[Row],
    shown: Sequence[Row],
    selected: Row | None,
    sight: Sight,
    view: View,
    room: _Room,
) -> list[Line]:
    if not rows:
        text = "no rank has attached yet: call hpcsampler.attach() in the training, or use hpcsampler run"
        return [Line(), *[Line((Segment(line, "info"),)) for line in wrap(text, view.width, view.glyphs)]]
    two_lines = room.row_lines > 1
    columns = columns_for(rows, sight, view.width, two_lines=two_lines)
    gap = 2 if view.width >= _WIDE else 1
    margin = 0 if selected is None else 2
    chosen = choose(columns, view.width - margin, gap)
    between = Segment(" " * gap)
    lines = [_titles(chosen, margin, between, view)]
    indent = _bar_offset(chosen, gap)
    for row in shown:
        mark = (
            Segment(f"{view.glyphs.cursor} " if row is selected else "  ", "cursor")
            if margin
            else Segment("")
        )
        cells = [Segment("")]
        for column, size in chosen:
            cells += [*_padded(column.cell(row, sight, size), size, view.glyphs, right=column.right), between]
        lines.append(Line((mark, *cells[1:-1])))
        if two_lines:
            lines.append(_second_line(row, sight, indent, margin, view))
        lines += [Line()] * (room.row_lines - 2)
    return lines


def _titles(chosen: Sequence[tuple[Column, int]], margin: int, between: Segment, view: View) -> Line:
    segments = [Segment(" " * margin)]
    for column, size in chosen:
        title = column.title
        if column.title.startswith("where "):
            options = (title, title.removeprefix("where ").removesuffix(" went"), "stalls")
            title = next(option for option in (*options, "") if width(option) <= size)
        elif column.title == "trend" and view.history is not None:
            long = f"stalls, {trend_span(size)}"
            title = long if width(long) <= size else title
        segments += [Segment(fit(title, size, view.glyphs, right=column.right), "heading"), between]
    taken = sum(width(segment.text) for segment in segments[:-1])
    return Line((*segments[:-1], Segment(" " * (view.width - taken), "heading")))


def _bar_offset(chosen: Sequence[tuple[Column, int]], gap: int) -> int:
    offset = 0
    for column, size in chosen:
        if column.title.startswith("where "):
            return offset
        offset += size + gap
    return 0


def _second_line(row: Row, sight: Sight, indent: int, margin: int, view: View) -> Line:
    """The trend below state and utilisation, the cause below the bar."""
    room = indent - 2
    trend = trend_cell(row, sight, room) if room >= _LEAST_TREND else ()
    left = _padded(trend, room, view.glyphs, right=True) if indent > 1 else []
    gap = Segment(" " * (margin + (2 if indent > 1 else indent)))
    if trend:
        gap, left = Segment(" " * margin), [*left, Segment("  ")]
    return Line((gap, *left, *cause(row, sight, view.width - margin - indent)))


def _padded(cell: Sequence[Segment], cells: int, glyphs: Glyphs, *, right: bool) -> list[Segment]:
    """The cell at exactly `cells`.

    A text that is too long is cut; a number never is, by the width of its column.
    """
    taken = sum(width(segment.text) for segment in cell)
    if taken > cells:
        return [Segment(fit("".join(segment.text for segment in cell), cells, glyphs), cell[0].style)]
    padding = [Segment(" " * (cells - taken))] if taken < cells else []
    return [*padding, *cell] if right else [*cell, *padding]


def _spoken(said: Sequence[Message], cells: int, glyphs: Glyphs) -> list[Line]:
    lines = []
    for message in said:
        mark = f"{glyphs.warning} " if message.style in ("bad", "middle") else "  "
        for at, text in enumerate(wrap(message.text, max(cells - 2, 1), glyphs)):
            lines.append(
                Line((Segment(mark if at == 0 else "  ", message.style), Segment(text, message.style)))
            )
    return lines


def _messages(lines: Sequence[Line], room: int, cells: int, glyphs: Glyphs) -> list[Line]:
    """As many as there is room for; the last one says how many more there are."""
    if len(lines) <= room:
        return list(lines)
    if room <= 0:
        return []
    hidden = len(lines) - room
    more = f"  ({hidden} more line{'s' if hidden > 1 else ''})"
    last = lines[room - 1]
    kept = fit(last.text, max(cells - len(more), 0), glyphs)
    return [*lines[: room - 1], Line((Segment(kept, last.segments[-1].style), Segment(more, "quiet")))]


def _footer(view: View, first: int, shown: int, total: int) -> Line:
    glyphs = view.glyphs
    span = f"{first + 1}-{first + shown} of {total}"
    order = view.sort + (" reversed" if view.reverse else "")
    parts: list[tuple[str, str, float]] = [
        ("q", "quit", 0),
        ("?", "help", 1),
        ("p", "resume" if view.paused else "pause", 2),
        ("s", f"sort: {order}", 3),
        ("r", "reverse", 6),
        ("+ -", f"every {view.interval_s:g} s", 5),
        (f"{glyphs.up}{glyphs.down}", span if shown < total else "select", 4 if shown < total else 7),
    ]
    while (
        len(parts) > 1
        and sum(width(key) + width(text) + 1 for key, text, _ in parts) + 2 * len(parts) > view.width
    ):
        parts.remove(max(parts, key=lambda part: part[2]))
    segments: list[Segment] = []
    for key, text, _ in parts:
        segments += [Segment(key, "key"), Segment(f" {text}  ", "quiet")]
    return Line(tuple(segments))


def _waiting(view: View) -> Frame:
    """The screen before the first snapshot."""
    place = clean(view.place, view.glyphs)
    text = (
        f"waiting for a daemon{f' in {place}' if place else ''}. It comes with the first training that calls"
        " hpcsampler.attach(), or by: hpcsampler daemon start"
    )
    body = [Line((Segment(line, "info"),)) for line in wrap(text, view.width, view.glyphs)]
    if view.bad_frames:
        body.append(Line((Segment(f"{view.bad_frames} messages came that this version can't read", "bad"),)))
    head = Line(
        tuple(
            join(
                [(0, Segment("hpcsampler", "title")), (1, Segment("no data yet", "notice"))],
                view.width,
                view.glyphs,
            )
        )
    )
    lines = [head, Line(), *body]
    if view.height is not None:
        lines += [Line()] * (view.height - len(lines) - 1)
        lines = [*lines[: max(view.height - 1, 0)], _footer(view, 0, 0, 0)][: view.height]
    return Frame(tuple(clip(line, view.width, view.glyphs) for line in lines))
