"""Messages in, ranks' timelines out. Nothing that comes makes this raise: what is no message is counted.

Every event that a rank recorded since its attach ends up in one of three counts. Folded. Dropped: those that
its ring refused, as the rank says, and those that entered the ring and never came here, as the gaps in their
ordinals say. Earlier: those that a rank older than this daemon had sent before.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hpcsampler.ext._timeline import Timeline
from hpcsampler.protocol.messages import (
    EVENT_SIZE,
    Bye,
    Events,
    Hello,
    Incidents,
    Names,
    Pipeline,
    ProtocolError,
    Stacks,
    decode,
)
from hpcsampler.protocol.phases import Phase

from .account import Account
from .pipeline import LivePipeline
from .ranks import Checkpoint, RankState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpcsampler.protocol.messages import Message

    from .ranks import Ranks

TEXT_MOST: Final = 200
"""Longest name that is kept and shown, in characters."""
NOTES_MOST: Final = 16
NAMES_MOST: Final = 1024
"""Names kept of one rank, of its phases and of its keys each."""
HELD_MESSAGES: Final = 4096
"""Messages kept of ranks that have not said hello yet, all of them together, and how long."""
HELD_BYTES: Final = 16 << 20
HELD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Early:
    """A message that came before the hello that says whose connection this is."""

    came_ns: int
    peer: bytes
    message: Events | Names | Incidents | Pipeline
    size: int


class _Held:
    """Early messages, oldest first: hello is repeated every few seconds."""

    def __init__(self) -> None:
        self._queue: deque[_Early] = deque()
        self._size = 0

    def add(self, early: _Early) -> bool:
        """Keep a message; False if there is no room."""
        if len(self._queue) >= HELD_MESSAGES or self._size + early.size > HELD_BYTES:
            return False
        self._queue.append(early)
        self._size += early.size
        return True

    def take(self, peer: bytes, rank_key: str) -> list[Events | Names | Incidents | Pipeline]:
        """Remove and return those of one rank."""
        if not self._queue:
            return []
        found: list[Events | Names | Incidents | Pipeline] = []
        kept: deque[_Early] = deque()
        for early in self._queue:
            if early.peer == peer and early.message.rank_key == rank_key:
                found.append(early.message)
                self._size -= early.size
            else:
                kept.append(early)
        self._queue = kept
        return found

    def expired(self, now_ns: int) -> list[Events | Names | Incidents | Pipeline]:
        """Remove and return those that waited in vain."""
        gone = []
        while self._queue and now_ns - self._queue[0].came_ns > HELD_S * 1e9:
            early = self._queue.popleft()
            self._size -= early.size
            gone.append(early.message)
        return gone


class Ingest:
    """Takes in what the ranks send."""

    def __init__(
        self, ranks: Ranks, began_ns: int, on_stacks: Callable[[Stacks], None] | None = None,
    ) -> None:
        """began_ns: CLOCK_MONOTONIC from which on ranks reach this daemon and no other.

        on_stacks: is given what a rank says that was asked.
        """
        self._ranks = ranks
        self._began_ns = began_ns
        self._held = _Held()
        self._on_stacks = on_stacks
        self.rejected: Counter[str] = Counter()
        """Messages counted and dropped, by reason: ProtocolError's, and these: `frames`: not in one
        frame. `unknown`: of a rank that never said hello. `foreign`: for a rank that another connection
        speaks for. `stale`: events that came before. `ranks`: of more ranks than are taken."""

    def take(self, frames: Sequence[bytes], now_ns: int) -> RankState | None:
        """Take in one message as a ROUTER receives it: routing id and payload.

        Returns the rank if its hello brought it here, or back: its process is then to be found.
        """
        if len(frames) != 2:  # noqa: PLR2004 - routing id and payload
            self.rejected["frames"] += 1
            return None
        peer, payload = frames
        try:
            message = decode(payload)
        except ProtocolError as error:
            self.rejected[error.reason] += 1
            return None
        if isinstance(message, Hello):
            return self._hello(peer, message, now_ns)
        state = self._ranks.get(message.rank_key)
        if state is not None and state.peer == peer:
            self._apply(state, message, now_ns)
        elif isinstance(message, Bye | Stacks) or not self._held.add(_Early(now_ns, peer, message, len(payload))):
            self._reject_stray(message)
        return None

    def expire(self, now_ns: int) -> None:
        """Give up on messages whose rank has not said hello in time."""
        for message in self._held.expired(now_ns):
            self._reject_stray(message)

    def _reject_stray(self, message: Message) -> None:
        self.rejected["unknown" if self._ranks.get(message.rank_key) is None else "foreign"] += 1

    def _hello(self, peer: bytes, hello: Hello, now_ns: int) -> RankState | None:
        hello = _shortened(hello, now_ns)
        state = self._ranks.get(hello.rank_key)
        new = state is None
        if state is None:
            state = RankState(hello, peer, now_ns, hello.monotonic_ns)
            if not self._ranks.add(state):
                self.rejected["ranks"] += 1
                return None
        elif (state.hello.pid, state.hello.start_ticks) != (hello.pid, hello.start_ticks):
            self.rejected["foreign"] += 1
            return None
        else:
            new = state.peer != peer or state.ending is not None
            if state.hello.attach_ns != hello.attach_ns:
                _attach_again(state)
            elif state.dead_since_ns is None:
                state.ending = None
            state.said_bye = False
            state.peer = peer
            state.hello = hello
            state.heard_ns = now_ns
            state.newest_ns = max(state.newest_ns, hello.monotonic_ns)
        state.older = hello.attach_ns < self._began_ns
        for message in self._held.take(peer, hello.rank_key):
            self._apply(state, message, now_ns)
        return state if new else None

    def _apply(self, state: RankState, message: Message, now_ns: int) -> None:
        state.heard_ns = now_ns
        if isinstance(message, Events):
            if not fold(state, message, now_ns):
                self.rejected["stale"] += 1
        elif isinstance(message, Names):
            _learn(state.phase_names, message.phases)
            state.key_names.clear()  # always told all together, and not the same ones for ever
            _learn(state.key_names, message.keys)
        elif isinstance(message, Incidents):
            for incident in message.items:
                state.account.take(incident)
        elif isinstance(message, Pipeline):
            state.pipeline = LivePipeline(message, now_ns)
        elif isinstance(message, Stacks):
            if self._on_stacks is not None:
                self._on_stacks(message)
        elif isinstance(message, Bye):
            state.said_bye = True


def fold(state: RankState, message: Events, now_ns: int) -> bool:
    """Fold a batch into its rank's timeline and keep the accounts. False if all of it came before."""
    # Nothing can be from the future: a forged watermark would stop the rank's clock until then.
    watermark_ns = min(message.watermark_ns, now_ns)
    records = message.records
    timeline = state.timeline
    if timeline is None:
        timeline = state.timeline = _begin(state, message, watermark_ns)
    elif message.first > state.expected:
        timeline.gap()
        state.missing += message.first - state.expected
    elif message.first < state.expected:
        records = records[(state.expected - message.first) * EVENT_SIZE :]
        if not records:
            return False
    if message.dropped > state.refused:
        # The ring was full of this very batch, so what it refused came after: from the last event on, nothing
        # is known.
        if records:
            (last_ns,) = struct.unpack_from("<Q", records, len(records) - EVENT_SIZE)
            timeline.feed(records, min(last_ns, watermark_ns))
        timeline.gap()
        timeline.feed(b"", watermark_ns)
        state.refused = message.dropped
    else:
        timeline.feed(records, watermark_ns)
    state.folded += len(records) // EVENT_SIZE
    state.expected = max(state.expected, message.first + message.count)
    state.overhead_ns = max(state.overhead_ns, message.overhead_ns)
    state.newest_ns = max(state.newest_ns, watermark_ns)
    _follow(state, timeline)
    return True


