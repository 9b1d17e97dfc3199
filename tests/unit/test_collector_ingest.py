"""Accounts of events, and what no rank of ours would ever send."""

from __future__ import annotations

import random
import time

import msgpack
import pytest

from hpcsampler.collector import ingest, ranks
from hpcsampler.protocol.messages import MAX_MESSAGE_BYTES, Bye, Events, Names, encode
from hpcsampler.protocol.phases import Kind, Phase
from hpcsampler.sampler import names as sampler_names
from tests.support.ranks import event, hello, steps

S = 10**9
NOW = 1_000 * S
PEER = b"peer"


class Node:
    """An ingest that began at `began_ns`, with one rank that has said hello, attached at `NOW`."""

    def __init__(self, began_ns: int = NOW - S) -> None:
        self.ranks = ranks.Ranks()
        self.ingest = ingest.Ingest(self.ranks, began_ns)
        self.hello = hello(0, key="r0", attach_ns=NOW, monotonic_ns=NOW)
        self.take(encode(self.hello))

    def take(self, *frames: bytes, peer: bytes = PEER, now_ns: int = NOW + 100 * S):
        return self.ingest.take([peer, *frames], now_ns)

    def events(
        self, first: int, records: bytes, *, watermark: int, dropped: int = 0, peer: bytes = PEER,
        key: str = "r0",
    ):
        return self.take(encode(Events(key, 0, watermark, first, dropped, 0, records)), peer=peer)

    @property
    def rank(self) -> ranks.RankState:
        state = self.ranks.get("r0")
        assert state is not None
        return state


@pytest.fixture
def node() -> Node:
    return Node()


def ten_steps(start_ns: int) -> bytes:
    return steps(start_ns, 10, input_ns=30_000_000, step_ns=70_000_000)


def test_every_event_is_folded_or_dropped(node: Node) -> None:
    rng = random.Random(7)
    recorded = refused = lost = 0
    for second in range(60):
        watermark = NOW + (second + 1) * S
        if rng.random() < 0.2:
            refused += rng.randrange(1, 500)
        if rng.random() < 0.3:
            lost += 40
        else:
            node.events(recorded, ten_steps(NOW + second * S), dropped=refused, watermark=watermark)
            sent_refused = refused
        recorded += 40
    node.events(recorded, b"", dropped=refused, watermark=NOW + 61 * S)
    assert sent_refused > 0
    assert lost > 0
    assert node.rank.folded + node.rank.dropped == recorded + refused
    assert node.rank.dropped == lost + refused
    assert not node.ingest.rejected


def test_time_of_lost_batches_is_not_covered_and_nothing_else_suffers(node: Node) -> None:
    node.events(0, ten_steps(NOW), watermark=NOW + S)
    node.events(80, ten_steps(NOW + 2 * S), watermark=NOW + 3 * S)
    timeline = node.rank.timeline
    totals = timeline.totals_ns()
    assert totals[0] == S
    assert totals[Phase.INPUT] == 2 * 300_000_000
    assert timeline.steps == 20


def test_what_a_full_ring_refused_leaves_a_hole_after_the_batch(node: Node) -> None:
    node.events(0, ten_steps(NOW), dropped=5, watermark=NOW + 3 * S)
    node.events(40, ten_steps(NOW + 3 * S), dropped=5, watermark=NOW + 4 * S)
    totals = node.rank.timeline.totals_ns()
    assert totals[0] == 2 * S
    assert totals[Phase.HOST] == 0


@pytest.mark.parametrize(("began_ns", "earlier", "missing"), [(NOW + 49 * S, 400, 0), (NOW - S, 0, 400)])
def test_what_came_before_a_daemon_is_no_drop_of_its_and_it_claims_no_time_before(
    began_ns: int, earlier: int, missing: int,
) -> None:
    node = Node(began_ns)
    node.events(400, ten_steps(NOW + 50 * S), dropped=7, watermark=NOW + 52 * S)
    assert (node.rank.earlier, node.rank.dropped) == (earlier, missing + 7)
    assert node.rank.known_ns == NOW + 50 * S
    assert node.rank.timeline.steps == 10
    totals = node.rank.timeline.totals_ns()
    assert sum(totals) == 2 * S
    assert totals[0] == 0


