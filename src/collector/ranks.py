"""What the daemon knows of each rank, and which ranks it knows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hpcsampler.protocol.snapshot import WINDOW_S

from .account import Account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcsampler.ext._timeline import Timeline
    from hpcsampler.protocol.messages import Hello
    from hpcsampler.protocol.snapshot import RankCpu, StragglerSnapshot

    from .liveness import Ending
    from .pipeline import LivePipeline

RATIOS: Final = (0.5, 0.95, 0.99)
RANKS_MOST: Final = 4096
ENDED_MOST: Final = 64
"""Ended ranks that are still shown; of more, those that ended first go."""
SHOWN_S: Final[dict[Ending, float]] = {"exited": 60.0, "killed": 600.0}
"""How long an ended rank is still shown: whoever comes back after a while wants to see who was killed."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Running totals at one moment; the difference of two is what a window held."""

    at_ns: int
    """The time folded so far."""
    overhead_ns: int
    details_ns: dict[tuple[int, int], int]
    detail_counts: dict[tuple[int, int], int]


@dataclass(slots=True)
class RankState:
    """One rank, from its hello on."""

    hello: Hello
    peer: bytes
    """Routing id of the connection that it speaks through: nobody else speaks for it."""
    heard_ns: int
    """CLOCK_MONOTONIC here at its last message."""
    newest_ns: int
    """Until when its data reaches, on the same clock."""
    timeline: Timeline | None = None
    """None before its first events."""
    older: bool = False
    """It attached before this daemon began: what it sent until then may have gone to another."""
    known_ns: int | None = None
    """From when on it is known, on the same clock; None: from its attach."""
    base: int = 0
    """Ordinal of the first event of this attach."""
    expected: int = 0
    """Ordinal of the next event; all from `base` to here are earlier, folded or missing."""
    earlier: int = 0
    """Events that it sent before this daemon was there: those that a former one had, and those that were on
    their way to that one when it ended."""
    folded: int = 0
    missing: int = 0
    """Events that entered its ring and never came here."""
    refused: int = 0
    """Events that its ring had no room for, as it says."""
    overhead_ns: int = 0
    steps: int = 0
    """Training steps and batches evaluated when it was last looked whether it trains or evaluates."""
    evaluation_steps: int = 0
    evaluating: bool = False
    phase_names: dict[int, str] = field(default_factory=dict)
    key_names: dict[int, str] = field(default_factory=dict)
    pipeline: LivePipeline | None = None
    checkpoints: deque[Checkpoint] = field(default_factory=deque)
    """About one a second, back to the beginning of the window."""
    step_ms: tuple[float, ...] | None = None
    """Percentiles of the step times in the window at the last checkpoint: they cost more than all else
    in a snapshot."""
    usual_step_s: float | None = None
    """The median of the newest window that had steps; None before two steps."""
    account: Account = field(default_factory=Account)
    watched: bool = False
    """Its process can be seen from here."""
    cpu: RankCpu | None = None
    run_delay: float | None = None
    """Seconds per second that its threads waited for a CPU."""
    straggler: StragglerSnapshot | None = None
    """Who waits for whom, as of the last look at the ranks of its job together."""
    said_bye: bool = False
    dead_since_ns: int | None = None
    """When its process was seen to be gone."""
    ending: Ending | None = None
    ended_ns: int = 0

    @property
    def dropped(self) -> int:
        """Events of this attach that are not in the numbers."""
        return self.missing + self.refused

    def checkpoint(self) -> None:
        """Note the running totals. The oldest kept is the youngest that is a whole window old."""
        if self.timeline is None:
            return
        now_ns = self.timeline.now_ns
        if self.checkpoints and self.checkpoints[-1].at_ns == now_ns:
            return
        self.checkpoints.append(
            Checkpoint(now_ns, self.overhead_ns, self.timeline.details_ns(), self.timeline.detail_counts()),
        )
        self.account.rate(self.timeline)
        self.step_ms = self.timeline.step_percentiles_ms(WINDOW_S, RATIOS)
        if self.step_ms is not None:
            self.usual_step_s = self.step_ms[0] / 1000
        begin_ns = now_ns - int(WINDOW_S * 1e9)
        while len(self.checkpoints) > 1 and self.checkpoints[1].at_ns <= begin_ns:
            self.checkpoints.popleft()


class Ranks:
    """All ranks by `rank_key`, in the order in which they came."""

    def __init__(self) -> None:
        self._states: dict[str, RankState] = {}

    def __iter__(self) -> Iterator[RankState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: str) -> RankState | None:
        """Find the rank with this key."""
        return self._states.get(key)

    def add(self, state: RankState) -> bool:
        """Take in a new rank; False if there are too many."""
        if len(self._states) >= RANKS_MOST:
            return False
        self._states[state.hello.rank_key] = state
        return True

    def living(self) -> list[RankState]:
        """Those that have not ended."""
        return [state for state in self._states.values() if state.ending is None]

    def expire(self, now_ns: int) -> list[RankState]:
        """Forget ranks that ended long ago, or before too many others; returns them."""
        ended = sorted(
            (state for state in self._states.values() if state.ending is not None),
            key=lambda state: state.ended_ns,
        )
        surplus = len(ended) - ENDED_MOST
        gone = [
            state
            for place, state in enumerate(ended)
            if place < surplus or now_ns - state.ended_ns >= SHOWN_S[state.ending or "exited"] * 1e9
        ]
        for state in gone:
            del self._states[state.hello.rank_key]
        return gone
