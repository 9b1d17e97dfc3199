"""The daemon's findings as messages: of one kind, that of the rank it is worst for stands for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import Glyphs, clean
from .numbers import inner, items, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..protocol.snapshot import Snapshot

_STYLES = {"high": "bad", "medium": "middle", "info": "info"}
_ORDER = {severity: at for at, severity in enumerate(_STYLES)}


def finding_lines(snapshot: Snapshot, glyphs: Glyphs) -> list[tuple[str, str]]:
    """`(sentence, style)`, the gravest first: who, what, and what to change."""
    by_code: dict[str, list[Mapping[str, Any]]] = {}
    for finding in items(snapshot, "findings"):
        if isinstance(finding, dict) and finding.get("severity") in _STYLES:
            by_code.setdefault(str(finding.get("code")), []).append(finding)
    worst = {code: min(found, key=_rank_order) for code, found in by_code.items()}
    ranks = [rank for rank in items(snapshot, "ranks") if isinstance(rank, dict)]
    jobs = {str(rank.get("rank_key")): clean(rank.get("job"), glyphs) for rank in ranks}
    lines = []
    for code in sorted(worst, key=lambda code: _ORDER[worst[code]["severity"]]):
        finding, others = worst[code], len(by_code[code]) - 1
        who = _who(finding, jobs, glyphs)
        if others:
            who += f" (and {others} more)"
        text = f"{who}: {clean(finding.get('text'), glyphs)}"
        if advice := clean(finding.get("advice"), glyphs):
            text += f" {glyphs.advice} {advice}"
        lines.append((text, _STYLES[finding["severity"]]))
    return lines


def _rank_order(finding: Mapping[str, Any]) -> tuple[int, float]:
    """Gravest first, then by how much of the time it costs."""
    return _ORDER[finding["severity"]], -(number(inner(finding, "evidence"), "share") or 0.0)


def _who(finding: Mapping[str, Any], jobs: Mapping[str, str], glyphs: Glyphs) -> str:
    """The rank, and its job where there are several: each may have a rank of that number."""
    rank, job = number(finding, "rank"), jobs.get(str(finding.get("rank_key")))
    of = f" of {job}" if job and len(set(jobs.values())) > 1 else ""
    return "rank " + (glyphs.absent if rank is None else f"{rank:.0f}") + of
