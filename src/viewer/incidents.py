"""What of a rank has a record of its own, a line each: who waits for whom, callbacks, traces, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import Glyphs, clean, cut, fit
from .header import join
from .numbers import compact, count, duration, inner, items, number, percent, size
from .style import Line, Segment
from .words import phase_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TITLE_CELLS = 13
_NAME_CELLS = 44
"""Most of a name that is shown."""
_LEAST_SHARE = 0.005
"""Callbacks with less of the window round to nothing, and every Keras training has some."""


def straggler_lines(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """Which rank the others wait for, this one or another, and in what it spends more than they."""
    found = inner(rank, "straggler")
    blamed, late, waits, network = (
        number(found, key) for key in ("blamed_on_rank", "score", "wait_share", "network_share")
    )
    cause = clean(found.get("cause"), glyphs)
    more = f": it spends more in {phase_name(cause, glyphs)}" if cause else ""
    steady = found.get("steady") is True
    itself = "" if not late else f"late in {percent(late)} of collectives"
    if found.get("source") == "step time":  # nobody is seen to wait, only who needs longer for a step
        who = "this rank" if steady else "" if blamed is None else f"rank {blamed:.0f}"
        said = [f"{who} is slower than the others{more}", "by step times: no collective is seen"] if who else []
        return _line("straggler", said, cells, glyphs)
    if steady:
        said = [f"the others wait for this rank{more}", itself]
    elif waits is None:
        return []
    elif blamed is not None:
        said = [f"waits {percent(waits)}, longest for rank {blamed:.0f}{more}", itself and f"itself {itself}"]
    else:
        said = [f"none is steady, waits {percent(waits)} for whoever is last", itself and f"itself {itself}"]
    said.insert(1, "" if network is None else f"network {percent(network)}")
    return _line("straggler", said, cells, glyphs)


def callback_lines(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """The callbacks that took most of the window, by class and method."""
    said = []
    for called in items(rank, "callbacks"):
        name, share = _name(called, "name", glyphs), number(called, "share")
        if not name or share is None or share < _LEAST_SHARE:
            continue
        times, seconds = number(called, "count"), number(called, "seconds")
        text = f"{name} {percent(share)}"
        if times and seconds is not None:
            text += f", {count(times)} call{'' if times == 1 else 's'} of {compact(seconds / times * 1e3)} ms"
        said.append(text)
    return _line("callbacks", said, cells, glyphs)


def trace_lines(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """Functions that were traced again, with what changed; without any, how many were traced."""
    traces = inner(rank, "traces")
    said = []
    for again in items(traces, "worst"):
        name, times = _name(again, "function", glyphs), number(again, "count")
        if name and times:
            changed = clean(again.get("changed"), glyphs)
            said.append(f"{count(times)} of {name}" + (f": {changed}" if changed else ""))
    title = "retraces" if said else "traces"
    whole, seconds = number(traces, "count"), number(traces, "seconds")
    if whole is not None and seconds is not None:
        said.insert(1, f"{count(whole)} {'traces ' if said else ''}in all, {duration(seconds)}")
    last = inner(traces, "last")
    if title == "traces" and (name := _name(last, "function", glyphs)):
        took = number(last, "seconds")
        said.append(f"last {name}" + ("" if took is None else f", {compact(took * 1e3)} ms"))
    return _line(title, said, cells, glyphs)


def checkpoint_lines(rank: Mapping[str, Any], cells: int, glyphs: Glyphs) -> list[Line]:
    """How many, for how long the training stood still for them, and the last one."""
    checkpoints = inner(rank, "checkpoints")
    last = inner(checkpoints, "last")
    written, blocked, restored, inflation = (
        number(checkpoints, key) for key in ("count", "seconds", "restored", "step_inflation")
    )
    said = []
    if written:
        said.append(f"{count(written)} written" + ("" if blocked is None else f", {duration(blocked)} blocked"))
    if (age := number(last, "age_s")) is not None:
        said.append(f"{'restored' if last.get('restored') is True else 'last'} {duration(age)} ago")
    said += _last_size(last)
    if inflation is not None:
        more = round(max(-1.0, min(inflation, 999.0)) * 100)
        said.append(f"step time {more:+d} % during a background write")
    if last.get("background") is True:
        said += _background(last)
    if restored:
        said.append(f"{count(restored)} restored")
    if writer := _name(last, "writer", glyphs):
        said.append(f"by {writer}")
    said.append(cut(clean(last.get("path"), glyphs).rstrip("/").rpartition("/")[2], _NAME_CELLS, glyphs))
    return _line("checkpoints", said, cells, glyphs)


def _last_size(last: Mapping[str, Any]) -> list[str]:
    files, held, durable = (number(last, key) for key in ("files", "bytes", "durable_bytes_per_s"))
    said = []
    if held is not None:
        among = "" if files is None else " in 1 file" if files == 1 else f" in {count(files)} files"
        said.append(size(held) + among)
    return said if durable is None else [*said, f"{size(durable)}/s durable"]


def _background(last: Mapping[str, Any]) -> list[str]:
    """The bandwidth that the training saw is another one than the durable one only here."""
    seconds, apparent = number(last, "background_s"), number(last, "apparent_bytes_per_s")
    said = ["in the background" + ("" if seconds is None else f" for {duration(seconds)}")]
    return said if apparent is None else [*said, f"{size(apparent)}/s apparent"]


def _name(record: object, key: str, glyphs: Glyphs) -> str:
    return cut(clean(record.get(key), glyphs).strip(), _NAME_CELLS, glyphs) if isinstance(record, dict) else ""


def _line(title: str, said: Sequence[str], cells: int, glyphs: Glyphs) -> list[Line]:
    """The first is kept longest; nothing if there is nothing to say."""
    parts = [(float(at), Segment(text)) for at, text in enumerate(said) if text]
    if not parts:
        return []
    return [Line((Segment(fit(title, _TITLE_CELLS, glyphs), "quiet"), *join(parts, cells - _TITLE_CELLS, glyphs)))]
