"""The stages of a rank's input pipeline as a small table: the slowest ones, in their order, the bottleneck marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import Glyphs, clean, fit, width
from .numbers import compact, inner, items, number, percent, size
from .style import Line, Segment

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 4
"""Stages that are shown: of the others there is nothing to fear."""
_LEAST_WAIT = 0.05
"""Where less of the time is waited for input, the stage with the lowest ceiling keeps nobody waiting."""
_NAME_CELLS = 32
_COLUMNS = (("ms each", 8), ("at once", 8), ("buffer", 9), ("out", 8), ("batches/s", 10))


def stage_lines(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """Nothing if the pipeline is unknown."""
    stages = [stage for stage in items(rank, "pipeline") if isinstance(stage, dict)]
    if not stages:
        return []
    slowest = sorted(range(len(stages)), key=lambda place: _ceiling(stages[place]))[:_MOST]
    title = fit(f"pipeline{_split(rank)}", _NAME_CELLS, glyphs)
    titles = title + "".join(fit(name, room, glyphs, right=True) for name, room in _COLUMNS)
    lines = [Line((Segment(titles, "quiet"),))]
    waited = (number(inner(rank, "phases"), "input") or 0.0) >= _LEAST_WAIT
    for place in sorted(slowest):
        stage = stages[place]
        lowest = stage.get("bottleneck") is True
        bottleneck = lowest and waited
        text = fit(
            f"{glyphs.cursor if bottleneck else ' '} {clean(stage.get('stage'), glyphs)} "
            f"{clean(stage.get('name'), glyphs)}",
            _NAME_CELLS, glyphs,
        )  # fmt: skip
        text += "".join(
            fit(value or glyphs.absent, room, glyphs, right=True)
            for value, (_, room) in zip(_values(stage), _COLUMNS, strict=True)
        )
        word = "  bottleneck" if bottleneck else "  lowest ceiling"
        marked = word if lowest and width(text + word) <= cells else ""  # the cursor says it, too
        style = "bold" if bottleneck else ""
        lines.append(Line((Segment(text, style), Segment(marked, style or "quiet"))))
    return [line for line in lines if line.cells <= cells] or []


def _ceiling(stage: Mapping[str, Any]) -> float:
    ceiling = number(stage, "ceiling_per_s")
    return float("inf") if ceiling is None else ceiling


def _values(stage: Mapping[str, Any]) -> list[str]:
    own, at_once, ceiling = (number(stage, key) for key in ("self_ms", "parallelism", "ceiling_per_s"))
    buffered, room, out = (number(stage, key) for key in ("buffered", "buffer_size", "bytes_per_s"))
    auto = " auto" if stage.get("autotuned") is True else ""
    held = f"{buffered or 0:.0f}" + ("" if room is None else f"/{room:.0f}")
    return [
        "" if own is None else compact(own),
        "" if at_once is None else f"{at_once:.0f}{auto}",
        held if buffered or room is not None else "",
        "" if out is None else f"{size(out)}/s",
        "" if ceiling is None else compact(ceiling),
    ]


def _split(rank: Mapping[str, Any]) -> str:
    fetch = number(inner(rank, "input_split"), "fetch")
    return "" if fetch is None else f"  fetch {percent(fetch)} prep {percent(1 - fetch)}"
