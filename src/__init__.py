"""hpcsampler: says live, per GPU, why it is not working."""

from __future__ import annotations

from ._version import __version__
from .errors import HpcsamplerError
from .sampler.api import attach, detach, mark, pause, phase, resume, snapshot, step

__all__ = [
    "HpcsamplerError", "__version__", "attach", "detach", "mark", "pause", "phase", "resume", "snapshot", "step",
]
