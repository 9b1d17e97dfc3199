"""What every Python thread of this process is in, as text. Runs on the sender's thread, when somebody asks."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from ..protocol.control import MAX_STACKS_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_FRAMES_MOST = 100
_THREADS_MOST = 200
_LONGEST = 300
"""Characters of a name or path."""


def stacks(own: int) -> bytes:
    """All threads but the one of ident `own`, as UTF-8: the main thread first, each innermost frame first.

    At most `MAX_STACKS_BYTES`; what is longer is cut. Holds the GIL for some microseconds per frame. Reads no source:
    that would keep the training from running for as long as the file system takes.
    """
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to other threads' frames
    # Not `threading.enumerate`: its lock may be held by the very thread that is stuck.
    threads: dict[int, threading.Thread] = threading._active.copy()  # type: ignore[attr-defined] # noqa: SLF001
    names = {ident: thread.name for ident, thread in threads.items()}
    main = threading.main_thread().ident
    order = sorted((ident for ident in frames if ident != own), key=lambda ident: (ident != main, ident))
    parts = []
    for ident in order[:_THREADS_MOST]:
        name = names.get(ident, "a thread that was not started by Python's threading")
        parts.append(f"Thread {name[:_LONGEST]} ({ident:#x})")
        parts.extend(f"    {line}" for line in _lines(frames[ident]))
        parts.append("")
    if len(order) > _THREADS_MOST:
        parts.append(f"and {len(order) - _THREADS_MOST} more threads")
    text = "\n".join(parts).encode("utf-8", "replace")
    return text[:MAX_STACKS_BYTES]


def _lines(frame: FrameType | None) -> Iterator[str]:
    count = 0
    while frame is not None:
        if count < _FRAMES_MOST:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            yield f"{name[:_LONGEST]} ({code.co_filename[-_LONGEST:]}:{frame.f_lineno})"
        count += 1
        frame = frame.f_back
    if count > _FRAMES_MOST:
        yield f"… and {count - _FRAMES_MOST} frames further out"
