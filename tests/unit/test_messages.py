"""The wire: what is sent arrives as it was, and nothing that arrives ends the daemon."""

from __future__ import annotations

from dataclasses import fields

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcsampler.protocol.messages import (
    EVENT_SIZE,
    MAX_MESSAGE_BYTES,
    MAX_NAMES,
    MAX_TEXT,
    Bye,
    Events,
    Hello,
    Names,
    Pipeline,
    ProtocolError,
    decode,
    encode,
)
from hpcsampler.protocol.stages import Role, Stage

REASONS = {"oversized", "garbage", "schema", "type", "field"}

u64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=40)
rank_key = st.text(min_size=1, max_size=64)
hello_fields = {
    field.name: {"int": st.integers(-1, 2**64 - 1), "str": text, "list[str]": st.lists(text, max_size=64)}[field.type]
    for field in fields(Hello)
} | {"rank_key": rank_key, "seq": u64}
rate = st.none() | st.floats(min_value=0, allow_infinity=False)
size = st.integers(0, 2**63 - 1)
stage = st.builds(
    Stage, text, text, rate, st.floats(0, 1e6), st.booleans(), rate, rate, size, st.none() | size, rate,
    st.sampled_from(Role), size,
)  # fmt: skip
messages = st.one_of(
    st.builds(Hello, **hello_fields),
    st.builds(
        Events, rank_key, u64, u64, u64, u64, u64,
        st.integers(0, 20).flatmap(lambda n: st.binary(min_size=n * EVENT_SIZE, max_size=n * EVENT_SIZE)),
    ),
    st.builds(Names, rank_key, u64, st.dictionaries(u64, text, max_size=20), st.dictionaries(u64, text, max_size=20)),
    st.builds(Pipeline, rank_key, u64, st.lists(u64, max_size=64), st.booleans(), rate, st.lists(stage, max_size=64)),
    st.builds(Bye, rank_key, u64, text),
)  # fmt: skip


@given(messages)
def test_a_message_arrives_as_it_was_sent(message):
    assert decode(encode(message)) == message


@given(st.binary(max_size=400))
@example(b"\x94" + b"\x91" * 1000 + b"\x01\xa1a\xa1a\x01")  # nested as deep as msgpack goes, in place of the schema
@example(b"\x94\x01" + b"\x91" * 1000 + b"\x01\xa1a\x01")  # in place of the type
@example(b"\x91" * 100_000)
@example(b"\xdd\xff\xff\xff\xff")  # an array of four thousand million items
@example(b"\xc6\xff\xff\xff\xff")
@example(b"\x94\x01\xa3bye\xa1k\xd6\xff\x00\x00\x00\x00")  # a time stamp where a number belongs
def test_garbage_is_refused_by_name(data):
    with pytest.raises(ProtocolError) as caught:
        decode(data)
    assert caught.value.reason in REASONS


@given(messages, st.data())
def test_a_message_cut_short_is_refused(message, data):
    whole = encode(message)
    with pytest.raises(ProtocolError) as caught:
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert caught.value.reason in {"garbage", "field"}


@given(messages, st.data())
def test_a_message_with_a_wrong_byte_never_raises_anything_else(message, data):
    whole = bytearray(encode(message))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(whole))
    except ProtocolError as error:
        assert error.reason in REASONS  # noqa: PT017 - many wrong bytes make another message


numbers = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
scalars = st.none() | numbers | st.text(max_size=5) | st.binary(max_size=30)
keys = st.text(max_size=3) | st.integers(0, 9)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from(["hello", "events", "names", "bye"]), st.lists(anything, max_size=6))
def test_fields_of_any_type_never_raise_anything_else(kind, body):
    try:
        decode(msgpack.packb([1, kind, "key", 1, *body]))
    except ProtocolError as error:
        assert error.reason in REASONS  # noqa: PT017 - a few fit


def refused(items: object) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode(msgpack.packb(items))
    return caught.value.reason


def test_reasons():
    assert refused([2, "bye", "k", 1, ""]) == "schema"
    assert refused([True, "bye", "k", 1, ""]) == "schema"
    assert refused([1, "shutdown", "k", 1]) == "type"
    assert refused([1, ["bye"], "k", 1, ""]) == "type"
    assert refused([1, "bye", "", 1, ""]) == "field"
    assert refused([1, "bye", "k" * 65, 1, ""]) == "field"
    assert refused([1, "bye", "k", -1, ""]) == "field"
    assert refused([1, "bye", "k", True, ""]) == "field"
    assert refused([1, "bye", "k", 1]) == "field"
    assert refused([1, "bye", "k", 1, "x" * (MAX_TEXT + 1)]) == "field"
    assert refused([1, "events", "k", 1, 0, 0, 0, 0, b"x" * (EVENT_SIZE + 1)]) == "field"
    assert refused([1, "events", "k", 1, 0, 0, 0, 0, "x" * EVENT_SIZE]) == "field"
    assert refused([1, "names", "k", 1, {"a": "b"}, {}]) == "field"
    assert refused([1, "names", "k", 1, dict.fromkeys(range(MAX_NAMES + 1), ""), {}]) == "garbage"
    assert refused([1, "hello", "k", 1, {}]) == "field"
    assert refused({"schema": 1}) == "garbage"
    assert refused([1, "bye", "k"]) == "garbage"
    with pytest.raises(ProtocolError) as caught:
        decode(b"\x00" * (MAX_MESSAGE_BYTES + 1))
    assert caught.value.reason == "oversized"


def test_items_that_a_later_version_appends_are_passed_over():
    assert decode(msgpack.packb([1, "bye", "k", 1, "exit", "more", 5])) == Bye("k", 1, "exit")


def test_a_name_that_is_no_utf8_arrives_without_what_is_none():
    """A file name in Latin-1 comes from the system with surrogates: it must not stop the sampler."""
    assert decode(encode(Names("r", 1, {1024: "caf\udce9"}, {}))).phases == {1024: "caf?"}


def test_a_batch_counts_its_events():
    assert Events("k", 1, 0, 0, 0, 0, bytes(3 * EVENT_SIZE)).count == 3
