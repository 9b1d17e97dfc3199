"""Which rank the others wait for, from when each arrived at the collectives that they met in. Pure functions.

All leave a collective together, so its duration says who waited and nothing of who was late: arrivals are compared, not
durations. The last to arrive is the straggler, and each other rank's wait until then is charged to it; the rest of the
time in the collective is the network's.

Of a rank it is said that it *is* a straggler only if it is one steadily (`verdicts`), for on a busy machine somebody is
always the last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STEADY_SHARE: Final = 0.6
"""Late in at least so many of the collectives, in each half of the window: chance alone makes one of two equal ranks
late beyond the noise (a standard deviation) in 16 % of them."""
LEAST_MEETINGS: Final = 8
LEAST_SPAN_S: Final = 3.0
"""Of fewer collectives, or of less time, nothing is said."""
LEAST_LATE_S: Final = 0.001
LEAST_LATE_OF_STEP: Final = 0.05
"""Being late by less is no lateness, whatever the noise: it costs the others less than this share of a step."""
MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution ÷ its median absolute deviation (Rousseeuw and Croux 1993)."""
SLACK_NS: Final = 1_000_000
LOCKSTEP: Final = 1.05
"""Ranks whose steps take as long as each other's, but for this factor, keep step: something makes them wait."""
LEAST_BEHIND: Final = 0.1
"""Without collectives: slower than the others by at least this share of a step."""
WAITS: Final = frozenset({"collective"})
HIDES_WAITS: Final = frozenset({"collective", "step", "device", "evaluation"})
"""Phases in which a rank may wait for others unseen, where its collectives can't be seen."""
NO_CAUSE: Final = WAITS | {"startup"}


