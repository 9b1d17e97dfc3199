"""What is traced for XLA is compiled until the call that it was traced for is over."""

from __future__ import annotations

from tests.unit.test_ring import run


def test_a_compile_ends_with_the_outermost_call_and_is_none_without_a_call() -> None:
    run("""
        from hpcsampler.ext import _calls
        e.open_ring(64)
        e.record(True)
        e.set_driver(threading.get_ident())
        class Function:
            _sites = ()
        def body(function, inner):
            inner()
        call = _calls.watched_call(body, "_trains", print, "_sites")
        def compiles():
            _calls.compiles_now(7)
            _calls.compiles_now(8)
        def told():
            return [(phase, key, kind, flags) for _, _, key, phase, kind, flags in parse(e.drain())]
        _calls.compiles_now(7)
        assert told() == []  # traced, and not called
        call(Function(), lambda: call(Function(), compiles))
        assert told() == [(2, 7, 1, 64), (2, 7, 2, 0)]
        def fails():
            compiles()
            raise KeyError
        try:
            call(Function(), fails)
        except KeyError:
            pass
        assert told() == [(2, 7, 1, 64), (2, 7, 2, 0)]
        call(Function(), lambda: None)
        assert told() == []
    """)
