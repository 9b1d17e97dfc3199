"""Ids for what has a name: phases and marks of the user's, and keys of events: iterators, functions, callbacks."""

from __future__ import annotations

import _thread
import itertools

from ..ext import _events

TYPE_CHECKING = False  # see api.py
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1024
"""Names of each kind that one process can have: a name made up anew for every step must not grow without end."""
_SHARED_MOST = 256
"""Of the keys' names, those that are the same each time."""
_LONGEST = 200


def _nobody() -> None:
    """Nobody is to be told."""


class Names:
    """Hands out ids and keeps their names for the daemon. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.phases: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._shared: dict[str, int] = {}
        self._keys_made = 0
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

    def key(self, label: str) -> int:
        """A new key for something of which there may be several of that name, say an iterator.

        Each has a key of its own, without end. Of too many labels, the first ones and the latest are kept.
        """
        most = _MOST - _SHARED_MOST
        with self._lock:
            if len(self._keys) >= most:
                del self._keys[next(itertools.islice(self._keys, most // 2, None))]
            self._keys_made += 1
            self._keys[self._keys_made] = label[:_LONGEST]
            self._new()
            return self._keys_made

    def shared_key(self, label: str) -> int:
        """The key of whatever has this name; 0, which has none, if there are too many already."""
        text = label[:_LONGEST]
        with self._lock:
            key = self._shared.get(text, 0)
            if not key and len(self._shared) < _SHARED_MOST:
                self._keys_made += 1
                key = self._shared[text] = self._keys_made
                self._new()
            return key

    def announced(self) -> tuple[dict[int, str], dict[int, str]]:
        """`({phase id: name}, {key: label})`, for a `names` message; no news any more."""
        with self._lock:
            self.news = False
            keys = {key: name for name, key in self._shared.items()} | self._keys
            return {number: name for name, number in self.phases.items()}, keys

    def renew_lock(self) -> None:
        """In a forked child: another thread may have held the lock at the fork."""
        self._lock = _thread.allocate_lock()
