"""What a workload knows of its own time: for how many seconds each phase was on, by its own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SLEEP_S = 0.1
told: dict[str, float] = {}
open_phases: list[list[Any]] = []


@contextmanager
def telling(phase: str) -> Iterator[None]:
    """What is in here is that phase's, but for what is in another one within."""

    def charge() -> None:
        now = time.monotonic()
        if open_phases:
            name, since = open_phases[-1]
            told[name] = told.get(name, 0.0) + now - since
            open_phases[-1][1] = now

    charge()
    open_phases.append([phase, time.monotonic()])
    try:
        yield
    finally:
        charge()
        open_phases.pop()
        if open_phases:
            open_phases[-1][1] = time.monotonic()


def sleep(phase: str, seconds: float = SLEEP_S) -> None:
    with telling(phase):
        time.sleep(seconds)


def within(phase: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """All that a function does is that phase's."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **kwargs: Any) -> Any:
            with telling(phase):
                return function(*args, **kwargs)

        return inside

    return decorate
