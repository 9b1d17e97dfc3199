"""What goes the other way: requests for a rank's stacks, from a person to the daemon, to the rank, and back.

Decoding is as strict as that of `messages`: whatever is not exactly one of these raises `ProtocolError`. A request
names something to be told, never something to be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack

from .messages import MAX_TEXT, SCHEMA, U64, ProtocolError

MAX_REQUEST_BYTES: Final = 1024
"""Longest message to a rank or to the daemon."""
MAX_ANSWER_BYTES: Final = 1 << 20
MAX_STACKS_BYTES: Final = 256 << 10
"""Longest text of one rank's stacks: what is longer is cut by the rank."""
_REQUEST_ITEMS: Final = 3
_ASK_ITEMS: Final = 4
_ANSWER_ITEMS: Final = 3


@dataclass(frozen=True, slots=True)
class StacksRequest:
    """Daemon to rank: say what your threads are in."""

    request: int
    """Comes back with the answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Person to daemon: say what the threads of this rank are in."""

    rank: int
    job: str = ""
    """Empty: of any job."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Daemon to person."""

    found: bool
    """Else `text` is one line that says why there are no stacks."""
    text: str


def encode(message: StacksRequest | Ask | Answer) -> bytes:
    """One message as bytes."""
    items: list[Any]
    match message:
        case StacksRequest():
            items = [SCHEMA, "stacks", message.request]
        case Ask():
            items = [SCHEMA, "ask", message.rank, message.job]
        case Answer():
            items = [SCHEMA, message.found, message.text]
    packed: bytes = msgpack.packb(items, unicode_errors="replace")
    return packed


def decode_request(data: bytes) -> StacksRequest:
    """What the daemon asks of a rank. Raises `ProtocolError`."""
    _, kind, request = _items(data, _REQUEST_ITEMS, MAX_REQUEST_BYTES)
    if kind != "stacks":
        raise ProtocolError("type", "an unknown request")
    if not isinstance(request, int) or isinstance(request, bool) or not 0 <= request < U64:
        raise ProtocolError("field", "request is not an integer from 0 to 2^64-1")
    return StacksRequest(request)


def decode_ask(data: bytes) -> Ask:
    """What a person asks of the daemon. Raises `ProtocolError`."""
    _, kind, rank, job = _items(data, _ASK_ITEMS, MAX_REQUEST_BYTES)
    if kind != "ask":
        raise ProtocolError("type", "an unknown question")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < U64:
        raise ProtocolError("field", "rank is not an integer from 0 on")
    if not isinstance(job, str) or len(job) > MAX_TEXT:
        raise ProtocolError("field", "job is not a short string")
    return Ask(rank, job)


def decode_answer(data: bytes) -> Answer:
    """What the daemon says. Raises `ProtocolError`."""
    _, found, text = _items(data, _ANSWER_ITEMS, MAX_ANSWER_BYTES)
    if not isinstance(found, bool) or not isinstance(text, str):
        raise ProtocolError("field", "no answer")
    return Answer(found, text)


def _items(data: bytes, count: int, most_bytes: int) -> list[Any]:
    if len(data) > most_bytes:
        raise ProtocolError("oversized", f"{len(data)} bytes, at most {most_bytes} are taken")
    try:
        items = msgpack.unpackb(data, max_array_len=8, max_map_len=0)
    except Exception as error:  # noqa: BLE001 - msgpack raises half a dozen unrelated types on bad input
        raise ProtocolError("garbage", f"not msgpack: {error}") from None
    if not isinstance(items, list) or len(items) != count:
        raise ProtocolError("garbage", f"not an array of {count} items")
    if items[0] != SCHEMA or isinstance(items[0], bool):
        raise ProtocolError("schema", f"another schema, not {SCHEMA}")
    return items
