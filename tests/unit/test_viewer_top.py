"""The live screen's keys, driven through Textual's own pilot."""

from __future__ import annotations

import time

import pytest

from hpcsampler.viewer.cells import UNICODE
from hpcsampler.viewer.frame import View
from hpcsampler.viewer.order import SORTS
from hpcsampler.viewer.top import INTERVALS, TopApp
from tests.support import snapshots

pytestmark = pytest.mark.asyncio


class Scripted:
    """A source that gives what it is told to, and the last of it again and again, as a daemon does.

    However slow the machine is: data that grows old would bring a message, and take the room of a row.
    """

    def __init__(self, *shots) -> None:
        self.shots = list(shots)
        self.last = None
        self.bad_frames = 0

    def poll(self):
        if self.shots:
            self.last = self.shots.pop(0)
        return fresh(self.last) if self.last is not None else None


def fresh(shot):
    return {**shot, "monotonic_ns": time.monotonic_ns()}


def app_of(*shots) -> TopApp:
    view = View(width=80, height=24, place="/run/somewhere", glyphs=UNICODE)
    return TopApp(Scripted(*[fresh(shot) for shot in shots]), view, color=True)


def screen(app) -> str:
    widget = app._painter
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))


async def test_shows_the_snapshot_and_quits() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert "waits for input 37 %" in screen(app)
        assert all(len(line) <= 100 for line in screen(app).splitlines())
        await pilot.press("q")
    assert app.return_value == 0


async def test_waits_for_a_daemon_that_is_not_there_yet() -> None:
    app = app_of()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "waiting for a daemon in /run/somewhere" in screen(app)
        app._source.shots.append(fresh(snapshots.two_cpu_ranks()))
        for _ in range(100):
            await pilot.pause(0.02)
            if "job demo" in screen(app):
                break
        assert "job demo" in screen(app)


@pytest.mark.parametrize("key", ["question_mark", "h"])
async def test_help_and_back(key) -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        assert "blocked while a checkpoint is written" in screen(app)
        await pilot.press("q")
        assert "blocked while" not in screen(app)
        await pilot.press(key, "escape")
        assert "blocked while" not in screen(app)
        assert app.is_running


async def test_help_scrolls_where_it_does_not_fit() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.press("question_mark", "end")
        assert "worst first" in screen(app)
        await pilot.press("home")
        assert "Keys" in screen(app)


@pytest.mark.parametrize("key", ["p", "space", "u"])
async def test_pause_holds_the_screen_and_goes_on(key) -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        assert "PAUSED" in screen(app)
        app._source.shots.append(fresh(snapshots.two_cpu_ranks()))
        app._tick()
        await pilot.pause()
        assert "8 ranks" in screen(app)
        await pilot.press(key)
        app._source.shots.append(fresh(snapshots.two_cpu_ranks()))
        app._tick()
        await pilot.pause()
        assert "2 ranks" in screen(app)


async def test_plus_is_faster_and_minus_slower_within_bounds() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "every 0.5 s" in screen(app)
        await pilot.press("plus")
        assert "every 0.25 s" in screen(app)
        await pilot.press("plus")
        assert "every 0.25 s" in screen(app)
        await pilot.press(*["minus"] * 20)
        assert f"every {INTERVALS[-1]:g} s" in screen(app)
        await pilot.press("minus", "equals_sign")
        assert f"every {INTERVALS[-2]:g} s" in screen(app)


async def test_s_goes_through_every_order_and_r_turns_it() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(120, 24)) as pilot:
        for sort in (*SORTS[1:], SORTS[0]):
            await pilot.press("s")
            assert f"sort: {sort}" in screen(app)
        await pilot.press("comma")
        assert f"sort: {SORTS[-1]}" in screen(app)
        await pilot.press("r")
        assert "reversed" in screen(app)


async def test_arrows_select_and_scroll_through_512_ranks() -> None:
    app = app_of(snapshots.many_ranks())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "1-19 of 512" in screen(app)
        await pilot.press("down", "j", "up", "k", "j")
        assert app._frame.selected == 1
        await pilot.press("pagedown", "pagedown")
        assert app._frame.selected == 39
        await pilot.press("end")
        assert "494-512 of 512" in screen(app)
        await pilot.press("down")
        assert app._frame.selected == 511
        await pilot.press("pageup", "home", "up")
        assert app._frame.selected == 0


async def test_the_selected_rank_stays_selected_as_rows_come_and_go() -> None:
    four = [snapshots.rank(at) for at in range(4)]
    app = app_of(snapshots.snapshot(four))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j", "j")
        app._source.shots.append(fresh(snapshots.snapshot(four[1:])))
        app._tick()
        await pilot.pause()
        assert "rank 2 of 8" in screen(app)


async def test_resizes() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((200, 50), (40, 10), (120, 30)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert len(screen(app).splitlines()) == size[1]
        assert "memory" in screen(app)


async def test_only_lines_that_changed_are_painted() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        painted = []
        app._painter.refresh = lambda *regions, **_: painted.append([region.y for region in regions])
        for rate in (99.0, 98.0):
            shot = snapshots.eight_gpus()
            shot["ranks"][2]["steps_per_s"] = rate
            app._source.shots.append(fresh(shot))
            before = app._history.bucket
            app._tick()
            if app._history.bucket == before:  # else all trends have moved on, as they do every five seconds
                break
        assert painted
        assert set(painted[-1]) <= {0, 8}
        assert 8 in painted[-1]


async def test_ctrl_c_leaves() -> None:
    app = app_of(snapshots.eight_gpus())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+c")
    assert app.return_value == 130
