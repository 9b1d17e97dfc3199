"""Follows the ranks' processes: notices how each ends, and measures those that run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .liveness import ProcessWatch, verdict
from .process import ProcessFiles, runs_another_program, usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .process import Reading
    from .ranks import RankState


QUIET_S: Final = 3.0
"""A rank says something at least once a second: what one has sent before its `exec` is here by then."""


@dataclass(slots=True)
class _Measured:
    files: ProcessFiles
    first: Reading | None
    before: Reading | None


class Attendance:
    """What the node itself tells of the ranks."""

    def __init__(self) -> None:
        self._watch = ProcessWatch()
        self._measured: dict[str, _Measured] = {}

    def arrived(self, state: RankState, now_ns: int) -> None:
        """Find the process of a rank that has come, or come back."""
        hello = state.hello
        self.forget(state)
        state.watched = self._watch.add(hello.rank_key, hello.pid, hello.start_ticks)
        if state.watched:
            try:
                files = ProcessFiles(hello.pid)
            except OSError:
                return  # gone in this very moment, or no descriptor is left: nothing is measured
            first = files.read(now_ns)
            self._measured[hello.rank_key] = _Measured(files, first, first)

    def replaced(self, state: RankState, ranks: Iterable[RankState]) -> None:
        """Let a rank that has come take the place of those that its process was before.

        A program that calls `exec` goes on under its pid, and can't say goodbye.
        """
        if not state.watched:
            return  # of another pid namespace: its pid says nothing here
        for other in ranks:
            if other is not state and other.watched and _who(other) == _who(state):
                other.said_bye = True

    def look(self, ranks: Iterable[RankState], now_ns: int) -> list[RankState]:
        """Note which ranks have ended; returns them."""
        dead = set(self._watch.ended())
        ended = []
        for state in ranks:
            if state.ending is not None and not (state.said_bye and state.ending == "killed"):
                continue
            if state.hello.rank_key in dead:
                state.dead_since_ns = now_ns
            dead_ns = state.dead_since_ns
            state.ending = verdict(
                said_bye=state.said_bye,
                watched=state.watched,
                dead_s=None if dead_ns is None else (now_ns - dead_ns) / 1e9,
                silent_s=(now_ns - state.heard_ns) / 1e9,
            )
            if state.ending is not None:
                state.ended_ns = now_ns
                self.forget(state)
                ended.append(state)
        return ended

    def measure(self, ranks: Iterable[RankState], now_ns: int) -> None:
        """Measure what the ranks' processes have used since the last time."""
        for state in ranks:
            measured = self._measured.get(state.hello.rank_key)
            if measured is None:
                continue
            reading = measured.files.read(now_ns)
            if reading is None or (measured.before is not None and reading.at_ns <= measured.before.at_ns):
                state.cpu = None
                continue
            if measured.before is not None:
                state.cpu = usage(measured.before, reading)
            measured.before = reading
            quiet = now_ns - state.heard_ns >= QUIET_S * 1e9
            if quiet and measured.first is not None and runs_another_program(measured.first, reading):
                state.said_bye = True  # in its place: it is no more, though its process lives

    def forget(self, state: RankState) -> None:
        """Let go of a rank's process."""
        self._watch.remove(state.hello.rank_key)
        measured = self._measured.pop(state.hello.rank_key, None)
        if measured is not None:
            measured.files.close()

    def close(self) -> None:
        """Let go of all processes."""
        self._watch.close()
        for measured in self._measured.values():
            measured.files.close()
        self._measured.clear()


def _who(state: RankState) -> tuple[int, int, int]:
    hello = state.hello
    return hello.pid, hello.start_ticks, hello.rank
