"""The lines above the table.

The node, the daemon, and where the time of all ranks went (which is the legend too).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from .bars import letter_of, mean_shares, shares_of, style_of
from .cells import Glyphs, clean, cut, width
from .numbers import compact, count, duration, fine_percent, inner, items, number, percent, size
from .style import Line, Segment
from .words import OLD_S, is_gone, phase_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..protocol.snapshot import Snapshot

_TIME_OF_DAY = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)\Z")
_RANK_STATES = ("killed", "stalled", "starting", "exited")
"""States worth counting in the header, as they are not what a rank should be in."""
_PRESSURE = ("cpu", "io", "memory")
"""The kernel's pressure stall information: in which share of the time some task waited for what."""


def join(parts: Sequence[tuple[float, Segment]], cells: int, glyphs: Glyphs) -> list[Segment]:
    """Parts with dots between, in their order.

    Where they don't fit, the least important (highest number) go first.
    """
    between = Segment(f" {glyphs.dot} ", "quiet")
    kept = list(parts)
    while len(kept) > 1 and sum(width(part.text) for _, part in kept) + 3 * (len(kept) - 1) > cells:
        kept.remove(max(kept, key=lambda pair: pair[0]))
    joined: list[Segment] = []
    for _, part in kept:
        joined += [between, part] if joined else [part]
    if len(joined) == 1:
        return [Segment(cut(joined[0].text, cells, glyphs), joined[0].style)]
    return joined


def title_line(snapshot: Snapshot, cells: int, glyphs: Glyphs, *, age_s: float, paused: bool) -> Line:
    """Which node, when, how many, and at the right end whether it is live."""
    status = _status(age_s, paused=paused)
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    gpus = items(snapshot, "gpus")
    stamp = clean(snapshot.get("time"), glyphs)
    matched = _TIME_OF_DAY.match(stamp)
    window = number(snapshot, "window_s")
    jobs = sorted({clean(rank.get("job"), glyphs) for rank in ranks} - {""})
    states = Counter(clean(rank.get("state"), glyphs) for rank in ranks)
    apart = ", ".join(f"{states[state]} {state}" for state in _RANK_STATES if states[state])
    parts = [
        (0.0, Segment("hpcsampler", "title")),
        (1.0, Segment(clean(snapshot.get("node"), glyphs) or glyphs.absent, "bold")),
    ]
    if stamp:
        parts.append((5, Segment(f"{matched[1]} UTC" if matched else stamp)))
    parts.append((3, Segment(_plural(len(gpus), "GPU") if gpus else "no GPU")))
    parts.append((2, Segment(_plural(len(ranks), "rank"))))
    if apart:
        parts.append((2.5, Segment(apart, "middle")))
    if len(jobs) == 1:
        parts.append((4, Segment(f"job {cut(jobs[0], 32, glyphs)}")))
    elif jobs:
        parts.append((6, Segment(f"{len(jobs)} jobs")))
    if window is not None:
        parts.append((7, Segment(f"last {duration(window)}")))
    return _ends(join(parts, cells - width(status.text) - 2, glyphs), status, cells, glyphs)


def _status(age_s: float, *, paused: bool) -> Segment:
    if paused:
        return Segment(f" PAUSED {duration(age_s)} ago ", "notice")
    if age_s > OLD_S:
        return Segment(f" OLD {duration(age_s)} ", "alarm")
    return Segment(f"data {duration(age_s)} old", "good")


def _ends(left: Sequence[Segment], right: Segment, cells: int, glyphs: Glyphs) -> Line:
    """`left` and `right` at the two ends of the line; `right` is never given up."""
    kept, room = [], cells - width(right.text)
    for segment in left:
        if room <= 0:
            break
        text = cut(segment.text, room, glyphs)
        kept.append(Segment(text, segment.style))
        room -= width(text)
    return Line((*kept, Segment(" " * max(room, 0)), right))


