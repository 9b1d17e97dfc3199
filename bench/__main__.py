"""Run everything, and write RESULTS.md and results.json beside this file."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .table import Row, markdown

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="WORD", help="only the parts whose name has this word; writes nothing")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long each training is measured (45)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hps-") as directory:
        os.environ["HPCSAMPLER_RUNTIME_DIR"] = directory
        os.environ["HPCSAMPLER_LINGER_S"] = "1"
        rows = _measure(options.only or "", options.seconds)
    table = markdown(rows)
    print(table)
    if not options.only:
        (HERE / "RESULTS.md").write_text(_page(table), encoding="utf-8")
        (HERE / "results.json").write_text(
            json.dumps([{"what": row.what, **row.values} for row in rows], indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )


def _measure(only: str, seconds: float) -> list[Row]:
    from . import events, node, sending, training

    parts: dict[str, Callable[[], Row | list[Row]]] = {
        "import": events.start_up,
        "c": events.from_c,
        "python": events.from_python,
        "marks": training.graph_marks,
        "training": lambda: training.whole_training(seconds),
        "sender": sending.sender,
        "daemon": node.daemon_at_work,
        "limit": node.daemon_at_its_limit,
        "top": node.screen,
    }
    rows: list[Row] = []
    for name, part in parts.items():
        if only in name:
            print(f"measuring: {name} …", flush=True)
            measured = part()
            rows += measured if isinstance(measured, list) else [measured]
    return rows


def _page(table: str) -> str:
    packages = []
    for name in ("tensorflow-cpu", "tensorflow", "keras", "numpy", "pyzmq", "msgpack", "textual"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    return f"""# What hpcsampler costs

Written by `make bench` on {today}: {os.cpu_count()} × {cpu}, Linux {platform.release()},
CPython {platform.python_version()}, {", ".join(packages)}. No GPU: where GPUs are named they are SIMULATED.

Every figure is measured against something else in the same run, in turns, so that what the machine does besides
hits both. In brackets: the 95 % bootstrap interval of the median.

{table}

How to read it: *training* compares blocks of steps with the sampler recording and paused, in turns within one run,
with a daemon at work on the same cores; hooks and marks are in place in both, and what a mark costs has a row of its
own. "CPU" is the CPU time of all threads of the process, the sampler's own thread included.

{_MISSES}"""


_MISSES = """## Where a budget is missed, and why

- **Whole training, graph marks**: on a virtual machine of two shared cores, two blocks of the same steps differ by
  several percent, and a call of a `tf.function` by tens of microseconds. An interval that is wider than its budget
  says that the machine can't tell; it neither shows the budget met nor broken. Of the shortest `fit` an earlier run
  said more: 0.4 % at least. A step of `fit` has 13 events (1 µs of them); begin and end of a batch, with one callback
  of the user's, then took 11.6 µs more than without hpcsampler, in Python, and take 5 to 7 µs more in C, in a tight
  loop. What the sampler knows of its own cost (its thread's CPU time and a measured cost for each event, `overhead` in
  the snapshot) was 0.05 to 0.07 % of a core with two busy ranks.
- **The sampler's threads**: two of them wake ten times a second, and each wake costs here about what a thread pays that
  does nothing else; sending less often would take it off, and cost as much latency. Runs before the hooks for phases
  and stages came gave 0.11 %.
- **Import**: an editable install, as `make` makes it, imports its finder's helpers with the package (4 ms of it).
- **Daemon, CPU**: 0.8 % in the quietest run, more under neighbours' load: what wakes five times a second finds cold
  caches, and the same work takes a third of the time without a pause. A fifth of it is NVML, about 200 calls a second
  for 8 GPUs at 10 Hz; a quarter is ZeroMQ's thread, which wakes for each of 80 messages a second; the rest takes them
  in and builds snapshots.
"""


if __name__ == "__main__":
    main()
