"""What lies at the path of a checkpoint: which format, how many files, how many bytes."""

from __future__ import annotations

import os
import stat

_ENTRIES_MOST = 2000
"""Directory entries looked at. The training waits for it, and what is larger has no number."""
TENSORFLOW = "tensorflow checkpoint"
"""The format whose path is what the names of its files begin with."""
_FORMATS = (
    (".weights.h5", "keras weights"), (".weights.json", "keras weights"), (".keras", "keras"), (".h5", "hdf5"),
    (".hdf5", "hdf5"),
)


def format_of(path: str) -> str:
    """What Keras makes of a path."""
    return next((name for suffix, name in _FORMATS if path.endswith(suffix)), "saved model")


def measure(path: str, kind: str) -> tuple[int, int] | None:
    """`(files, bytes)` of a checkpoint of this format; None if that can't be seen."""
    if "://" in path or path.endswith(".weights.json"):  # that one only lists its shards
        return None
    try:
        if kind == TENSORFLOW:
            directory, prefix = os.path.split(path)
            if found := _sum(directory or ".", prefix + "."):
                return found
        status = os.stat(path)  # noqa: PTH116 - pathlib is slower, and the training waits
        return _sum(path, "") if stat.S_ISDIR(status.st_mode) else (1, status.st_size)
    except OSError:
        return None


def _sum(directory: str, prefix: str) -> tuple[int, int] | None:
    """Of all files in a directory whose names begin so; without a prefix, of those below it, too."""
    files = size = seen = 0
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > _ENTRIES_MOST:
                    return None
                if not entry.name.startswith(prefix):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not prefix:
                        waiting.append(entry.path)
                else:
                    files += 1
                    size += entry.stat().st_size
    return (files, size) if files else None
