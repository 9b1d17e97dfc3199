"""Ids for what has a name: phases and marks of the user's, and the iterators and places that yield data."""

from __future__ import annotations

import _thread
import itertools

from ..ext import _events

TYPE_CHECKING = False  # see api.py
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1024
"""Names of each kind that one process can have: a name made up anew for every step must not grow without end."""
_LONGEST = 200


def _nobody() -> None:
    """Nobody is to be told."""


class Names:
    """Hands out ids and keeps their names for the daemon. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.phases: dict[str, int] = {}
        self._iterators: dict[int, str] = {}
        self._iterators_made = 0
        self.news = False
        """There are names that were not announced yet."""
        self.on_new: Callable[[], None] = _nobody
        """Called with each new name, on whatever thread gives it: names are to be announced before they are used."""

    def _new(self) -> None:
        self.news = True
        self.on_new()

    def phase(self, name: object) -> int:
        """The id of a phase or mark; 0 if there are too many already."""
        text = str(name)[:_LONGEST]
        with self._lock:
            number = self.phases.get(text)
            if number is None:
                if len(self.phases) >= _MOST:
                    return 0
                number = _events.FIRST_USER_PHASE + len(self.phases)
                self.phases[text] = number
                self._new()
            return number

    def iterator(self, label: str) -> int:
        """A new key for something that yields elements.

        Each has a key of its own, without end. Of too many labels, the first ones and the latest are kept.
        """
        with self._lock:
            if len(self._iterators) >= _MOST:
                del self._iterators[next(itertools.islice(self._iterators, _MOST // 2, None))]
            self._iterators_made += 1
            key = self._iterators_made
            self._iterators[key] = label[:_LONGEST]
            self._new()
            return key

    def announced(self) -> tuple[dict[int, str], dict[int, str]]:
        """`({phase id: name}, {iterator key: label})`, for a `names` message; no news any more."""
        with self._lock:
            self.news = False
            return {number: name for name, number in self.phases.items()}, dict(self._iterators)

    def renew_lock(self) -> None:
        """In a forked child: another thread may have held the lock at the fork."""
        self._lock = _thread.allocate_lock()
