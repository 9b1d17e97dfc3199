"""Real workers of one strategy: the slowed one is found, with what keeps it; where none is slowed, nobody is blamed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.workers import Workers

if TYPE_CHECKING:
    from tests.support.daemons import DaemonProcess, Viewer

pytest_plugins = ["tests.support.daemon_fixtures"]
WITHIN_S = 10.0
LONG = bool(os.environ.get("HPCSAMPLER_LONG_TESTS"))
"""Then none is blamed for five minutes, not for half of one."""


def all_train(snapshot: Any, count: int) -> bool:
    return sum(rank["step"] >= 14 for rank in snapshot["ranks"]) == count


def blamed(snapshot: Any) -> dict[int, tuple[int, str | None]]:
    """Of each rank that blames one: whom, and why."""
    found = {rank["rank"]: rank.get("straggler", {}) for rank in snapshot["ranks"]}
    return {
        rank: (said["blamed_on_rank"], said.get("cause")) for rank, said in found.items() if "blamed_on_rank" in said
    }


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("mode", "cause"), [("compute", "step"), ("input", "input")])
def test_the_slowed_rank_is_blamed_within_ten_seconds_with_what_slows_it(
    mode: str, cause: str, daemon: DaemonProcess, viewer: Viewer,
) -> None:
    modes = ["none", "none", mode, "none"]
    with Workers(daemon.directory.path, modes, "attach", "forever"):
        viewer.until(lambda snapshot: all_train(snapshot, 4), "all train", 150)
        everybody = dict.fromkeys((0, 1, 3), (2, cause))
        snapshot = viewer.until(
            lambda snapshot: blamed(snapshot) == everybody, "rank 2 is blamed by all others", WITHIN_S,
        )
        ranks = {rank["rank"]: rank for rank in snapshot["ranks"]}
        assert ranks[2]["straggler"]["steady"]
        assert ranks[2]["straggler"]["source"] == "collective"
        for rank in (0, 1, 3):
            straggler = ranks[rank]["straggler"]
            assert straggler["wait_share"] > ranks[2]["straggler"]["wait_share"]
            split = straggler["wait_share"] + straggler["network_share"]
            # The one is as of the last look, a second ago or less, the other of now.
            assert split == pytest.approx(ranks[rank]["phases"]["collective"], abs=0.15)


@pytest.mark.timeout(600 if LONG else 200)
@pytest.mark.parametrize("modes", [["none"] * 4, ["none", "jitter", "none", "none"]], ids=["none", "jitter"])
def test_where_none_is_steadily_slower_nobody_is_blamed(
    modes: list[str], daemon: DaemonProcess, viewer: Viewer,
) -> None:
    with Workers(daemon.directory.path, modes, "attach", "forever"):
        viewer.until(lambda snapshot: all_train(snapshot, 4), "all train", 150)
        end = time.monotonic() + (300 if LONG else 30)
        judged = 0
        while time.monotonic() < end:
            snapshot = viewer.next()
            assert blamed(snapshot) == {}
            judged += all("wait_share" in rank.get("straggler", {}) for rank in snapshot["ranks"])
        assert judged > 50  # five a second, once there is enough to judge by
