"""The folder of a demo: what one that was killed leaves goes with the next, and nothing else does."""

from __future__ import annotations

import os

import pytest

from hpcsampler.demo.folder import DemoFolder, remove_left_over


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_over(scratch, name="hpcsampler-demo-abc"):
    folder = scratch / name
    folder.mkdir(mode=0o700)
    (folder / "demo.lock").touch()
    (folder / "rank0.log").touch()
    return folder


def test_one_that_is_left_over_goes(scratch):
    left_over(scratch)
    remove_left_over()
    assert list(scratch.iterdir()) == []


def test_one_that_is_in_use_stays_until_its_demo_is_done(scratch):
    held = DemoFolder()
    assert held.path.stat().st_mode & 0o777 == 0o700
    remove_left_over()
    assert (held.path / "demo.lock").exists()
    held.remove()
    assert list(scratch.iterdir()) == []


def test_logs_that_the_user_was_told_of_stay(scratch):
    told = DemoFolder()
    (told.path / "rank0.log").touch()
    told.keep()
    remove_left_over()
    assert [path.name for path in told.path.iterdir()] == ["rank0.log"]


def test_what_is_no_folder_of_a_demo_stays(scratch):
    (scratch / "hpcsampler-demo-file").touch()
    (scratch / "hpcsampler-demo-other").mkdir()
    (scratch / "other").mkdir()
    (scratch / "other" / "demo.lock").touch()
    (scratch / "hpcsampler-demo-link").symlink_to(scratch / "other")
    before = sorted(scratch.rglob("*"))
    remove_left_over()
    assert sorted(scratch.rglob("*")) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_stays(scratch):
    folder = left_over(scratch)
    os.chown(folder, 12345, 12345)
    remove_left_over()
    assert folder.exists()
