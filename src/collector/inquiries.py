"""Questions of people about a rank: passes them on to it, and its answer back.

A rank whose interpreter can't run does not answer: some C code holds the GIL and does not let go of it. Then the kernel
is asked what the process's threads are in: that needs nothing of the process itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from hpcsampler.protocol.control import Answer, Ask, StacksRequest, decode_ask, encode
from hpcsampler.protocol.messages import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcsampler.protocol.messages import Stacks

    from .ranks import RankState

PATIENCE_S: Final = 3.0
"""How long a rank has to answer: it looks for questions about once a second when nothing happens in it."""
WAITING_MOST: Final = 16
_THREADS_MOST: Final = 500


class Wire(Protocol):
    """What questions come by and go by."""

    def questions(self) -> list[tuple[bytes, bytes]]:
        """Who asks, and what, as bytes."""

    def answer(self, who: bytes, data: bytes) -> None:
        """Send an answer to whoever asked."""

    def tell(self, peer: bytes, data: bytes) -> None:
        """Send something to a rank."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    who: bytes
    rank_key: str
    until_ns: int


class Inquiries:
    """Keeps who waits for what."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}

    def look(self, ranks: Collection[RankState], now_ns: int) -> None:
        """Take in new questions, and give up on old ones."""
        for who, data in self._wire.questions():
            try:
                self._ask(who, decode_ask(data), ranks, now_ns)
            except ProtocolError as error:
                self._say(who, Answer(False, f"no question of this version: {error}"))
        for number, waiting in list(self._waiting.items()):
            if now_ns >= waiting.until_ns:
                del self._waiting[number]
                state = next((s for s in ranks if s.hello.rank_key == waiting.rank_key), None)
                self._say(waiting.who, _without_it(state))

    def told(self, message: Stacks) -> None:
        """Pass on what a rank has said, to whoever asked that rank."""
        waiting = self._waiting.get(message.request)
        if waiting is not None and waiting.rank_key == message.rank_key:
            del self._waiting[message.request]
            self._say(waiting.who, Answer(True, message.text.decode("utf-8", "replace")))

    def _ask(self, who: bytes, ask: Ask, ranks: Collection[RankState], now_ns: int) -> None:
        found = [
            s for s in ranks if s.ending is None and s.hello.rank == ask.rank and ask.job in {"", s.hello.job}
        ]
        if len(found) != 1:
            self._say(who, Answer(False, _which(ask, found, ranks)))
        elif len(self._waiting) >= WAITING_MOST:
            self._say(who, Answer(False, "too many ask at once: try again in a moment"))
        else:
            number = next(self._numbers)
            self._waiting[number] = _Waiting(who, found[0].hello.rank_key, now_ns + int(PATIENCE_S * 1e9))
            self._wire.tell(found[0].peer, encode(StacksRequest(number)))

    def _say(self, who: bytes, answer: Answer) -> None:
        self._wire.answer(who, encode(answer))


def _which(ask: Ask, found: list[RankState], ranks: Collection[RankState]) -> str:
    if found:
        jobs = sorted({state.hello.job for state in found})
        if len(jobs) == 1:
            return f"{len(found)} processes say that they are rank {ask.rank} of {jobs[0]!r}"
        return f"there is a rank {ask.rank} in several jobs: choose one by --job, of {', '.join(map(repr, jobs))}"
    here = sorted({state.hello.rank for state in ranks if state.ending is None and state.hello.rank >= 0})
    of_job = f" of {ask.job!r}" if ask.job else ""
    there = f": there are {', '.join(map(str, here))}" if here else ""
    return f"no rank {ask.rank}{of_job} runs on this node{there}"


def _without_it(state: RankState | None) -> Answer:
    """What can be said of a rank that does not answer."""
    if state is None or state.ending is not None:
        return Answer(False, "the rank has ended")
    if not state.watched:
        return Answer(False, "the rank does not answer, and its process can't be seen from here")
    pid = state.hello.pid
    lines = [
        f"It does not answer: C code holds Python's global lock (GIL), or the process is stopped. pid {pid}.",
        "What Python is in can't be told from here without a risk for the training (py-spy dump --pid or gdb -p can).",
        "Its threads as the kernel sees them (name, state, where in the kernel they wait):",
        "",
        *_kernel_view(pid),
    ]
    return Answer(True, "\n".join(lines))


def _kernel_view(pid: int) -> list[str]:
    lines = []
    tasks = sorted(Path(f"/proc/{pid}/task").glob("[0-9]*"), key=lambda path: int(path.name))
    for task in tasks[:_THREADS_MOST]:
        try:
            name, _, rest = (task / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            place = (task / "wchan").read_text().strip("\0\n")
        except OSError:
            continue  # it has just ended, or may not be looked at
        lines.append(f"    {task.name} {name}: {rest.split()[0]} {place if place not in {'', '0'} else ''}".rstrip())
    return lines
