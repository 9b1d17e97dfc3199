"""What lies at the path of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from hpcsampler.sampler.hooks import checkpoint_files
from hpcsampler.sampler.hooks.checkpoint_files import TENSORFLOW, measure


def test_files_and_bytes_of_each_format(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"1" * 10)
    for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00002", "ckpt-1.data-00001-of-00002", "ckpt-11.index"):
        (tmp_path / name).write_bytes(b"1" * 7)
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"1" * 3)
    (tmp_path / "saved" / "variables" / "variables.index").write_bytes(b"1" * 4)
    assert measure(str(tmp_path / "m.keras"), "keras") == (1, 10)
    assert measure(str(tmp_path / "ckpt-1"), TENSORFLOW) == (3, 21)
    assert measure(str(tmp_path / "saved"), "saved model") == (2, 7)
    assert measure(str(tmp_path / "saved"), TENSORFLOW) == (2, 7)


def test_what_cannot_be_seen_has_no_size(tmp_path: Path) -> None:
    assert measure("gs://bucket/ckpt", TENSORFLOW) is None
    assert measure(str(tmp_path / "none"), TENSORFLOW) is None
    assert measure(str(tmp_path / "none" / "ckpt"), TENSORFLOW) is None
    (tmp_path / "m.weights.json").write_text("{}")
    assert measure(str(tmp_path / "m.weights.json"), "keras weights") is None
    for i in range(checkpoint_files._ENTRIES_MOST + 1):
        (tmp_path / f"{i}").touch()
    assert measure(str(tmp_path), "saved model") is None


def test_formats() -> None:
    assert checkpoint_files.format_of("a.weights.h5") == "keras weights"
    assert checkpoint_files.format_of("a.h5") == "hdf5"
    assert checkpoint_files.format_of("a.keras") == "keras"
    assert checkpoint_files.format_of("a") == "saved model"
