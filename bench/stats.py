"""Ratios with their intervals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Interval:
    """A median with the ends of its 95 % bootstrap interval."""

    middle: float
    low: float
    high: float


def bootstrap_median(values: Sequence[float], rounds: int = 4000, seed: int = 1) -> Interval:
    """The median of `values` and its 95 % percentile-bootstrap interval."""
    data = np.asarray(values)
    rng = np.random.default_rng(seed)
    medians = np.median(data[rng.integers(0, len(data), (rounds, len(data)))], axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return Interval(float(np.median(data)), float(low), float(high))


def interleaved(subjects: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run each subject `rounds` times, in turns and every other time in reverse, so that drift hits all alike."""
    results: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(rounds):
        names = list(subjects)
        for name in names if turn % 2 == 0 else reversed(names):
            results[name].append(subjects[name]())
    return results


def ratio(results: dict[str, list[float]], name: str, baseline: str) -> Interval:
    """How many times `baseline` one `name` is, paired by round."""
    return bootstrap_median([a / b for a, b in zip(results[name], results[baseline], strict=True)])


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
