"""Finds the ranks of a job that meet in collectives, and keeps what each window of meetings says of them."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hpcsampler.ext._timeline import UNCOVERED
from hpcsampler.protocol.phases import collective_parts
from hpcsampler.protocol.snapshot import WINDOW_S

from .snapshot import by_phase
from .stragglers import Attendance, Meeting, cause, verdicts, verdicts_by_step_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpcsampler.protocol.snapshot import StragglerSnapshot

    from .ranks import RankState
    from .stragglers import Verdict

SAMPLED: Final = 16
"""Of as many collectives in a second, or more, one in two, four, … is looked at, so that some 8 to 16 are."""
LATEST_S: Final = 3.0
"""How long a collective waits for the parts of ranks whose events are still on their way."""
_READS_MOST: Final = 8


@dataclass(slots=True)
class _Part:
    attendance: Attendance
    replicas: int
    place: int


@dataclass(slots=True)
class _Job:
    """The ranks of one job that are on this node."""

    since: dict[str, int] = field(default_factory=dict)
    """By rank key: collectives of its timeline that were read."""
    gathering: dict[tuple[int, int, int], dict[int, _Part]] = field(default_factory=dict)
    """By group, members and ordinal: the ranks' parts that have come so far, oldest first."""
    complete: set[int] = field(default_factory=set)
    """Groups of which all members are here."""
    meetings: deque[Meeting] = field(default_factory=deque)


class Lockstep:
    """Reads the ranks' collectives about once a second and says in each rank's state who waits for whom."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def look(self, living: Iterable[RankState], now_ns: int) -> None:
        """Set `straggler` of each rank of a job of several: what is known now, or None."""
        by_job: defaultdict[str, dict[int, RankState]] = defaultdict(dict)
        twice = set()
        for state in living:
            state.straggler = None
            hello = state.hello
            if hello.world_size > 1 and hello.rank >= 0 and state.timeline is not None:
                if hello.rank in by_job[hello.job]:
                    twice.add(hello.job)
                by_job[hello.job][hello.rank] = state
        # Two programs under one name can't be told apart: nothing is better than a wrong match.
        shown = {job: ranks for job, ranks in by_job.items() if job not in twice and len(ranks) > 1}
        self._jobs = {name: self._jobs.get(name) or _Job() for name in shown}
        for name, ranks in shown.items():
            job = self._jobs[name]
            _read(job, ranks)
            _gather(job, ranks, now_ns)
            _say(job, ranks)


def _read(job: _Job, ranks: Mapping[int, RankState]) -> None:
    """Take in what is new in the ranks' timelines."""
    for state in ranks.values():
        count = state.timeline.collective_count if state.timeline is not None else 0
        if job.since.get(state.hello.rank_key, 0) > count:
            job.since[state.hello.rank_key] = 0  # it attached again
    new = max(
        state.timeline.collective_count - job.since.get(state.hello.rank_key, 0)
        for state in ranks.values() if state.timeline is not None
    )
    shift = max(0, (new // SAMPLED).bit_length())
    for rank, state in ranks.items():
        key = state.hello.rank_key
        for _ in range(_READS_MOST):
            if state.timeline is None:
                break
            before = job.since.get(key, 0)
            job.since[key], found = state.timeline.collectives(before, shift)
            for group, value, replicas, before_ns, arrived_ns, left_ns in found:
                members, place, ordinal = collective_parts(value)
                parts = job.gathering.setdefault((group, members, ordinal), {})
                parts[rank] = _Part(Attendance(before_ns, arrived_ns, left_ns), replicas, place)
            if job.since[key] == before:
                break


def _gather(job: _Job, ranks: Mapping[int, RankState], now_ns: int) -> None:
    """Let collectives that are complete, or won't be any more, become meetings."""
    done = []
    for name, parts in job.gathering.items():
        group, members, _ = name
        whole = sum(part.replicas for part in parts.values()) >= members
        if not whole and len(parts) < len(ranks):
            newest_ns = max(part.attendance.left_ns for part in parts.values())
            if now_ns - newest_ns < LATEST_S * 1e9:
                continue
        done.append(name)
        meeting = Meeting(
            (group, min(parts.items())[1].place), {rank: part.attendance for rank, part in parts.items()}, whole,
        )
        if whole:
            job.complete.add(group)
        # Of a group that is here as a whole, what lacks a part has lost it on the way: it is left out.
        if len(parts) > 1 and meeting.possible and (whole or group not in job.complete):
            job.meetings.append(meeting)
    for name in done:
        del job.gathering[name]
    begin_ns = now_ns - int(WINDOW_S * 1e9)
    while job.meetings and job.meetings[0].met_ns < begin_ns:
        job.meetings.popleft()


def _say(job: _Job, ranks: Mapping[int, RankState]) -> None:
    shares, seconds = {}, {}
    for rank, state in ranks.items():
        if state.timeline is None:
            continue
        window_ns, steps, _ = state.timeline.window(WINDOW_S)
        spent = by_phase(window_ns)
        covered_ns = sum(window_ns) - window_ns[UNCOVERED]
        shares[rank] = {phase: ns / covered_ns for phase, ns in spent.items()} if covered_ns else {}
        if steps:
            seconds[rank] = {phase: ns / steps / 1e9 for phase, ns in spent.items() if phase != "startup"}
    step_s = max((sum(phases.values()) for phases in seconds.values()), default=0.0)
    source = "collective"
    found = verdicts(list(job.meetings), step_s)
    if not found and not job.meetings and len(seconds) == len(ranks):
        source = "step time"
        found = verdicts_by_step_time(seconds)
    # A rank that steps no more has no seconds per step; its shares can be compared all the same.
    compared = seconds if len(seconds) == len(ranks) else shares
    for rank, verdict in found.items():
        if rank in ranks:
            late = rank if verdict.steady else verdict.blamed
            why = None if late is None else cause(late, compared)
            ranks[rank].straggler = _snapshot(verdict, source, shares[rank].get("collective", 0.0), why)


def _snapshot(verdict: Verdict, source: str, collective: float, why: str | None) -> StragglerSnapshot:
    found: StragglerSnapshot = {"source": source, "score": verdict.score, "steady": verdict.steady}
    if verdict.waited is not None:
        found["wait_share"] = verdict.waited * collective
    if verdict.network is not None:
        found["network_share"] = verdict.network * collective
    if verdict.blamed is not None:
        found["blamed_on_rank"] = verdict.blamed
    if why is not None:
        found["cause"] = why
    return found
