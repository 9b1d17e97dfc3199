"""hpcsampler: says live, per GPU, why it is not working."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