def _begin(state: RankState, message: Events, watermark_ns: int) -> Timeline:
    """Make the timeline: from attach on if nothing was lost until here, else from the first known event."""
    if message.first < state.expected:
        state.base = 0  # a second attach of the same process that counts its events from 0 again
    before = message.first - state.base
    state.earlier, state.missing = (before, 0) if state.older else (0, before)
    state.expected = message.first
    if before == 0:
        start_ns = min(state.hello.attach_ns, watermark_ns)
        timeline = Timeline(start_ns)
        overhead_ns = 0
    else:
        start_ns = watermark_ns
        if message.records:
            start_ns = min(struct.unpack_from("<Q", message.records)[0], watermark_ns)
        timeline = Timeline(start_ns)
        timeline.gap()
        state.known_ns = start_ns
        state.refused = message.dropped
        overhead_ns = message.overhead_ns
    state.checkpoints.clear()
    state.checkpoints.append(Checkpoint(start_ns, overhead_ns, {}, {}))
    return timeline


def _follow(state: RankState, timeline: Timeline) -> None:
    """Keep in mind whether the rank trains or evaluates: an input wait alone does not say within which."""
    category = timeline.open_phase()[0]
    steps, evaluation_steps = timeline.steps, timeline.evaluation_steps
    if category == Phase.STEP or steps != state.steps:
        state.evaluating = False
    elif category == Phase.EVALUATION or evaluation_steps != state.evaluation_steps:
        state.evaluating = True
    state.steps, state.evaluation_steps = steps, evaluation_steps


def _attach_again(state: RankState) -> None:
    """Begin all counts anew: a process that detached attaches again under its key. Ordinals may go on."""
    state.base = state.expected
    state.timeline = state.known_ns = None
    state.earlier = state.folded = state.missing = state.refused = state.overhead_ns = 0
    state.steps = state.evaluation_steps = 0
    state.evaluating = False
    state.step_ms = state.usual_step_s = None
    state.account = Account()
    state.pipeline = None
    state.ending = None
    state.checkpoints.clear()


def _learn(known: dict[int, str], told: Mapping[int, str]) -> None:
    for key, text in told.items():
        if key in known or len(known) < NAMES_MOST:
            known[key] = text[:TEXT_MOST]


def _shortened(hello: Hello, now_ns: int) -> Hello:
    """Bound the texts that are kept and shown, and the clock."""
    return replace(
        hello,
        job=hello.job[:TEXT_MOST],
        program=hello.program[:TEXT_MOST],
        framework=hello.framework[:TEXT_MOST],
        version=hello.version[:TEXT_MOST],
        host=hello.host[:TEXT_MOST],
        visible_devices=hello.visible_devices[:TEXT_MOST],
        notes=[note[:TEXT_MOST] for note in hello.notes[:NOTES_MOST]],
        attach_ns=max(0, min(hello.attach_ns, now_ns)),
        monotonic_ns=max(0, min(hello.monotonic_ns, now_ns)),
    )
