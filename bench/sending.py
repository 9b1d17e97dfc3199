"""What the sampler's own threads use while a rank trains: the sender and ZeroMQ's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .stats import bootstrap_median, median
from .table import Row

_SECONDS = 8
_RANK = f"""
import os, threading, time
import hpcsampler

def used():
    main = threading.get_native_id()
    return sum(int(open(f"/proc/self/task/{{task}}/schedstat").read().split()[0])
               for task in os.listdir("/proc/self/task") if int(task) != main)

hpcsampler.attach(strict=True)
span, wait = hpcsampler.step(), hpcsampler.phase("wait")
time.sleep(2)
before, begin = used(), time.monotonic()
while time.monotonic() - begin < {_SECONDS}:
    with wait: time.sleep(0.005)
    with span: time.sleep(0.005)
print((used() - before) / (time.monotonic() - begin) / 1e9)
"""


def sender(rounds: int = 6) -> Row:
    """A rank of about 100 steps a second, four events each, against a bare thread that wakes as often, side by side."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "wake"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", "-o", program, Path(__file__).parent / "wake.c"], check=True,
        )
        shares, bares = [], []
        for _ in range(rounds):
            rank = subprocess.Popen([sys.executable, "-c", _RANK], stdout=subprocess.PIPE, text=True)
            bare = subprocess.run(
                [program, str(10 * _SECONDS)], check=True, stdout=subprocess.PIPE, text=True,
            ).stdout
            told, _ = rank.communicate(timeout=60)
            shares.append(float(told))
            bares.append(float(bare) / _SECONDS / 1e9)
    share = bootstrap_median(shares)
    return Row(
        "the sampler's threads in a rank, ~100 steps/s (sender, ZeroMQ)",
        f"{share.middle:.3%} of a core [{share.low:.3%}, {share.high:.3%}]",
        f"a thread that wakes ten times a second and does nothing ({median(bares):.3%})",
        "≤ 0.1 %", share.high <= 0.001,
        {"share": share.middle, "low": share.low, "high": share.high, "bare": median(bares)},
    )