@dataclass(frozen=True, slots=True)
class Attendance:
    """One rank's part in a collective, in ns of the node's clock."""

    before_ns: int
    """When it had left its last collective before this one; 0 if that is not known."""
    arrived_ns: int
    left_ns: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective and the ranks that met in it."""

    place: tuple[int, int]
    """Which of the program's collectives: group and place."""
    ranks: Mapping[int, Attendance]
    whole: bool
    """All members are here; else some are on other nodes."""

    last: int = field(init=False)
    """The rank that arrived last."""
    met_ns: int = field(init=False)
    """When it did."""
    waits_ns: Mapping[int, int] = field(init=False)
    """How long each rank waited for it."""
    late_ns: Mapping[int, float] | None = field(init=False)
    """How late each rank was of its own doing; None if that is not known of all."""

    def __post_init__(self) -> None:
        """Work out once what each look at the window asks again."""
        last = max(self.ranks, key=lambda rank: self.ranks[rank].arrived_ns)
        met_ns = self.ranks[last].arrived_ns
        waits_ns = {
            rank: max(0, min(met_ns, part.left_ns) - part.arrived_ns) for rank, part in self.ranks.items()
        }
        for name, value in (
            ("last", last), ("met_ns", met_ns), ("waits_ns", waits_ns), ("late_ns", _lateness_ns(self.ranks)),
        ):
            object.__setattr__(self, name, value)

    @property
    def possible(self) -> bool:
        """Nobody leaves before all have arrived: where somebody did, these are not one collective."""
        return self.met_ns <= min(part.left_ns for part in self.ranks.values()) + SLACK_NS


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one rank."""

    score: float
    """Share of the collectives in which it was late beyond the noise; without collectives, 1 or 0."""
    steady: bool
    """It is a steady straggler."""
    waited: float | None = None
    """Part of its time in collectives in which it waited for a rank that had not arrived; None if not known."""
    network: float | None = None
    """The rest of that time; None also where a rank of another node may have been waited for."""
    blamed: int | None = None
    """The steady straggler that it waited for most."""


def verdicts(meetings: Sequence[Meeting], step_s: float) -> dict[int, Verdict]:
    """Judge each rank by the collectives of a window; empty if they are too few.

    step_s: how long a step takes; 0 if that is not known.

    How late a rank is: its arrival after the median of the others', but not more than it worked longer than they since
    it left the collective before: who is let go last by the network arrives last, and is no straggler. The noise is the
    median absolute deviation of that from each rank's own median, as a standard deviation. A rank is late in a
    collective if it is later than the noise, a millisecond and a twentieth of a step; it is a steady straggler if it is
    late in `STEADY_SHARE` of the collectives, in both halves of the window, and on average. Only one of the step's
    collectives is looked at for this, the one that ranks wait longest in: right behind it all arrive together.
    """
    meetings = sorted(meetings, key=attrgetter("met_ns"))
    decisive = _decisive(meetings)
    late_ns = [meeting.late_ns for meeting in decisive if meeting.late_ns is not None]
    if len(late_ns) < LEAST_MEETINGS or decisive[-1].met_ns - decisive[0].met_ns < LEAST_SPAN_S * 1e9:
        return {}
    floor_ns = max(_noise_ns(late_ns), LEAST_LATE_S * 1e9, LEAST_LATE_OF_STEP * step_s * 1e9)
    half = len(late_ns) // 2
    waits = _waits_ns(meetings)
    scores: dict[int, float] = {}
    steady: dict[int, bool] = {}
    for rank in waits:
        own = [late[rank] for late in late_ns if rank in late]
        scores[rank] = _share(own, floor_ns)
        steady[rank] = (
            _share(own, floor_ns) >= STEADY_SHARE
            and all(_share([late[rank] for late in part if rank in late], floor_ns) >= STEADY_SHARE
                    for part in (late_ns[:half], late_ns[half:]))
            and sum(own) > floor_ns * len(own)
        )
    whole = all(meeting.whole for meeting in meetings)
    found = {}
    for rank, (inside_ns, charged_ns) in waits.items():
        waited = sum(charged_ns.values()) / inside_ns if inside_ns else 0.0
        most = max(charged_ns, key=charged_ns.__getitem__, default=None)
        found[rank] = Verdict(
            scores[rank], steady[rank], waited, 1 - waited if whole else None,
            most if most is not None and steady[most] and not steady[rank] else None,
        )
    return found


def verdicts_by_step_time(seconds: Mapping[int, Mapping[str, float]]) -> dict[int, Verdict]:
    """Judge ranks of which no collective can be seen, by what a step takes them; empty if that says nothing.

    seconds: of each rank, seconds per step by phase.

    Ranks whose steps take equally long keep step. The one that is waited for is then the one that has most to do apart
    from the phases in which waiting may be hidden: a rank that computes more slowly inside its step can't be found
    so. Ranks that don't keep step are compared by their whole step.
    """
    if len(seconds) < 2:  # noqa: PLR2004 - nobody to compare with
        return {}
    whole = {rank: sum(phases.values()) for rank, phases in seconds.items()}
    least, most = min(whole.values()), max(whole.values())
    if least <= 0:
        return {}
    hidden = HIDES_WAITS if most <= LOCKSTEP * least else WAITS
    own = {
        rank: sum(spent for phase, spent in phases.items() if phase not in hidden) for rank, phases in seconds.items()
    }
    slowest = max(own, key=own.__getitem__)
    behind = own[slowest] - median(spent for rank, spent in own.items() if rank != slowest)
    blamed = slowest if behind >= LEAST_BEHIND * median(whole.values()) else None
    return {
        rank: Verdict(float(rank == blamed), rank == blamed, blamed=None if rank == blamed else blamed)
        for rank in seconds
    }


def cause(rank: int, seconds: Mapping[int, Mapping[str, float]]) -> str | None:
    """The phase in which `rank` spends most more than the others: why the others wait for it. None if in none.

    seconds: of each rank, seconds per step (or per whatever is the same for all) by phase.
    """
    others = [phases for other, phases in seconds.items() if other != rank]
    if rank not in seconds or not others:
        return None
    more = {
        phase: spent - median(phases.get(phase, 0.0) for phases in others)
        for phase, spent in seconds[rank].items() if phase not in NO_CAUSE
    }
    worst = max(more, key=more.__getitem__, default=None)
    return worst if worst is not None and more[worst] > 0 else None


def _decisive(meetings: Iterable[Meeting]) -> list[Meeting]:
    """The meetings at the place where ranks wait longest, all together."""
    by_place: defaultdict[tuple[int, int], list[Meeting]] = defaultdict(list)
    waited: defaultdict[tuple[int, int], int] = defaultdict(int)
    for meeting in meetings:
        by_place[meeting.place].append(meeting)
        waited[meeting.place] += sum(meeting.waits_ns.values())
    return by_place[max(waited, key=waited.__getitem__)] if waited else []


def _lateness_ns(ranks: Mapping[int, Attendance]) -> dict[int, float] | None:
    if len(ranks) < 2 or any(part.before_ns == 0 for part in ranks.values()):  # noqa: PLR2004 - nobody else was there
        return None
    arrived = _after_the_others({rank: part.arrived_ns for rank, part in ranks.items()})
    worked = _after_the_others({rank: part.arrived_ns - part.before_ns for rank, part in ranks.items()})
    return {rank: min(late, worked[rank]) for rank, late in arrived.items()}


def _after_the_others(values: Mapping[int, int]) -> dict[int, float]:
    """Of each rank its value less the median of the others'."""
    order = sorted(values, key=values.__getitem__)
    sorted_values = [values[rank] for rank in order]
    low, high = (len(order) - 2) // 2, (len(order) - 1) // 2  # of one less
    return {
        # Behind the place that is left out, all move up by one.
        rank: values[rank] - (sorted_values[low + (low >= i)] + sorted_values[high + (high >= i)]) / 2
        for i, rank in enumerate(order)
    }


def _noise_ns(late_ns: Sequence[Mapping[int, float]]) -> float:
    by_rank: defaultdict[int, list[float]] = defaultdict(list)
    for late in late_ns:
        for rank, ns in late.items():
            by_rank[rank].append(ns)
    deviations: list[float] = []
    for own in by_rank.values():
        usual = median(own)
        deviations.extend(abs(ns - usual) for ns in own)
    return float(MAD_TO_SIGMA * median(deviations))


def _share(late_ns: Sequence[float], floor_ns: float) -> float:
    return sum(ns > floor_ns for ns in late_ns) / len(late_ns) if late_ns else 0.0


def _waits_ns(meetings: Iterable[Meeting]) -> dict[int, tuple[int, dict[int, int]]]:
    """Of each rank its time in collectives, and of that what each other rank made it wait."""
    inside: defaultdict[int, int] = defaultdict(int)
    charged: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for meeting in meetings:
        waits_ns, last = meeting.waits_ns, meeting.last
        for rank, part in meeting.ranks.items():
            inside[rank] += part.left_ns - part.arrived_ns
            if rank != last:
                charged[rank][last] += waits_ns[rank]
    return {rank: (max(0, ns), dict(charged[rank])) for rank, ns in inside.items()}
