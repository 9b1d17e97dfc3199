"""Synthetic ranks: they speak the real protocol to a real daemon, and keep the truth about what they sent."""

from __future__ import annotations

import itertools
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from hpcsampler.protocol.messages import Bye, Events, Hello, Names, encode
from hpcsampler.protocol.phases import Flag, Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpcsampler.protocol.messages import Message

_EVENT = struct.Struct("<QqIHBB")
_STAT_AFTER_NAME = 19


def event(t_ns: int, phase: int, kind: int, *, key: int = 0, value: int = 0, flags: int = 0) -> bytes:
    """One event of 24 bytes."""
    return _EVENT.pack(t_ns, value, key, phase, kind, flags)


def steps(start_ns: int, count: int, *, input_ns: int, step_ns: int, key: int = 1) -> bytes:
    """`count` steps one after the other, each a wait for input and then the step: four events each."""
    out = []
    t = start_ns
    for _ in range(count):
        out.append(event(t, Phase.INPUT, Kind.BEGIN, key=key))
        t += input_ns
        out.append(event(t, Phase.INPUT, Kind.END, key=key, value=1))
        out.append(event(t, Phase.STEP, Kind.BEGIN))
        t += step_ns
        out.append(event(t, Phase.STEP, Kind.END, value=1, flags=Flag.EXACT))
    return b"".join(out)


def own_start_ticks() -> int:
    """When this process began, as a hello says it."""
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[_STAT_AFTER_NAME])


def hello(rank: int = 0, *, key: str | None = None, **changes: object) -> Hello:
    """A hello of this very process, for a rank."""
    now = time.monotonic_ns()
    values: dict[str, object] = {
        "rank_key": key or f"{os.getpid()}-{rank}",
        "seq": 0,
        "pid": os.getpid(),
        "start_ticks": own_start_ticks(),
        "uid": os.getuid(),
        "host": "here",
        "job": "job",
        "rank": rank,
        "local_rank": rank,
        "world_size": 8,
        "program": "train.py",
        "framework": "tensorflow 2.21.0",
        "version": "0.1.0",
        "attach_ns": now,
        "monotonic_ns": now,
        "realtime_ns": time.time_ns(),
        "visible_devices": "",
        "notes": [],
    }
    values.update(changes)
    return Hello(**values)  # type: ignore[arg-type]


class Rank:
    """One rank with its connection. `recorded` counts the events that entered its ring, sent or not."""

    def __init__(self, context: zmq.Context, address: str, rank: int = 0, **changes: object) -> None:
        self.identity = hello(rank, **changes)  # type: ignore[arg-type]
        self.recorded = 0
        self.refused = 0
        self.overhead_ns = 0
        self._sequence = itertools.count()
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.RECONNECT_IVL, 20)
        self._socket.connect(address)

    def send(self, message: Message) -> None:
        self.send_raw(encode(message))

    def send_raw(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames, zmq.NOBLOCK)

    def hello(self) -> None:
        self.send(self.identity)

    def events(self, records: bytes, *, watermark_ns: int | None = None, lose: bool = False) -> None:
        """Record these events and send them, or lose them on the way."""
        message = Events(
            self.identity.rank_key,
            next(self._sequence),
            watermark_ns if watermark_ns is not None else time.monotonic_ns(),
            self.recorded,
            self.refused,
            self.overhead_ns,
            records,
        )
        self.recorded += message.count
        if not lose:
            self.send(message)

    def names(self, phases: Mapping[int, str], keys: Mapping[int, str]) -> None:
        self.send(Names(self.identity.rank_key, next(self._sequence), phases, keys))

    def bye(self, reason: str = "detach") -> None:
        self.send(Bye(self.identity.rank_key, next(self._sequence), reason))

    def close(self) -> None:
        self._socket.close(linger=2000)


def close_all(ranks: Iterable[Rank]) -> None:
    for rank in ranks:
        rank.close()
