"""Python's garbage collector."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ...ext import _calls

if TYPE_CHECKING:
    from ..names import Names

_GENERATIONS = 3


class CollectionHooks:
    """One entry in `gc.callbacks`, while attached."""

    def __init__(self, names: Names) -> None:
        self._callback = _calls.Collections([names.shared_key(f"generation {i}") for i in range(_GENERATIONS)])

    def install(self) -> None:
        """Be told of each collection."""
        if not self.installed:
            gc.callbacks.append(self._callback)

    @property
    def installed(self) -> bool:
        """Whether it is told."""
        return any(callback is self._callback for callback in gc.callbacks)

    def restore(self) -> None:
        """Be told no more."""
        gc.callbacks[:] = [callback for callback in gc.callbacks if callback is not self._callback]
