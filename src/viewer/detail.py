"""The selected rank or GPU in full sentences, for the space that the table leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bars import shares_of
from .cells import Glyphs, clean
from .header import join, legend
from .numbers import count, duration, fine_percent, inner, number, percent, size
from .stages import stage_lines
from .style import Line, Segment
from .words import LONG_OPEN_S, is_gone, phase_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .rows import Row


def detail_lines(row: Row, cells: int, glyphs: Glyphs) -> list[Line]:
    """Who it is; where its time since attach went; what its process does; its input pipeline."""
    parts = [_who(row.rank, glyphs), _process(row.rank, glyphs)] if row.rank else []
    if row.gpu:
        parts.append(_gpu(row.gpu, glyphs))
    lines = [Line(tuple(join(list(enumerate(part)), cells, glyphs))) for part in parts if part]
    totals = _totals(row.rank, cells, glyphs)
    stages = stage_lines(row.rank, cells, glyphs)
    return [*lines[:1], *([totals] if totals.segments else []), *lines[1:], *stages]


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
    title = f"since attach {duration(sum(seconds.values()))}"
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
    marks = inner(rank, "marks")
    lasts = ((name, number(marks[name], "last")) for name in marks)
    said += [f"mark {clean(name, glyphs)} {last:g}" for name, last in lasts if last is not None]
    return [Segment(text) for text in said]


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
