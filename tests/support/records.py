"""Events by hand, as they lie in the ring and on the wire."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from hpcsampler.ext._timeline import Timeline
from hpcsampler.protocol.phases import ROLE_TRAIN, Flag, Kind, Phase

MS = 1_000_000
_FORMAT = struct.Struct("<QqIHBB")


def event(t_ns: int, phase: int, kind: int, key: int = 0, value: int = 0, flags: int = 0) -> bytes:
    return _FORMAT.pack(t_ns, value, key, phase, kind, flags)


def parse(records: bytes) -> list[tuple[int, int, int, int, int, int]]:
    """`(t_ns, value, key, phase, kind, flags)` of each event."""
    return list(_FORMAT.iter_unpack(records))


@dataclass
class Script:
    """A rank's day, written down in milliseconds since `start_ns`."""

    start_ns: int = 1_000_000 * MS
    records: list[bytes] = field(default_factory=list)

    def at(self, ms: float, phase: int, kind: int, key: int = 0, value: int = 0, flags: int = 0) -> Script:
        self.records.append(event(self.start_ns + int(ms * MS), phase, kind, key, value, flags))
        return self

    def begin(self, ms: float, phase: int, key: int = 0, flags: int = 0) -> Script:
        return self.at(ms, phase, Kind.BEGIN, key, 0, flags)

    def end(self, ms: float, phase: int, key: int = 0, value: int = 0, flags: int = 0) -> Script:
        return self.at(ms, phase, Kind.END, key, value, flags)

    def wait(self, begin_ms: float, end_ms: float, key: int = 1, got: int = 1, flags: int = 0) -> Script:
        """A GetNext of an iterator."""
        return self.begin(begin_ms, Phase.INPUT, key, flags).end(end_ms, Phase.INPUT, key, got, flags)

    def trains(self, ms: float, key: int) -> Script:
        return self.at(ms, Phase.INPUT, Kind.POINT, key, ROLE_TRAIN)

    def done(self, ms: float, key: int) -> Script:
        """A graph is done with an element."""
        return self.at(ms, Phase.STEP, Kind.POINT, key, 0, Flag.GRAPH)

    def over(self, ms: float, key: int) -> Script:
        """A function that gets elements has ended, or an eager iterator is gone."""
        return self.at(ms, Phase.STEP, Kind.END, key, 0, Flag.GRAPH)

    def fold(self, until_ms: float) -> Timeline:
        timeline = Timeline(self.start_ns)
        timeline.feed(b"".join(self.records), self.start_ns + int(until_ms * MS))
        return timeline


def ms(timeline: Timeline) -> dict[int, float]:
    """Milliseconds by category, without the empty ones."""
    return {i: ns / MS for i, ns in enumerate(timeline.totals_ns()) if ns}
