"""Questions and answers: strict, bounded, and only ever told."""

from __future__ import annotations

import threading

import msgpack
import pytest

from hpcsampler.collector.inquiries import PATIENCE_S, WAITING_MOST, Inquiries
from hpcsampler.collector.ranks import RankState
from hpcsampler.protocol.control import (
    MAX_STACKS_BYTES,
    Answer,
    Ask,
    StacksRequest,
    decode_answer,
    decode_ask,
    decode_request,
    encode,
)
from hpcsampler.protocol.messages import ProtocolError, Stacks
from hpcsampler.sampler.stacks import stacks
from tests.support.ranks import hello

S = 1_000_000_000


def test_what_is_encoded_is_decoded() -> None:
    assert decode_request(encode(StacksRequest(7))) == StacksRequest(7)
    assert decode_ask(encode(Ask(3, "job"))) == Ask(3, "job")
    assert decode_ask(encode(Ask(3, "caf\udce9"))) == Ask(3, "caf?")
    assert decode_answer(encode(Answer(True, "text"))) == Answer(True, "text")


@pytest.mark.parametrize("decode", [decode_request, decode_ask, decode_answer])
@pytest.mark.parametrize(
    "items",
    [
        [], [1], [1, "stacks", -1], [2, "stacks", 1], [True, "stacks", 1], [1, "exec", 1], [1, "stacks", "1"],
        [1, "stacks", True], [1, "ask", -1, ""], [1, "ask", 1, 2], [1, "ask", 1, "x" * 5000], [1, 1, "text"],
        [1, "stacks", {"a": 1}], {"a": 1}, "text", None, [1, "stacks", 1, 1], [[[[[[1]]]]]],
    ],
)
def test_whatever_is_not_exactly_one_is_refused(decode, items) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(items))


@pytest.mark.parametrize("decode", [decode_request, decode_ask, decode_answer])
def test_garbage_is_refused(decode) -> None:
    for data in (b"", b"\xc1", b"\x93\x01", b"x" * 5000, encode(StacksRequest(1)) + b"\x00"):
        with pytest.raises(ProtocolError):
            decode(data)


class Wire:
    def __init__(self) -> None:
        self.asked: list[tuple[bytes, bytes]] = []
        self.answers: list[tuple[bytes, Answer]] = []
        self.told: list[tuple[bytes, StacksRequest]] = []

    def questions(self) -> list[tuple[bytes, bytes]]:
        asked, self.asked = self.asked, []
        return asked

    def answer(self, who: bytes, data: bytes) -> None:
        self.answers.append((who, decode_answer(data)))

    def tell(self, peer: bytes, data: bytes) -> None:
        self.told.append((peer, decode_request(data)))


def rank_of(number: int, job: str = "job") -> RankState:
    state = RankState(hello(number, job=job, key=f"{job}-{number}"), f"peer {job} {number}".encode(), 0, 0)
    state.watched = True
    return state


def test_a_question_goes_to_the_rank_and_its_answer_to_whoever_asked() -> None:
    wire = Wire()
    inquiries = Inquiries(wire)
    wire.asked = [(b"me", encode(Ask(1)))]
    inquiries.look([rank_of(0), rank_of(1)], 0)
    [(peer, request)] = wire.told
    assert peer == b"peer job 1"
    # Another rank does not answer for it, and an answer to no question goes nowhere.
    inquiries.told(Stacks("job-0", 1, request.request, b"forged"))
    inquiries.told(Stacks("job-1", 1, request.request + 1, b"late"))
    assert wire.answers == []
    inquiries.told(Stacks("job-1", 1, request.request, b"Thread \xff"))
    assert wire.answers == [(b"me", Answer(True, "Thread \ufffd"))]
    inquiries.look([rank_of(0), rank_of(1)], 100 * S)
    assert len(wire.answers) == 1


def test_a_rank_that_does_not_answer_is_shown_as_the_kernel_sees_it() -> None:
    wire = Wire()
    inquiries = Inquiries(wire)
    wire.asked = [(b"me", encode(Ask(0)))]
    ranks = [rank_of(0)]  # this very process
    inquiries.look(ranks, 0)
    inquiries.look(ranks, int(PATIENCE_S * S) - 1)
    assert wire.answers == []
    inquiries.look(ranks, int(PATIENCE_S * S))
    [(_, answer)] = wire.answers
    assert answer.found
    assert "It does not answer" in answer.text
    assert f"    {threading.get_native_id()} " in answer.text


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (Ask(5), "no rank 5 runs on this node: there are 0, 1"),
        (Ask(0, "other"), "no rank 0 of 'other'"),
        (Ask(1), "several jobs: choose one by --job, of 'a', 'b'"),
    ],
)
def test_a_question_that_means_no_rank_is_answered_with_what_to_do(ask: Ask, words: str) -> None:
    wire = Wire()
    wire.asked = [(b"me", encode(ask))]
    Inquiries(wire).look([rank_of(0, "a"), rank_of(1, "a"), rank_of(1, "b")], 0)
    [(_, answer)] = wire.answers
    assert not answer.found
    assert words in answer.text


def test_who_floods_it_with_questions_is_sent_away() -> None:
    wire = Wire()
    inquiries = Inquiries(wire)
    wire.asked = [(b"%d" % i, encode(Ask(0))) for i in range(WAITING_MOST + 5)] + [(b"x", b"garbage")]
    inquiries.look([rank_of(0)], 0)
    assert len(wire.told) == WAITING_MOST
    assert len(wire.answers) == 6


def test_stacks_name_threads_and_functions_and_leave_out_ones_own() -> None:
    stop = threading.Event()

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        else:
            stop.wait()

    started = threading.Thread(target=deep, args=(300,), name="the\nloader")
    started.start()
    try:
        text = stacks(0).decode()
        assert "Thread MainThread" in text.splitlines()[0]
        assert "the\nloader" in text
        assert "deep (" in text
        assert "frames further out" in text
        own = stacks(threading.get_ident()).decode()
        assert "MainThread" not in own
        assert len(own) < MAX_STACKS_BYTES
    finally:
        stop.set()
        started.join()
