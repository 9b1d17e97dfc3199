"""The selected rank or GPU in full sentences, for the space that the table leaves: the first line matters most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bars import shares_of
from .cells import Glyphs, clean, cut, width
from .header import join, legend
from .numbers import count, duration, fine_percent, inner, number, percent, size
from .stages import stage_lines
from .style import Line, Segment
from .words import LONG_OPEN_S, is_gone, phase_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .rows import Row

_MARK_CELLS = 24
"""Most of a mark's name that is shown."""


def detail_lines(row: Row, cells: int, glyphs: Glyphs) -> list[Line]:
    """Who it is; where its time since attach went; what its process does; its input pipeline; the user's marks."""
    parts = [_who(row.rank, glyphs), _process(row.rank, glyphs)] if row.rank else []
    if row.gpu:
        parts.append(_gpu(row.gpu, glyphs))
    lines = [Line(tuple(join(list(enumerate(part)), cells, glyphs))) for part in parts if part]
    totals = _totals(row.rank, cells, glyphs)
    if totals.segments:
        lines.insert(1, totals)
    lines += stage_lines(row.rank, cells, glyphs)
    marks = _marks(row.rank, cells, glyphs)
    return [*lines, marks] if marks.segments else lines


def _who(rank: Mapping[str, Any], glyphs: Glyphs) -> list[Segment]:
    place, world = number(rank, "rank"), number(rank, "world_size")
    name = (
        "rank " + (glyphs.absent if place is None else f"{place:.0f}") + (f" of {world:.0f}" if world else "")
    )
    said = [Segment(name, "bold")]
    for key, prefix in (("job", "job "), ("program", ""), ("framework", "")):
        if text := clean(rank.get(key), glyphs):
            said.append(Segment(prefix + text))
    if (pid := number(rank, "pid")) is not None:
        said.append(Segment(f"pid {pid:.0f}"))
    if (steps := number(rank, "step")) is not None:
        said.append(Segment(f"{count(steps)} steps"))
    if steps := number(rank, "evaluation_steps"):
        said.append(Segment(f"{count(steps)} validation steps"))
    return said


def _totals(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> Line:
    seconds = shares_of(rank.get("totals_s"))
    since = "since attach" if number(rank, "known_since_s") is None else "known for"
    title = f"{since} {duration(sum(seconds.values()))}"
    return legend(
        title,
        {label: duration(seconds[label]) for label in seconds},
        seconds,
        cells,
        glyphs,
        names_first=False,
    )


def _process(rank: Mapping[str, Any], glyphs: Glyphs) -> list[Segment]:
    cpu, opened = inner(rank, "cpu"), inner(rank, "open_phase")
    said = []
    if opened and not is_gone(rank):
        since = number(opened, "since_s")
        lasting = f" for {duration(since)}" if since is not None and since >= LONG_OPEN_S else ""
        said.append(f"now in {phase_name(opened.get('phase'), glyphs)}{lasting}")
    if (busy := number(cpu, "percent")) is not None:
        said.append(f"CPU {busy:.0f} %")
    if (delay := number(cpu, "run_delay")) is not None:
        said.append(f"waits for a core {percent(delay)}")
    for key, words in (
        ("rss_bytes", "RSS {}"),
        ("read_bytes_per_s", "reads {}/s"),
        ("write_bytes_per_s", "writes {}/s"),
    ):
        if (value := number(cpu, key)) is not None:
            said.append(words.format(size(value)))
    if (events := number(rank, "events")) is not None:
        said.append(f"{count(events)} events")
    if (overhead := number(rank, "overhead")) is not None:
        said.append(f"sampler {fine_percent(overhead)}")
    return [Segment(text) for text in said]


def _marks(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> Line:
    """The user's marks with their last values, those that come most often first, as many as fit."""
    marks = inner(rank, "marks")
    known = [name for name in marks if number(marks[name], "last") is not None]
    known.sort(key=lambda name: -(number(marks[name], "count") or 0))  # a sort keeps equals in their order
    texts = [f"{cut(clean(name, glyphs), _MARK_CELLS, glyphs)} {marks[name]['last']:g}" for name in known]
    room = cells - sum(width(text) for text in ("marks", *texts)) - 2 * len(texts)
    hidden = 0
    while texts and room < 0:
        hidden += 1
        more = f"({hidden} more)"
        del texts[-1]
        room = cells - sum(width(text) for text in ("marks", *texts, more)) - 2 * (len(texts) + 1)
    if not known:
        return Line()
    line = [Segment("marks", "quiet"), *[Segment(f"  {text}") for text in texts]]
    return Line((*line, Segment(f"  ({hidden} more)", "quiet")) if hidden else tuple(line))


def _gpu(gpu: Mapping[str, Any], glyphs: Glyphs) -> list[Segment]:
    index = number(gpu, "index")
    said = [Segment("GPU " + (glyphs.absent if index is None else f"{index:.0f}"), "bold")]
    said += [Segment(text) for key in ("name", "uuid") if (text := clean(gpu.get(key), glyphs))]
    if (degrees := number(gpu, "temperature_c")) is not None:
        said.append(Segment(f"{degrees:.0f} C"))
    for key, words in (("sm_clock_mhz", "SM {:.0f} MHz"), ("memory_clock_mhz", "memory {:.0f} MHz")):
        if (value := number(gpu, key)) is not None:
            said.append(Segment(words.format(value)))
    return said
