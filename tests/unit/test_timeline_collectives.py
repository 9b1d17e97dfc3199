"""Which collectives a rank was in, and from when to when."""

from __future__ import annotations

from hpcsampler.protocol.phases import COLLECTIVE_KEYS, Flag, Kind, Phase, collective_value
from tests.support.records import MS, Script, ms

KEY = COLLECTIVE_KEYS | 1


def name(ordinal: int, members: int = 2) -> int:
    return collective_value(members, 5, ordinal)


def arrives(script: Script, at_ms: float, ordinal: int, *, key: int = KEY, flags: int = Flag.GRAPH) -> Script:
    return script.at(at_ms, Phase.COLLECTIVE, Kind.BEGIN, key, name(ordinal), flags)


def leaves(script: Script, at_ms: float, ordinal: int, *, key: int = KEY, flags: int = Flag.GRAPH) -> Script:
    return script.at(at_ms, Phase.COLLECTIVE, Kind.END, key, name(ordinal), flags)


def test_each_is_told_once_with_its_arrival_and_departure() -> None:
    script = Script()
    leaves(arrives(script, 10, 100), 15, 100)
    leaves(arrives(script, 20, 101), 22, 101)
    timeline = script.fold(30)
    since, found = timeline.collectives(0, 0)
    start = script.start_ns
    assert found == [
        (KEY, name(100), 1, 0, start + 10 * MS, start + 15 * MS),
        (KEY, name(101), 1, start + 15 * MS, start + 20 * MS, start + 22 * MS),
    ]
    assert timeline.collectives(since, 0) == (2, [])
    assert ms(timeline)[Phase.COLLECTIVE] == 7


def test_one_that_goes_on_is_told_when_it_is_over_and_those_after_it_with_it() -> None:
    script = Script()
    arrives(script, 10, 100)
    leaves(arrives(script, 11, 101), 12, 101)
    timeline = script.fold(20)
    assert timeline.collectives(0, 0) == (0, [])
    assert timeline.open_collective() == (KEY, name(100), script.start_ns + 10 * MS)
    rest = leaves(Script(start_ns=script.start_ns), 30, 100)
    timeline.feed(b"".join(rest.records), script.start_ns + 40 * MS)
    assert [found[1] for found in timeline.collectives(0, 0)[1]] == [name(100), name(101)]
    # Two at once are one wait.
    assert ms(timeline)[Phase.COLLECTIVE] == 20


def test_replicas_of_a_rank_arrive_with_the_last_and_leave_with_the_last() -> None:
    script = Script()
    arrives(arrives(script, 10, 100), 12, 100)
    leaves(leaves(script, 20, 100), 21, 100)
    _, found = script.fold(30).collectives(0, 0)
    assert found == [(KEY, name(100), 2, 0, script.start_ns + 12 * MS, script.start_ns + 21 * MS)]


def test_after_lost_events_a_collective_without_an_end_is_not_told() -> None:
    script = Script()
    arrives(script, 10, 100)
    timeline = script.fold(15)
    timeline.gap()
    rest = Script(start_ns=script.start_ns)
    leaves(leaves(arrives(rest, 20, 101), 21, 101), 21, 100)
    timeline.feed(b"".join(rest.records), script.start_ns + 30 * MS)
    assert [found[1] for found in timeline.collectives(0, 0)[1]] == [name(101)]
    assert timeline.open_collective() is None


def test_an_error_that_leaves_the_graph_ends_the_wait() -> None:
    script = arrives(Script(), 10, 100)
    script.at(20, Phase.INPUT, Kind.END, 0, 0, Flag.GRAPH | Flag.ABORT)
    timeline = script.fold(50)
    assert ms(timeline)[Phase.COLLECTIVE] == 10
    assert timeline.collectives(0, 0) == (1, [])


def test_an_end_that_never_came_does_not_hold_up_those_after_it_for_ever() -> None:
    script = arrives(Script(), 1, 1)
    for i in range(2, 102):
        leaves(arrives(script, i, i), i + 0.5, i)
    timeline = script.fold(200)
    assert [found[1] for found in timeline.collectives(0, 0)[1]] == [name(i) for i in range(2, 102)]
    assert timeline.open_phase()[0] != Phase.COLLECTIVE


def test_of_many_the_same_ones_are_told_on_all_ranks() -> None:
    told = []
    for offset in (0, 0.3):
        script = Script()
        for i in range(512):
            leaves(arrives(script, i + offset, 1000 + i), i + 0.5, 1000 + i)
        _, found = script.fold(1000).collectives(0, 3)
        told.append([record[1] for record in found])
    assert told[0] == told[1]
    assert 48 <= len(told[0]) <= 80
    assert {value % 2 for value in told[0]} == {0, 1}


def test_those_of_other_threads_are_told_but_are_no_wait_of_the_training() -> None:
    flags = Flag.OTHER_THREAD
    script = leaves(arrives(Script(), 10, 100, flags=flags), 15, 100, flags=flags)
    timeline = script.fold(30)
    assert len(timeline.collectives(0, 0)[1]) == 1
    assert Phase.COLLECTIVE not in ms(timeline)


def test_one_without_a_number_is_a_wait_but_has_no_name() -> None:
    script = Script()
    for at_ms in (10, 20):
        script.at(at_ms, Phase.COLLECTIVE, Kind.BEGIN, KEY, 0, Flag.GRAPH)
        script.at(at_ms + 5, Phase.COLLECTIVE, Kind.END, KEY, 0, Flag.GRAPH)
    timeline = script.fold(30)
    assert timeline.collectives(0, 0) == (2, [])
    assert ms(timeline)[Phase.COLLECTIVE] == 10
