"""Incidents of this process, from the thread on which they happen to the sender."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ..protocol.incidents import INCIDENTS_MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.incidents import Incident

_MOST = 512
"""Incidents that wait for a daemon; of more, the latest."""


def _nobody() -> None:
    """Nobody is to be told."""


class Incidents:
    """A bounded queue. Safe from any thread."""

    def __init__(self) -> None:
        self._queue: deque[Incident] = deque(maxlen=_MOST)
        self.on_new: Callable[[], None] = _nobody
        """Called with each new one, on the thread on which it happens."""

    def add(self, incident: Incident) -> None:
        """Have it sent, soon."""
        self._queue.append(incident)
        self.on_new()

    def take(self) -> list[Incident]:
        """Remove and return the oldest, as many as fit in a message."""
        found: list[Incident] = []
        try:
            while len(found) < INCIDENTS_MOST:
                found.append(self._queue.popleft())
        except IndexError:
            pass
        return found

    def put_back(self, unsent: list[Incident]) -> None:
        """Take back what could not be sent, unless newer ones have taken all the room."""
        room = _MOST - len(self._queue)
        self._queue.extendleft(reversed(unsent[max(0, len(unsent) - room) :]))

    def clear(self) -> None:
        """Forget those of a former session."""
        self._queue.clear()
