"""What one event costs, from C and from Python, and one `next()`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from hpcsampler.ext import _calls, _events
from hpcsampler.protocol.phases import Kind, Phase

from .stats import bootstrap_median, interleaved, median, ratio
from .table import Row

_EXT = Path(__file__).parent.parent / "src" / "ext"


def from_c() -> Row:
    """`hps_emit` against a bare `clock_gettime`, in a C program of its own."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "event"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O3", "-D_GNU_SOURCE", "-std=gnu11", f"-I{_EXT}", "-o", program,
             Path(__file__).parent / "event.c", _EXT / "ring.c", "-lpthread"],
            check=True,
        )
        output = subprocess.run([program, "60"], check=True, stdout=subprocess.PIPE, text=True).stdout
    pairs = [tuple(map(float, line.split())) for line in output.splitlines()]
    times = bootstrap_median([event / clock for clock, event in pairs])
    return Row(
        "one event from C", f"{times.middle:.2f} × [{times.low:.2f}, {times.high:.2f}]"
        f" ({median([event for _, event in pairs]):.0f} ns)",
        f"`clock_gettime` ({median([clock for clock, _ in pairs]):.0f} ns)", "≤ 2 ×", times.high <= 2,
        {"ratio": times.middle, "low": times.low, "high": times.high},
    )


def from_python(rounds: int = 60, calls: int = 20_000) -> list[Row]:
    """`mark()`, `step()` and the wrappers of `next()` and `.numpy()` against `time.perf_counter_ns()`."""
    import hpcsampler

    _events.open_ring(65536)
    _events.set_driver(threading.get_ident())
    _events.record(True)
    hpcsampler.mark("loss", 1)
    emit, mark = _events.emit, hpcsampler.mark
    input_phase, begin = int(Phase.INPUT), int(Kind.BEGIN)
    span = hpcsampler.step()
    eager = _Eager()
    plain, timed = _iterator(None), _iterator(eager)

    def drained(name: str) -> float:
        ns = _LOOPS[name](calls, locals_)
        _events.drain(65536)
        return ns

    locals_ = {
        "clock": time.perf_counter_ns, "emit": emit, "mark": mark, "phase": input_phase, "begin": begin, "span": span,
        "plain": plain, "timed": timed, "value": _Value(), "waited": _Waited(),
    }
    results = interleaved({name: (lambda name=name: drained(name)) for name in _LOOPS}, rounds)
    _events.record(False)
    clock_ns = median(results["clock"])
    rows = []
    for name, what, budget in (
        ("emit", "one event from Python (`emit`)", 2.0),
        ("mark", 'one `hpcsampler.mark("loss", value)`', 2.0),
        ("step", "one `with hpcsampler.step():` (two events)", None),
    ):
        times = ratio(results, name, "clock")
        rows.append(Row(
            what, f"{times.middle:.2f} × [{times.low:.2f}, {times.high:.2f}] ({median(results[name]):.0f} ns)",
            f"`time.perf_counter_ns()` ({clock_ns:.0f} ns)", "" if budget is None else f"≤ {budget:g} ×",
            None if budget is None else times.high <= budget,
            {"ratio": times.middle, "low": times.low, "high": times.high},
        ))
    for what, hooked, bare in (
        ("`next(iterator)` wrapped, eager: added", "timed", "plain"),
        ("`tensor.numpy()`, `float(tensor)` wrapped: added", "waited", "value"),
    ):
        added = bootstrap_median([
            (with_hook - without) / clock for with_hook, without, clock
            in zip(results[hooked], results[bare], results["clock"], strict=True)
        ])
        rows.append(Row(
            what,
            f"{added.middle:.2f} × [{added.low:.2f}, {added.high:.2f}]"
            f" ({median(results[hooked]) - median(results[bare]):.0f} ns)",
            "`time.perf_counter_ns()`", "≤ 4 ×", added.high <= 4,
            {"ratio": added.middle, "low": added.low, "high": added.high},
        ))
    return rows


def start_up(rounds: int = 15) -> Row:
    """`import hpcsampler` over a bare interpreter."""
    def run(program: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return (time.perf_counter() - begin) * 1e3

    # What an editable install adds to every start of this interpreter is in both.
    results = interleaved({"bare": lambda: run("pass"), "import": lambda: run("import hpcsampler")}, rounds)
    added = bootstrap_median([a - b for a, b in zip(results["import"], results["bare"], strict=True)])
    return Row(
        "`import hpcsampler`: added", f"{added.middle:.1f} ms [{added.low:.1f}, {added.high:.1f}]",
        f"`python -c pass` ({median(results['bare']):.0f} ms)", "≤ 15 ms", added.high <= 15,
        {"ms": added.middle, "low": added.low, "high": added.high},
    )


class _Eager:
    """Stands in for TensorFlow's eager context, whose like is a compiled object too."""

    class _Local(threading.local):
        is_eager = True

    def __init__(self) -> None:
        self._thread_local_data = self._Local()


class _Plain:
    _hpcsampler_key = 1

    def _next_internal(self) -> int:
        return 1

    def __next__(self) -> int:
        return self._next_internal()


def _iterator(context: _Eager | None) -> _Plain:
    """An iterator as TensorFlow's is built, with the wrapper or without, and nothing behind it."""
    if context is None:
        return _Plain()

    class Timed(_Plain):
        pass

    Timed._next_internal = _calls.timed_next(
        _Plain._next_internal, lambda original, self: original(self), context, "_hpcsampler_key", lambda _: 1,
    )
    return Timed()


class _Value:
    """An eager tensor that is computed already."""

    def _numpy(self) -> int:
        return 1


class _Waited(_Value):
    _numpy = _calls.timed_wait(_Value._numpy, Phase.DEVICE)


def _loop(statement: str) -> object:
    """A loop around one statement, without the cost of calling a function for it."""
    source = (
        "def loop(calls, names, clock_ns):\n"
        "    clock=names['clock']; emit=names['emit']; mark=names['mark']; phase=names['phase']; begin=names['begin']\n"
        "    span=names['span']; plain=names['plain']; timed=names['timed']\n"
        "    value=names['value']; waited=names['waited']\n"
        "    start = clock_ns()\n"
        "    for _ in range(calls):\n"
        f"        {statement}\n"
        "    return (clock_ns() - start) / calls\n"
    )
    names: dict[str, object] = {}
    exec(source, names)
    loop = names["loop"]
    return lambda calls, locals_: loop(calls, locals_, time.perf_counter_ns)  # type: ignore[operator]


_LOOPS = {
    "clock": _loop("clock()"),
    "emit": _loop("emit(phase, begin)"),
    "mark": _loop("mark('loss', 1)"),
    "step": _loop("with span: pass"),
    "plain": _loop("next(plain)"),
    "timed": _loop("next(timed)"),
    "value": _loop("value._numpy()"),
    "waited": _loop("waited._numpy()"),
}