def test_what_is_lost_after_a_restart_is_dropped() -> None:
    node = Node(NOW + 49 * S)
    node.events(400, ten_steps(NOW + 50 * S), dropped=7, watermark=NOW + 51 * S)
    node.events(480, ten_steps(NOW + 52 * S), dropped=9, watermark=NOW + 53 * S)
    assert (node.rank.earlier, node.rank.folded, node.rank.dropped) == (400, 80, 40 + 9)


def test_all_is_known_of_a_rank_that_waited_for_its_daemon() -> None:
    node = Node(NOW + 5 * S)
    node.events(0, ten_steps(NOW), watermark=NOW + 6 * S)
    assert (node.rank.earlier, node.rank.dropped, node.rank.known_ns) == (0, 0, None)


def test_events_that_came_before_are_not_folded_twice(node: Node) -> None:
    batch = ten_steps(NOW)
    node.events(0, batch, watermark=NOW + S)
    node.events(0, batch, watermark=NOW + S)
    assert node.rank.timeline.steps == 10
    assert node.ingest.rejected == {"stale": 1}
    node.events(20, batch[20 * 24 :] + ten_steps(NOW + S), watermark=NOW + 2 * S)
    assert node.rank.folded == 80
    assert node.rank.timeline.steps == 20


def test_a_watermark_from_the_future_does_not_stop_the_clock(node: Node) -> None:
    forged = event((1 << 64) - 1, Phase.STEP, Kind.BEGIN)
    node.events(0, forged, watermark=(1 << 64) - 1)
    assert node.rank.timeline.now_ns == NOW + 100 * S
    assert node.rank.newest_ns == NOW + 100 * S


def test_numbers_at_their_limits_are_taken(node: Node) -> None:
    extreme = hello(
        3, key="x", pid=(1 << 64) - 1, start_ticks=-1, attach_ns=-1, monotonic_ns=(1 << 64) - 1,
    )
    node.take(encode(extreme), peer=b"x")
    node.events((1 << 64) - 1, event(0, 65535, 255, value=-(1 << 63)), watermark=0, peer=b"x", key="x")
    node.take(encode(hello(4, key="y", attach_ns=-1, monotonic_ns=-1)), peer=b"y")
    node.events(0, event(NOW, Phase.STEP, Kind.BEGIN), watermark=NOW, peer=b"y", key="y")
    assert [state.folded for state in node.ranks] == [0, 1, 1]


def test_events_wait_for_their_ranks_hello(node: Node) -> None:
    late = hello(1, key="r1", attach_ns=NOW, monotonic_ns=NOW)
    node.take(encode(Names("r1", 0, {}, {1: "train"})), peer=b"p1")
    node.events(0, ten_steps(NOW), watermark=NOW + S, peer=b"p1", key="r1")
    assert node.ranks.get("r1") is None
    assert node.take(encode(late), peer=b"p1") is not None
    state = node.ranks.get("r1")
    assert (state.folded, state.dropped, state.key_names) == (40, 0, {1: "train"})


def test_those_who_never_say_hello_are_counted_and_forgotten(node: Node) -> None:
    for ordinal in range(ingest.HELD_MESSAGES + 10):
        node.events(ordinal, b"", watermark=NOW, peer=b"p1", key="r1")
    assert node.ingest.rejected == {"unknown": 10}
    node.ingest.expire(NOW + 200 * S)
    assert node.ingest.rejected == {"unknown": ingest.HELD_MESSAGES + 10}


def test_nobody_speaks_for_a_rank_of_another_process(node: Node) -> None:
    node.events(0, ten_steps(NOW), watermark=NOW + S)
    node.take(encode(hello(9, key="r0", pid=4242)), peer=b"liar")
    node.events(40, ten_steps(NOW + S), watermark=NOW + 2 * S, peer=b"liar")
    node.take(encode(Bye("r0", 0, "")), peer=b"liar")
    node.ingest.expire(NOW + 200 * S)
    assert node.ingest.rejected == {"foreign": 3}
    assert (node.rank.folded, node.rank.said_bye, node.rank.hello.rank) == (40, False, 0)


def test_a_rank_that_connects_anew_goes_on(node: Node) -> None:
    node.events(0, ten_steps(NOW), watermark=NOW + S)
    node.events(40, ten_steps(NOW + S), watermark=NOW + 2 * S, peer=b"again")
    assert node.take(encode(node.hello), peer=b"again") is node.rank
    assert (node.rank.folded, node.rank.dropped, node.rank.timeline.steps) == (80, 0, 20)


