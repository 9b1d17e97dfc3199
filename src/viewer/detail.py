"""The selected rank or GPU in full sentences, for the space that the table leaves: the first line matters most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bars import shares_of
from .cells import Glyphs, clean, cut, width
from .header import join, legend
from .incidents import callback_lines, checkpoint_lines, straggler_lines, trace_lines
from .numbers import count, duration, fine_percent, inner, number, percent, size
from .stages import stage_lines
from .style import Line, Segment
from .words import LONG_OPEN_S, is_gone, phase_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .rows import Row

_MARK_CELLS = 24
"""Most of a mark's name that is shown."""
_LEAST_S = 0.05
"""Less of a phase rounds to nothing since attach."""


def detail_lines(row: Row, cells: int, glyphs: Glyphs) -> list[Line]:
    """Who it is, where its time went, whom it waits for; its process; why in detail; its GPU; the user's marks."""
    rank = row.rank
    lines = [
        *(_joined(_who(rank, glyphs), cells, glyphs) if rank else []),
        _totals(rank, cells, glyphs),
        *straggler_lines(rank, cells, glyphs),
        *_joined(_process(rank, glyphs), cells, glyphs),
        *_reasons(rank, cells, glyphs),
        *(_joined(_gpu(row.gpu, glyphs), cells, glyphs) if row.gpu else []),
        _marks(rank, cells, glyphs),
    ]
    return [line for line in lines if line.segments]


def _joined(parts: Sequence[Segment], cells: int, glyphs: Glyphs) -> list[Line]:
    return [Line(tuple(join(list(enumerate(parts)), cells, glyphs)))] if parts else []


def _reasons(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """What the time in each phase went to, the phase that took most since attach first.

    The window would be nearer, but then lines would change places while they are read.
    """
    of_phase = {
        "input": stage_lines, "callback": callback_lines, "compile": trace_lines, "checkpoint": checkpoint_lines,
    }
    spent = shares_of(rank.get("totals_s"))
    order = sorted(of_phase, key=lambda label: -spent.get(label, 0.0))
    return [line for label in order for line in of_phase[label](rank, cells, glyphs)]


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
    shown = {label: spent for label, spent in seconds.items() if spent >= _LEAST_S}
    return legend(
        title,
        {label: duration(spent) for label, spent in shown.items()},
        shown,
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
