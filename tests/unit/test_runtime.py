"""The runtime directory: found in a fixed order, made closed to others, and never used where it is not safe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcsampler.errors import RuntimeDirectoryError
from hpcsampler.runtime import RuntimeDirectory, check, foresee, locate, prepare


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, "/tmp/hpcsampler-7"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/hpcsampler"),
        ({"XDG_RUNTIME_DIR": "/x", "RUNTIME_DIRECTORY": "/run/hpcsampler:/run/other"}, "/run/hpcsampler"),
        ({"RUNTIME_DIRECTORY": "/x", "HPCSAMPLER_RUNTIME_DIR": "/scratch/me"}, "/scratch/me"),
        ({"HPCSAMPLER_RUNTIME_DIR": ""}, "/tmp/hpcsampler-7"),
    ],
)
def test_the_directory_is_looked_for_in_order(environ, path):
    assert locate(environ, 7).path == Path(path)


def test_a_relative_directory_means_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert locate({"HPCSAMPLER_RUNTIME_DIR": "here"}, 7).path == tmp_path / "here"


def test_it_is_made_for_its_owner_alone(tmp_path):
    directory = RuntimeDirectory(tmp_path / "a" / "b")
    old = os.umask(0)
    try:
        prepare(directory)
    finally:
        os.umask(old)
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert list(directory.path.iterdir()) == []
    prepare(directory)


def refusal(directory: RuntimeDirectory) -> str:
    with pytest.raises(RuntimeDirectoryError) as caught:
        prepare(directory)
    text = str(caught.value)
    assert "\n" not in text
    assert str(directory.path) in text
    return text


def test_too_long_for_a_socket(tmp_path):
    assert "shorter path" in refusal(RuntimeDirectory(tmp_path / ("x" * 100)))
    assert not (tmp_path / ("x" * 100)).exists()


def test_the_longest_that_fits_takes_a_socket(tmp_path):
    import socket

    base = str(tmp_path)
    directory = RuntimeDirectory(Path(base + "/" + "x" * (107 - len(base) - 1 - len("/snapshots.sock"))))
    prepare(directory)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(directory.snapshots_address.removeprefix("ipc://"))


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "f").touch()
    assert "is not a directory" in refusal(RuntimeDirectory(tmp_path / "f"))
    assert "Not a directory" in refusal(RuntimeDirectory(tmp_path / "f" / "below"))


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "is not a directory" in refusal(RuntimeDirectory(tmp_path / "link"))


def test_open_to_others(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "d").chmod(0o750)
    assert "chmod 700" in refusal(RuntimeDirectory(tmp_path / "d"))


def test_a_place_that_all_share_is_not_to_be_closed(tmp_path):
    """As root finds /tmp to be its own."""
    shared = tmp_path / "d"
    shared.mkdir()
    shared.chmod(0o1777)
    said = refusal(RuntimeDirectory(shared))
    assert "chmod" not in said
    assert f"a folder of your own, such as {shared}/hpcsampler-{os.getuid()}" in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_another_users(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    os.chown(tmp_path / "d", 12345, 12345)
    assert "belongs to user 12345" in refusal(RuntimeDirectory(tmp_path / "d"))


def test_where_nothing_can_be_made():
    assert "can't make the runtime directory" in refusal(RuntimeDirectory(Path("/proc/hpcsampler")))


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    def full(path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "No space left on device" in refusal(RuntimeDirectory(tmp_path / "d"))


def test_what_would_be_wrong_is_foreseen_without_making_it(tmp_path, monkeypatch):
    directory = RuntimeDirectory(tmp_path / "a" / "b")
    assert foresee(directory) is False
    assert list(tmp_path.iterdir()) == []
    prepare(directory)
    assert foresee(directory) is True
    assert list(directory.path.iterdir()) == []
    directory.path.chmod(0o755)
    (tmp_path / "file").touch()
    for wrong, said in (
        (directory, "open to others"),
        (RuntimeDirectory(tmp_path / "file" / "below"), "Not a directory"),
        (RuntimeDirectory(tmp_path / ("x" * 100)), "shorter path"),
    ):
        with pytest.raises(RuntimeDirectoryError, match=said):
            foresee(wrong)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may do everything
    with pytest.raises(RuntimeDirectoryError, match="Permission denied"):
        foresee(RuntimeDirectory(tmp_path / "other"))


def test_what_is_not_there_yet_is_said(tmp_path):
    with pytest.raises(RuntimeDirectoryError, match="nothing of hpcsampler runs here yet"):
        check(RuntimeDirectory(tmp_path / "none"))