def test_attaching_again_begins_anew(node: Node) -> None:
    node.events(0, ten_steps(NOW), watermark=NOW + S)
    node.take(encode(Bye("r0", 0, "detach")))
    again = hello(0, key="r0", attach_ns=NOW + 5 * S, monotonic_ns=NOW + 5 * S)
    node.take(encode(again))
    node.events(40, ten_steps(NOW + 5 * S), watermark=NOW + 6 * S)
    assert (node.rank.folded, node.rank.dropped, node.rank.timeline.steps) == (40, 0, 10)
    assert not node.rank.said_bye


def test_attaching_again_after_a_restart_is_known_from_its_attach_on() -> None:
    node = Node(NOW + 10 * S)
    node.events(400, ten_steps(NOW + 10 * S), watermark=NOW + 11 * S)
    node.take(encode(hello(0, key="r0", attach_ns=NOW + 20 * S, monotonic_ns=NOW + 20 * S)))
    node.events(0, ten_steps(NOW + 20 * S), watermark=NOW + 21 * S)
    assert (node.rank.earlier, node.rank.dropped, node.rank.known_ns) == (0, 0, None)


def test_too_many_ranks_are_turned_away(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "RANKS_MOST", 2)
    node.take(encode(hello(1, key="r1")), peer=b"p1")
    node.take(encode(hello(2, key="r2")), peer=b"p2")
    assert len(node.ranks) == 2
    assert node.ingest.rejected == {"ranks": 1}


def test_names_are_bounded(node: Node) -> None:
    for block in range(3):
        table = {1024 + block * 1000 + i: "n" * 4096 for i in range(1000)}
        node.take(encode(Names("r0", 0, table, {})))
    assert len(node.rank.phase_names) == ingest.NAMES_MOST
    assert max(map(len, node.rank.phase_names.values())) == ingest.TEXT_MOST


def test_of_iterators_without_end_each_has_a_key_and_the_first_and_latest_have_names(node: Node) -> None:
    names = sampler_names.Names()
    keys = [names.key(f"data {i}") for i in range(3000)]
    assert len(set(keys)) == 3000
    for made in (names.announced()[1], {**names.announced()[1], keys[-1] + 1: "another"}):
        node.take(encode(Names("r0", 0, {}, dict(list(made.items())[-ingest.NAMES_MOST:]))))
    known = node.rank.key_names
    assert len(known) == len(made) <= ingest.NAMES_MOST
    assert (known[keys[1]], known[keys[-1]], known[keys[-1] + 1]) == ("data 1", "data 2999", "another")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"\xc1 garbage"], "garbage"),
        ([encode(Events("r0", 0, 0, 0, 0, 0, b"x" * 24))[:-5]], "garbage"),
        ([b"\0" * (MAX_MESSAGE_BYTES + 1)], "oversized"),
        ([msgpack.packb([2, "events", "r0", 0])], "schema"),
        ([msgpack.packb([1, "eval", "r0", 0, "import os"])], "type"),
        ([msgpack.packb([1, "events", "r0", 0, -1, 0, 0, 0, b""])], "field"),
        ([b"one", b"two"], "frames"),
        ([], "frames"),
    ],
)
def test_what_is_no_message_is_counted_by_reason(node: Node, frames: list[bytes], reason: str) -> None:
    node.take(*frames)
    assert node.ingest.rejected == {reason: 1}


def test_no_bytes_raise(node: Node) -> None:
    rng = random.Random(11)
    valid = [
        encode(node.hello),
        encode(Events("r0", 0, NOW, 0, 0, 0, ten_steps(NOW))),
        encode(Names("r0", 0, {1024: "load"}, {1: "train"})),
        encode(Bye("r0", 0, "")),
    ]
    for _ in range(4000):
        message = bytearray(rng.choice(valid))
        for _ in range(rng.randrange(1, 6)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        node.take(bytes(message[: rng.randrange(len(message) + 1)]), now_ns=time.monotonic_ns())
    assert sum(node.ingest.rejected.values()) > 1000


def test_a_full_hold_costs_its_rank_no_time(node: Node) -> None:
    for ordinal in range(ingest.HELD_MESSAGES):
        node.events(ordinal, event(NOW, Phase.STEP, Kind.POINT), watermark=NOW, peer=b"p1", key="r1")
    begin = time.process_time()
    node.take(encode(hello(1, key="r1", attach_ns=NOW, monotonic_ns=NOW)), peer=b"p1")
    assert time.process_time() - begin < 0.5
