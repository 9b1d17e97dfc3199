"""Garbage collections as events: in a process of its own, because a process has only one ring."""

from __future__ import annotations

import gc

from hpcsampler.sampler.hooks.collections import CollectionHooks
from hpcsampler.sampler.names import Names
from tests.unit.test_ring import run


def test_short_collections_of_the_youngest_are_left_out_and_all_others_told() -> None:
    run("""
        from hpcsampler.ext._calls import Collections
        e.open_ring(64)
        told = Collections([7, 8, 9])
        told("start", {"generation": 0}); told("stop", {"generation": 0})
        e.record(True)
        told("stop", {"generation": 0})  # it began before
        told("start", {"generation": 0}); told("stop", {"generation": 0})
        assert not e.drain()
        told("start", {"generation": 0}); time.sleep(0.001); told("stop", {"generation": 0})
        (t1, *first), (t2, *second) = parse(e.drain())
        assert (first, second) == ([0, 7, 3, 1, 0], [0, 7, 3, 2, 0]) and t2 - t1 > 1e6
        told("start", {"generation": 2})
        assert [each[1:] for each in parse(e.drain())] == [(2, 9, 3, 1, 0)]
        told("stop", {"generation": 2})
        assert [each[1:] for each in parse(e.drain())] == [(2, 9, 3, 2, 0)]
        def elsewhere():
            told("start", {"generation": 1}); told("stop", {"generation": 1})
        thread = threading.Thread(target=elsewhere); thread.start(); thread.join()
        assert [each[5] for each in parse(e.drain())] == [1, 1]
    """)


def test_the_callback_is_there_while_hooked_only() -> None:
    before = list(gc.callbacks)
    hooks = CollectionHooks(Names())
    hooks.install()
    hooks.install()
    assert len(gc.callbacks) == len(before) + 1
    hooks.restore()
    assert gc.callbacks == before
