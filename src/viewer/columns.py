"""The columns of the table: what each shows, how wide it is, and which give way when the screen is narrow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from .bars import stacked_bar, trend
from .cells import Glyphs, clean, cut, width
from .history import BUCKET_S, History
from .numbers import compact, count, duration, fine_percent, inner, number, percent, short_duration, size
from .style import Segment, level
from .words import cause_cell, is_lossy, state_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .rows import Row


@dataclass(frozen=True, slots=True)
class Sight:
    """What a cell needs to know beside its row."""

    glyphs: Glyphs
    window_s: float | None
    history: History | None
    until: int
    """The newest bucket of the history that is shown."""
    old: bool
    """Whether the snapshot itself is old, and with it what it says of GPUs."""


Cell = tuple[Segment, ...]

_ROOMY = 150
"""Cells of a table in which causes seldom need to be cut."""
_TIGHT = 100
"""Cells of a table in which the bar comes before lesser columns, or where the cause stands beside it, gives way."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `importance`: the lower, the longer it stays on a screen that gets narrower."""

    title: str
    importance: float
    least: int
    cell: Callable[[Row, Sight, int], Cell]
    most: int = 0
    """Cells that it can make use of; 0 is: its least, no more."""
    right: bool = True


def _plain(text: Callable[[Row, Sight], str | None]) -> Callable[[Row, Sight, int], Cell]:
    """A cell of one text; None is absent."""

    def cell(row: Row, sight: Sight, _cells: int) -> Cell:
        said = text(row, sight)
        return (
            Segment(sight.glyphs.absent, "quiet")
            if said is None
            else Segment(said, "old" if row.faded else ""),
        )

    return cell


def _plain_gpu(text: Callable[[Row], str | None]) -> Callable[[Row, Sight, int], Cell]:
    """A cell of one text on the GPU, whatever became of its rank."""

    def cell(row: Row, sight: Sight, _cells: int) -> Cell:
        said = text(row)
        if said is None:
            return (Segment(sight.glyphs.absent, "quiet"),)
        return (Segment(said, "old" if sight.old else ""),)

    return cell


def _of_gpu(key: str, show: Callable[[float], str]) -> Callable[[Row, Sight, int], Cell]:
    def text(row: Row) -> str | None:
        value = number(row.gpu, key)
        return None if value is None else show(value)

    return _plain_gpu(text)


def _of_rank(key: str, show: Callable[[float], str]) -> Callable[[Row, Sight, int], Cell]:
    def text(row: Row, _sight: Sight) -> str | None:
        value = number(row.rank, key)
        return None if value is None else show(value)

    return _plain(text)


def _of_cpu(key: str, show: Callable[[float], str]) -> Callable[[Row, Sight, int], Cell]:
    def text(row: Row, _sight: Sight) -> str | None:
        value = number(inner(row.rank, "cpu"), key)
        return None if value is None else show(value)

    return _plain(text)


def _name(row: Row, sight: Sight) -> str | None:
    return clean(row.rank.get("job"), sight.glyphs) or None


def _utilization(row: Row, sight: Sight, _cells: int) -> Cell:
    value = number(row.gpu, "utilization")
    if value is None:
        return (Segment(sight.glyphs.absent, "quiet"),)
    return (Segment(percent(value), "old" if sight.old else level(value)),)


def _state(row: Row, sight: Sight, _cells: int) -> Cell:
    if not row.rank:
        return (Segment("no rank", "quiet"),)
    return (Segment(*state_cell(row.rank, row.age_s, sight.glyphs)),)


def _goodput(row: Row, sight: Sight, _cells: int) -> Cell:
    value = number(row.rank, "goodput")
    if value is None:
        return (Segment(sight.glyphs.absent, "quiet"),)
    return (
        Segment(
            percent(value),
            "old" if row.faded else "" if row.rank.get("state") == "starting" else level(value),
        ),
    )


def _bar(row: Row, _sight: Sight, cells: int) -> Cell:
    return stacked_bar(row.shares, cells, faded=row.faded)


def cause(row: Row, sight: Sight, cells: int) -> Cell:
    """The cause in words, cut to `cells`."""
    if not row.rank:
        said = clean(row.gpu.get("error"), sight.glyphs)
        text, style = (f"no numbers: {said}", "bad") if said else ("no training uses this GPU", "quiet")
    else:
        text, style = cause_cell(row.rank, sight.glyphs)
    return (Segment(cut(text, cells, sight.glyphs), "old" if row.old else style),)


def trend_cell(row: Row, sight: Sight, cells: int) -> Cell:
    """The stalled share of the last minutes, one character for each `BUCKET_S`: little ink is good."""
    key = row.rank.get("rank_key")
    if sight.history is None or not isinstance(key, str):
        return ()
    values = sight.history.series(key, cells, sight.until)
    stalled = [None if value is None else 1 - value for value in values]
    drawn = zip(values, trend(stalled, sight.glyphs), strict=True)
    runs = groupby(drawn, key=lambda pair: "" if pair[0] is None else "old" if row.faded else level(pair[0]))
    return tuple(Segment("".join(character for _, character in run), style) for style, run in runs)


def _step_times(row: Row, _sight: Sight) -> str | None:
    times = inner(row.rank, "step_ms")
    middle, tail = number(times, "p50"), number(times, "p99")
    return None if middle is None or tail is None else f"{compact(middle)}/{compact(tail)}"


def _memory(row: Row) -> str | None:
    used, total = number(row.gpu, "memory_used_bytes"), number(row.gpu, "memory_total_bytes")
    if used is None:
        return None
    return size(used) + (f"/{size(total)}" if total is not None else "")


