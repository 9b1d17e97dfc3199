"""The courier: events from the ring to a real socket, without Python in between."""

from __future__ import annotations

import textwrap

import msgpack

from hpcsampler.protocol import messages

from .test_ring import run

SETUP = """
import zmq
import zmq.backend.cython._zmq as backend
from hpcsampler.protocol import messages
e.open_ring(16384)
courier = e.Courier(messages.events_prefix("0123456789abcdef"), 100.0)
def connected(directory):
    context = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.bind(f"ipc://{directory}/s")
    dealer.setsockopt(zmq.IMMEDIATE, 1); dealer.setsockopt(zmq.LINGER, 0)
    dealer.connect(f"ipc://{directory}/s")
    assert dealer.poll(5000, zmq.POLLOUT)
    assert courier.bind(backend.__file__, dealer.underlying)
    return router, dealer
"""


def program(body: str) -> str:
    return SETUP + textwrap.dedent(body)


def test_what_it_packs_is_an_events_message() -> None:
    run(program("""
        e.record(True); e.emit(4, 1, 7, -5, 2); e.emit(4, 2)
        before = e.now_ns()
        assert courier.next_sequence() == 1
        message = messages.decode(courier.pack())
        assert (message.rank_key, message.seq, message.first, message.dropped) == ("0123456789abcdef", 2, 0, 0)
        assert before <= message.watermark_ns <= e.now_ns()
        assert message.overhead_ns >= 200
        assert [tuple(event[1:]) for event in parse(message.records)] == [(-5, 7, 4, 1, 2), (0, 0, 4, 2, 0)]
        assert courier.pack() == b""            # nothing new, and it said so less than a second ago
        courier.sign()
        message = messages.decode(courier.pack())
        assert (message.seq, message.first, message.count) == (3, 2, 0)
    """))


def test_the_prefix_is_how_the_encoder_begins() -> None:
    whole = messages.encode(messages.Events("k" * 64, 0, 0, 0, 0, 0, b""))
    prefix = messages.events_prefix("k" * 64)
    assert whole.startswith(prefix)
    assert len(msgpack.unpackb(whole)) == messages.EVENTS_ITEMS


def test_more_than_one_message_holds_goes_in_order_and_in_full() -> None:
    run(program("""
        e.record(True)
        for i in range(10000): e.emit(4, 3, 1, i)
        values, first = [], 0
        while packed := courier.pack():
            message = messages.decode(packed)
            assert message.first == first
            first += message.count
            values += [value for _, value, *_ in parse(message.records)]
        assert values == list(range(10000))
    """))


def test_what_could_not_be_sent_counts_as_dropped() -> None:
    run(program("""
        e.record(True)
        for i in range(20000): e.emit(4, 3, 1, i)     # 16384 fit
        first = messages.decode(courier.pack())
        assert first.dropped == 20000 - 16384
        courier.lose()
        second = messages.decode(courier.pack())
        assert second.first == 0 and second.dropped == first.dropped + first.count
    """))


def test_it_counts_from_when_it_was_made() -> None:
    run(program("""
        e.record(True)
        for i in range(20000): e.emit(4, 3, 1, i)
        while e.drain(): pass
        late = e.Courier(messages.events_prefix("x"), 1e6)
        e.emit(4, 3)
        message = messages.decode(late.pack())
        assert (message.first, message.dropped, message.count) == (0, 0, 1)
        assert message.overhead_ns < 1e9
    """))


def test_it_sends_by_itself_until_the_time_is_up() -> None:
    run(program("""
        import tempfile
        with tempfile.TemporaryDirectory() as directory:
            router, dealer = connected(directory)
            e.record(True)
            def produce():
                for i in range(5000): e.emit(4, 3, 1, i); i % 100 or time.sleep(0.004)
            thread = threading.Thread(target=produce); thread.start()
            begin = time.monotonic()
            assert courier.carry(0.02, 0.6) == e.DUE
            assert 0.59 < time.monotonic() - begin < 10
            thread.join()
            while courier.carry(0.01, 0.05) != e.DUE: pass
            values, count = [], 0
            while router.poll(200):
                message = messages.decode(router.recv_multipart()[1])
                assert message.first == len(values)
                values += [value for _, value, *_ in parse(message.records)]
                count += 1
            assert values == list(range(5000))
            assert count > 3
            dealer.close(0); router.close(0)
    """))


def test_it_gives_a_sign_of_life_once_a_second() -> None:
    run(program("""
        import tempfile
        with tempfile.TemporaryDirectory() as directory:
            router, dealer = connected(directory)
            assert courier.carry(0.02, 1.5) == e.DUE
            got = []
            while router.poll(200): got.append(messages.decode(router.recv_multipart()[1]))
            assert len(got) == 2 and all(message.count == 0 for message in got)
            dealer.close(0); router.close(0)
    """))


def test_without_anyone_connected_events_stay_in_the_ring() -> None:
    run(program("""
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.setsockopt(zmq.IMMEDIATE, 1); dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect("ipc:///tmp/hpcsampler-nobody-is-here")
        assert courier.bind(backend.__file__, dealer.underlying)
        e.record(True); e.emit(4, 1, 9)
        assert courier.carry(0.01, 5) == e.BLOCKED
        assert [key for _, _, key, *_ in parse(e.drain())] == [9]
        dealer.close(0)
    """))


def test_without_a_socket_it_says_when_there_is_something_to_send() -> None:
    run(program("""
        assert not courier.bind("/no/such/library.so", 0)
        courier.pack()                      # the first sign of life
        begin = time.monotonic()
        assert courier.carry(0.01, 0.1) == e.READY and time.monotonic() - begin >= 0.09
        e.record(True); e.emit(4, 1)
        begin = time.monotonic()
        assert courier.carry(0.01, 50) == e.READY and time.monotonic() - begin < 20
    """))


def test_waking_and_calling_end_it() -> None:
    run(program("""
        courier.pack()
        threading.Timer(0.05, e.wake).start()
        begin = time.monotonic()
        assert courier.carry(30, 60) == e.WOKEN and time.monotonic() - begin < 20
        courier.call()
        e.record(True); e.emit(4, 1, 9)
        assert courier.carry(0.01, 60) == e.WOKEN
        assert [key for _, _, key, *_ in parse(e.drain())] == [9]      # not sent yet: names come first
    """))
