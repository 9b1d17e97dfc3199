"""Rows of RESULTS.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement: what, the figure, against what, the budget, and whether it holds."""

    what: str
    measured: str
    baseline: str
    budget: str
    met: bool | None
    """None: there is no budget for it, or the interval is too wide to tell."""
    values: dict[str, float]
    """The numbers behind the text, for results.json."""


def within(low: float, high: float, budget: float) -> bool | None:
    """Whether an interval lies within a budget; None if it is so wide that it can't tell."""
    return None if high - low > 2 * budget else high <= budget


def markdown(rows: list[Row]) -> str:
    """The rows as a table."""
    lines = ["| what | measured | against | budget | met |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = "" if not row.budget else "can't tell" if row.met is None else "yes" if row.met else "**no**"
        lines.append(f"| {row.what} | {row.measured} | {row.baseline} | {row.budget} | {verdict} |")
    return "\n".join(lines)