def _power(row: Row) -> str | None:
    used, limit = number(row.gpu, "power_w"), number(row.gpu, "power_limit_w")
    if used is None:
        return None
    return f"{used:.0f}" + (f"/{limit:.0f}W" if limit is not None else "W")


def _total(value: float) -> str:
    return count(value) if value < 1e9 else compact(value)  # noqa: PLR2004 - what the column holds


def _age(row: Row, _sight: Sight) -> str | None:
    return short_duration(row.age_s) if row.rank else None


def columns_for(rows: Sequence[Row], sight: Sight, cells: int, *, two_lines: bool) -> list[Column]:
    """The columns that these rows have something to show in, for a table of `cells`.

    In two lines, cause and trend stand below the bar. The bar is what people look at: the wider the screen,
    the more of it no other column may take.
    """
    window = "the window" if sight.window_s is None else f"the last {duration(sight.window_s)}"
    any_gpu = any(row.gpu for row in rows)
    any_rank = any(row.rank for row in rows)
    jobs = {clean(row.rank.get("job"), sight.glyphs) for row in rows if row.rank}
    lossy = any(is_lossy(row.rank) for row in rows)
    job_cells = max(map(width, jobs), default=0)
    rank_cells = max((len(f"{number(row.rank, 'rank') or 0:.0f}") for row in rows), default=1)
    tight = cells < _TIGHT
    part = (0.31 if tight else 0.25) if two_lines else (0.17 if tight else 0.2)
    bar = min(max(int(cells * part), 12), 40)
    gpu = [Column("GPU", 0, 3, _of_gpu("index", "{:.0f}".format))]
    rank = [
        Column("rank", 1, max(4, min(rank_cells, 7)), _of_rank("rank", "{:.0f}".format)),
        Column(
            "job",
            6.5 if len(jobs) > 1 else 21,
            min(8, max(3, job_cells)),
            _plain(_name),
            job_cells,
            right=False,
        ),
    ]
    state = [Column("state", 3, 10, _state, right=False)]
    load = [Column("util", 2, 5, _utilization)] if any_gpu else []
    load += (
        [Column("CPU", 19 if any_gpu else 2, 7, _of_cpu("percent", "{:.0f} %".format))] if any_rank else []
    )
    stalls = [Column(f"where {window} went", 4, bar, _bar, 100, right=False)]
    least = 20 if tight else 26 if cells < _ROOMY else 42
    reason = [] if two_lines else [Column("top cause", 6, least, cause, 60, right=False)]
    pace = [
        Column("steps/s", 5, 7, _of_rank("steps_per_s", compact)),
        Column("p50/p99 ms", 7, 11, _plain(_step_times)),
        Column("goodput", 4.5, 7, _goodput),
    ]
    course = (
        [] if two_lines or sight.history is None else [Column("trend", 12, 10, trend_cell, 48, right=False)]
    )
    progress = [Column("step", 14, 11, _of_rank("step", _total))]
    board = [
        Column("memory", 9, 11, _plain_gpu(_memory)),
        Column("power", 10, 10, _plain_gpu(_power)),
        Column("temp", 15, 5, _of_gpu("temperature_c", lambda value: f"{value:.0f} C")),
        Column("SM MHz", 22, 6, _of_gpu("sm_clock_mhz", "{:.0f}".format)),
    ]
    process = [
        Column("RSS", 17, 6, _of_cpu("rss_bytes", size)),
        Column("read/s", 18, 6, _of_cpu("read_bytes_per_s", size)),
    ]
    trust = [
        Column("age", 16, 5, _plain(_age)),
        Column("dropped", 12.5 if lossy else 20, 11, _of_rank("dropped", _total)),
        Column("covered", 12.6 if lossy else 20, 7, _of_rank("coverage", percent)),
        Column("sampler", 13, 7, _of_rank("overhead", fine_percent)),
        Column("pid", 23, 8, _of_rank("pid", "{:.0f}".format)),
    ]
    shown = (gpu if any_gpu else []) + (rank if any_rank else []) + state + load + stalls + reason
    if any_rank:
        shown += pace + course + progress
    return shown + (board if any_gpu else []) + (process + trust if any_rank else [])


def trend_span(cells: int) -> str:
    """How far back a trend of `cells` goes."""
    return duration(cells * BUCKET_S)


def choose(columns: Sequence[Column], cells: int, gap: int) -> list[tuple[Column, int]]:
    """The columns that fit `cells`, the most important ones first to be kept, each with its width.

    What is left over goes to the columns that can use it, evenly in proportion to what they still want.
    """
    kept: set[int] = set()
    used = -gap
    for at in sorted(range(len(columns)), key=lambda at: columns[at].importance):
        if used + gap + columns[at].least <= cells:
            used += gap + columns[at].least
            kept.add(at)
        elif columns[at].importance <= 4:  # noqa: PLR2004 - nothing less important may take the place of these
            break
    chosen = [columns[at] for at in sorted(kept)]
    wants = [max(column.most - column.least, 0) for column in chosen]
    spare, wanted = max(cells - used, 0), sum(wants)
    given = [want if wanted <= spare else want * spare // wanted for want in wants]
    rest = min(spare, wanted) - sum(given)
    widths = []
    for column, more, want in zip(chosen, given, wants, strict=True):
        extra = min(rest, want - more)
        rest -= extra
        widths.append(column.least + more + extra)
    return list(zip(chosen, widths, strict=True))
