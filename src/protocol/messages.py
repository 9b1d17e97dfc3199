"""Messages from a rank to its node's daemon: msgpack arrays `[schema, type, rank_key, seq, …]`.

Decoding is strict and bounded: whatever is not exactly a message of this schema raises `ProtocolError`, whose
`reason` is one of a few fixed words so that the daemon can count by it. Nothing on the wire is ever executed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgpack

from . import incidents, stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA: Final = 1
EVENT_SIZE: Final = 24
"""Bytes of one event: t_ns u64, value i64, key u32, phase u16, kind u8, flags u8, little-endian."""
MAX_MESSAGE_BYTES: Final = 4 << 20
MAX_TEXT: Final = 4096
"""Longest string in a message, in characters: longer names are cut by the sender."""
MAX_NAMES: Final = 4096
MAX_RANK_KEY: Final = 64
MAX_NOTES: Final = 64
HEADER_ITEMS: Final = 4
"""Schema, type, rank_key and seq: what every message begins with."""
EVENTS_ITEMS: Final = 9
U64: Final = 1 << 64


class ProtocolError(ValueError):
    """A message that is not one of ours. `reason`: oversized, garbage, schema, type or field."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a rank is. Repeated every few seconds, so that a daemon that starts late knows it too."""

    rank_key: str
    seq: int
    pid: int
    start_ticks: int
    """Start of the process in clock ticks since boot (field 22 of /proc/PID/stat): tells a reused pid."""
    uid: int
    host: str
    job: str
    rank: int
    local_rank: int
    world_size: int
    program: str
    framework: str
    """For example `tensorflow 2.21.0`; empty while none is imported."""
    version: str
    """Of hpcsampler in the rank."""
    attach_ns: int
    """CLOCK_MONOTONIC at `attach()`."""
    monotonic_ns: int
    realtime_ns: int
    """CLOCK_REALTIME at `monotonic_ns`: aligns clocks of different nodes."""
    visible_devices: str
    """CUDA_VISIBLE_DEVICES as the rank sees it; empty if unset."""
    notes: list[str]
    """Sentences for the user about what this rank could not hook."""


@dataclass(frozen=True, slots=True)
class Events:
    """A batch of events, in the order in which they entered the ring."""

    rank_key: str
    seq: int
    watermark_ns: int
    """CLOCK_MONOTONIC when the ring was drained: nothing older is still to come."""
    first: int
    """How many events this rank has sent before these: a jump tells the daemon how many never arrived."""
    dropped: int
    """Events lost in the rank since attach, because its ring was full. Never sent, so not counted by `first`."""
    overhead_ns: int
    """CPU time the sampler itself has used in this rank since attach."""
    records: bytes
    """`EVENT_SIZE` bytes each."""

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.records) // EVENT_SIZE