def node_line(snapshot: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    """What the node, the daemon and the sampler themselves are doing."""
    host, daemon = inner(snapshot, "host"), inner(snapshot, "daemon")
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    parts: list[tuple[float, Segment]] = []
    busy, cores = number(host, "cpu_percent"), number(host, "cpu_count")
    if busy is not None:
        of = f" of {cores:.0f} cores" if cores is not None else ""
        parts.append((0, Segment(f"host CPU {busy:.0f} %{of}")))
    if (load := number(host, "load_1m")) is not None:
        parts.append((5, Segment(f"load {compact(load)}")))
    used, total = number(host, "memory_used_bytes"), number(host, "memory_total_bytes")
    if used is not None:
        parts.append((4, Segment(f"memory {size(used)}" + (f"/{size(total)}" if total is not None else ""))))
    parts += [(importance, Segment(text, style)) for importance, text, style in _stopped(host)]
    parts.append((2, Segment(_daemon(daemon, glyphs))))
    overheads = [
        value for rank in ranks if not is_gone(rank) and (value := number(rank, "overhead")) is not None
    ]
    if overheads:
        parts.append(
            (3, Segment("sampler " + ("up to " if len(overheads) > 1 else "") + fine_percent(max(overheads))))
        )
    drops = [value for rank in ranks if (value := number(rank, "dropped")) is not None]
    if drops:
        lost = sum(drops)
        parts.append((1, Segment(f"{count(lost)} dropped", "bad") if lost else Segment("0 dropped")))
    return Line(tuple(join(parts, cells, glyphs)))


def _stopped(host: Mapping[str, Any]) -> list[tuple[float, str, str]]:
    """(importance, text, style) of what keeps the node's tasks from running: limits that they hit, and pressure."""
    told: list[tuple[float, str, str]] = []
    if throttled := number(inner(host, "cgroup"), "throttled"):
        told.append((1.5, f"CPU limit hit in {percent(throttled)} of periods", "bad"))
    psi = inner(host, "psi")
    if pressure := [f"{name} {percent(share)}" for name in _PRESSURE if (share := number(psi, name)) is not None]:
        told.append((6, f"pressure {', '.join(pressure)}", ""))
    return told


def _daemon(daemon: Mapping[str, Any], glyphs: Glyphs) -> str:
    cost = []
    if (busy := number(daemon, "cpu_percent")) is not None:
        cost.append(f"{busy:.1f} % CPU")
    if (resident := number(daemon, "rss_bytes")) is not None:
        cost.append(size(resident))
    name = f"daemon {clean(daemon.get('version'), glyphs)}".strip()
    return name + (f" ({', '.join(cost)})" if cost else "")


def legend_line(snapshot: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    """The phases of all bars, the largest first, with their letters and mean shares over the ranks that live.

    A phase that only a rank that ended was in has a letter, as its bar is still there, but no share.
    """
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    living = [rank for rank in ranks if not is_gone(rank)] or ranks
    shares = mean_shares(shares_of(rank.get("phases")) for rank in living)
    words = {label: percent(shares[label]) for label in shares}
    for rank in ranks:
        for label in shares_of(rank.get("phases")):
            shares.setdefault(label, 0.0)
    return legend(
        "all ranks" if len(living) > 1 else "time",
        words,
        shares,
        cells,
        glyphs,
    )


def legend(
    title: str,
    words: Mapping[str, str],
    shares: Mapping[str, float],
    cells: int,
    glyphs: Glyphs,
    *,
    names_first: bool = True,
) -> Line:
    """Letters, names and words of phases, the largest share first, as many as fit.

    `names_first`: where room is short, first the title and then words go before names, as a bar can't be read without
    its letters.
    """
    if not shares:
        return Line()
    labels = sorted(shares, key=lambda label: -shares[label])
    named = {label: f" {phase_name(label, glyphs)}" for label in labels}
    full = {label: f"{named[label]} {words.get(label, '')}".rstrip() for label in labels}
    roomy = width(title) + sum(5 + width(full[label]) for label in labels) <= cells
    least = named if names_first else full
    if names_first and width(title) + sum(3 + width(least[label]) for label in labels) > cells:
        title = ""
    room = cells - width(title) + (0 if title else 2)
    fitting = []
    for label in labels:
        room -= (5 if roomy else 3) + width(least[label])
        if room < 0:
            break
        fitting.append(label)
    room = max(room, 0) if len(fitting) == len(labels) else 0
    line = [Segment(title, "quiet")]
    for label in fitting:
        room -= width(full[label]) - width(least[label])
        letter = f" {letter_of(label)} " if roomy else letter_of(label)
        line += [
            Segment("  " if line[-1].text else ""),
            Segment(letter, style_of(label)),
            Segment(full[label] if room >= 0 else least[label]),
        ]
    return Line(tuple(line))


def _plural(value: int, name: str) -> str:
    return f"{value} {name}" if value == 1 else f"{value} {name}s"
