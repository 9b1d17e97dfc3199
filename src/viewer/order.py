"""The orders that rows can be put in."""

from __future__ import annotations

SORTS = ("gpu", "rank", "stall", "rate", "goodput", "util")
"""By place (GPU index, then rank; or rank), or by a number with the worst first."""