@dataclass(frozen=True, slots=True)
class Names:
    """Texts for ids: user phases (ids from `FIRST_USER_PHASE`), and keys of events: iterators, functions, callbacks."""

    rank_key: str
    seq: int
    phases: Mapping[int, str]
    keys: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Incidents:
    """Checkpoints and traces, oldest first. Each is told once: what was lost on the way is not told again."""

    rank_key: str
    seq: int
    items: list[incidents.Incident]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages that feed the training, sources first."""

    rank_key: str
    seq: int
    keys: list[int]
    """Of the input events that are waits for this pipeline, as far as that is known."""
    alone: bool
    """No other pipeline is open: waits under any key are for this one."""
    batches_per_s: float | None
    """What it yielded between two readings; None after the first."""
    stages: list[stages.Stage]


@dataclass(frozen=True, slots=True)
class Bye:
    """The rank detaches or ends in good order."""

    rank_key: str
    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stacks:
    """What the threads of a rank are in, because somebody asked (see `control`)."""

    rank_key: str
    seq: int
    request: int
    text: bytes
    """UTF-8."""


Message: TypeAlias = Hello | Events | Names | Incidents | Pipeline | Bye | Stacks


def events_prefix(rank_key: str) -> bytes:
    """How every `events` message of this rank begins, up to its seq: five `uint 64` and a `bin 32` complete it."""
    header: bytes = msgpack.packb([SCHEMA, "events", rank_key])
    return bytes([0x90 | EVENTS_ITEMS]) + header[1:]


def encode(message: Message) -> bytes:
    """One message as bytes."""
    body: list[Any]
    match message:
        case Events():
            body = [
                message.watermark_ns, message.first, message.dropped, message.overhead_ns, message.records,
            ]
            kind = "events"
        case Hello():
            content = asdict(message)
            del content["rank_key"], content["seq"]
            body, kind = [content], "hello"
        case Names():
            body, kind = [dict(message.phases), dict(message.keys)], "names"
        case Incidents():
            body, kind = [[incidents.pack(item) for item in message.items]], "incidents"
        case Pipeline():
            rows = [stages.pack(stage) for stage in message.stages]
            body, kind = [message.keys, message.alone, message.batches_per_s, rows], "pipeline"
        case Bye():
            body, kind = [message.reason], "bye"
        case Stacks():
            body, kind = [message.request, message.text], "stacks"
    # Names of files and jobs may hold bytes that are no UTF-8.
    packed: bytes = msgpack.packb([SCHEMA, kind, message.rank_key, message.seq, *body], unicode_errors="replace")
    return packed


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises `ProtocolError` for everything else: too long (`oversized`), not msgpack or cut short (`garbage`),
    another schema (`schema`), an unknown type (`type`), a field of the wrong type or out of range (`field`).
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError("oversized", f"{len(data)} bytes, at most {MAX_MESSAGE_BYTES} are taken")
    try:
        items = msgpack.unpackb(
            data, strict_map_key=False, max_array_len=64, max_map_len=MAX_NAMES, max_str_len=MAX_TEXT * 4,
        )
    except Exception as error:  # noqa: BLE001 - msgpack raises half a dozen unrelated types on bad input
        raise ProtocolError("garbage", f"not msgpack: {error}") from None
    if not isinstance(items, list) or len(items) < HEADER_ITEMS:
        raise ProtocolError("garbage", f"not an array of at least {HEADER_ITEMS} items")
    schema, kind, rank_key, seq, *body = items
    if schema != SCHEMA or isinstance(schema, bool):
        raise ProtocolError("schema", f"schema {_brief(schema)}, this daemon reads {SCHEMA}")
    if not isinstance(rank_key, str) or not 0 < len(rank_key) <= MAX_RANK_KEY:
        raise ProtocolError("field", "rank_key is not a short string")
    _check_int("seq", seq)
    decoder = _DECODERS.get(kind) if isinstance(kind, str) else None
    if decoder is None:
        raise ProtocolError("type", f"unknown type {_brief(kind)}")
    return decoder(rank_key, seq, body)


def _decode_events(rank_key: str, seq: int, body: list[Any]) -> Events:
    _check_length("events", body, 5)
    watermark_ns, first, dropped, overhead_ns, records = body
    _check_int("watermark_ns", watermark_ns)
    _check_int("first", first)
    _check_int("dropped", dropped)
    _check_int("overhead_ns", overhead_ns)
    if not isinstance(records, bytes) or len(records) % EVENT_SIZE:
        raise ProtocolError("field", f"records are not a bin of {EVENT_SIZE}-byte events")
    return Events(rank_key, seq, watermark_ns, first, dropped, overhead_ns, records)


def _decode_hello(rank_key: str, seq: int, body: list[Any]) -> Hello:
    _check_length("hello", body, 1)
    content = body[0]
    if not isinstance(content, dict):
        raise ProtocolError("field", "hello without a map")
    values: dict[str, Any] = {}
    for name, kind in _HELLO_FIELDS.items():
        value = content.get(name)
        if kind == "int":
            # A rank or a local rank that nothing told is -1; all else is counted from 0.
            _check_int(name, value, least=-1)
        elif kind == "str":
            _check_text(name, value)
        else:
            if not isinstance(value, list) or len(value) > MAX_NOTES:
                raise ProtocolError("field", f"{name} is not a short list")
            for item in value:
                _check_text(name, item)
        values[name] = value
    return Hello(rank_key, seq, **values)


def _decode_names(rank_key: str, seq: int, body: list[Any]) -> Names:
    _check_length("names", body, 2)
    for table in body:
        if not isinstance(table, dict):
            raise ProtocolError("field", "names without a map")
        for key, text in table.items():
            _check_int("id", key)
            _check_text("name", text)
    return Names(rank_key, seq, *body)


def _decode_incidents(rank_key: str, seq: int, body: list[Any]) -> Incidents:
    _check_length("incidents", body, 1)
    if not isinstance(body[0], list) or len(body[0]) > incidents.INCIDENTS_MOST:
        raise ProtocolError("field", "incidents are not a short list")
    try:
        return Incidents(rank_key, seq, [incidents.parse(item) for item in body[0]])
    except ValueError as error:
        raise ProtocolError("field", str(error)) from None


def _decode_pipeline(rank_key: str, seq: int, body: list[Any]) -> Pipeline:
    _check_length("pipeline", body, 4)
    keys, alone, batches_per_s, rows = body
    if not isinstance(keys, list) or not isinstance(rows, list) or len(rows) > stages.STAGES_MOST:
        raise ProtocolError("field", "pipeline without its lists")
    for key in keys:
        _check_int("key", key)
    if not isinstance(alone, bool) or not (batches_per_s is None or stages.is_rate(batches_per_s)):
        raise ProtocolError("field", "alone is no boolean, or batches_per_s no rate")
    try:
        return Pipeline(rank_key, seq, keys, alone, batches_per_s, [stages.parse(row) for row in rows])
    except ValueError as error:
        raise ProtocolError("field", str(error)) from None


def _decode_bye(rank_key: str, seq: int, body: list[Any]) -> Bye:
    _check_length("bye", body, 1)
    _check_text("reason", body[0])
    return Bye(rank_key, seq, body[0])


def _decode_stacks(rank_key: str, seq: int, body: list[Any]) -> Stacks:
    _check_length("stacks", body, 2)
    request, text = body
    _check_int("request", request)
    if not isinstance(text, bytes):
        raise ProtocolError("field", "text is not a bin")
    return Stacks(rank_key, seq, request, text)


_DECODERS: dict[str, Callable[[str, int, list[Any]], Message]] = {
    "events": _decode_events,
    "hello": _decode_hello,
    "names": _decode_names,
    "incidents": _decode_incidents,
    "pipeline": _decode_pipeline,
    "bye": _decode_bye,
    "stacks": _decode_stacks,
}
_HELLO_FIELDS = {
    field.name: str(field.type) for field in fields(Hello) if field.name not in {"rank_key", "seq"}
}


def _brief(value: object) -> str:
    # Never the text of a container: nested deeply enough, making it raises RecursionError.
    return repr(value)[:40] if isinstance(value, str | int | float) else f"of type {type(value).__name__}"


def _check_length(kind: str, body: list[Any], length: int) -> None:
    # Later versions may append items; fewer than this schema's is an error.
    if len(body) < length:
        raise ProtocolError("field", f"{kind} has {len(body)} of {length} items")
    del body[length:]


def _check_int(name: str, value: object, least: int = 0) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < U64:
        raise ProtocolError("field", f"{name} is not an integer from {least} to 2^64-1")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ProtocolError("field", f"{name} is not a string of at most {MAX_TEXT} characters")
