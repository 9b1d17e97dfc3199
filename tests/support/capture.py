"""A daemon's ear without the daemon: takes in what ranks send, to the last event, and folds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from hpcsampler.ext._timeline import Timeline
from hpcsampler.protocol import messages
from hpcsampler.protocol.incidents import Incident


@dataclass
class RankCapture:
    """All that one rank sent."""

    hello: messages.Hello | None = None
    bye: messages.Bye | None = None
    names: messages.Names | None = None
    batches: list[messages.Events] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    pipelines: list[tuple[float, messages.Pipeline]] = field(default_factory=list)
    """With when they came: seconds of `time.monotonic()`."""

    def timeline(self, until_ns: int | None = None, since_ns: int | None = None) -> Timeline:
        """Fold what was recorded until (and, for the start, since) these times."""
        assert self.hello is not None
        timeline = Timeline(self.hello.attach_ns)
        for batch in self.batches:
            records = batch.records
            end = batch.watermark_ns
            if until_ns is not None and end > until_ns:
                records = b"".join(
                    records[i : i + 24]
                    for i in range(0, len(records), 24)
                    if int.from_bytes(records[i : i + 8], "little") <= until_ns
                )
                end = until_ns
            timeline.feed(records, max(end, timeline.now_ns))
        return timeline

    def between(self, begin_ns: int, end_ns: int) -> Span:
        """What the rank did from one time to the other."""
        first, second = self.timeline(begin_ns), self.timeline(end_ns)
        ns = [b - a for a, b in zip(first.totals_ns(), second.totals_ns(), strict=True)]
        return Span(
            ns, second.steps - first.steps, second.evaluation_steps - first.evaluation_steps, end_ns - begin_ns,
        )


@dataclass(frozen=True)
class Span:
    ns: list[int]
    steps: int
    evaluation_steps: int
    wall_ns: int

    def share(self, category: int) -> float:
        return self.ns[category] / sum(self.ns)


class Capture:
    """Binds where a daemon would, in a runtime directory of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.ranks: dict[str, RankCapture] = {}
        self.deaf = False
        """True: takes connections and reads nothing."""
        self.address = f"ipc://{directory / 'events.sock'}"
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.RCVHWM, 0)
        self._router.bind(self.address)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.deaf or not self._router.poll(20):
                time.sleep(0.001)
                continue
            _, data = self._router.recv_multipart()
            message = messages.decode(data)
            rank = self.ranks.setdefault(message.rank_key, RankCapture())
            match message:
                case messages.Hello():
                    rank.hello = message
                case messages.Names():
                    rank.names = message
                case messages.Events():
                    rank.batches.append(message)
                case messages.Incidents():
                    rank.incidents.extend(message.items)
                case messages.Pipeline():
                    rank.pipelines.append((time.monotonic(), message))
                case messages.Bye():
                    rank.bye = message

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.005)

    def wait_for_hello(self) -> None:
        self.wait_for(lambda: any(rank.hello for rank in list(self.ranks.values())))

    def only_rank(self, timeout_s: float = 5.0) -> RankCapture:
        """The one rank that there was, once it has said goodbye."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            ranks = list(self.ranks.values())
            if len(ranks) == 1 and ranks[0].bye is not None:
                return ranks[0]
            time.sleep(0.01)
        raise AssertionError(f"expected one rank that said goodbye, got {self.ranks}")

    def __enter__(self) -> Capture:  # noqa: PYI034 - `Self` is in typing from 3.11 on only
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(5)
        self._context.destroy(linger=0)
