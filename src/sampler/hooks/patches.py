"""Replacing attributes of other people's classes and modules, so that every one can be put back."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Wrapper = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Patch:
    owner: Any
    name: Any
    original: Any
    replacement: Any
    inherited: bool


class Patches:
    """What has been replaced, in order, and what could not be."""

    def __init__(self) -> None:
        self._done: list[_Patch] = []
        self.missing: list[str] = []
        """`owner.name` of each target that this version of the framework does not have."""

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Wrapper], *, takes: int | None = None) -> bool:
        """Replace `owner.name` by `make(original)`. False, and noted as missing, if there is none.

        takes: how many arguments the wrapper can pass on; an original that has more or fewer is left alone.
        The wrapper takes over the original's name, module and docs: AutoGraph and error messages look at them.
        """
        original = getattr(owner, name, None)
        if original is None:
            self.missing.append(f"{getattr(owner, '__name__', owner)}.{name}")
            return False
        if takes is not None and not _takes(original, takes):
            self.missing.append(f"{getattr(owner, '__name__', owner)}.{name} (its arguments are others)")
            return False
        replacement = make(original)
        with contextlib.suppress(AttributeError, TypeError, ValueError):  # a compiled function may take, or have, none
            functools.update_wrapper(replacement, original)
            if not hasattr(original, "__wrapped__"):
                # `inspect.getfullargspec` does not follow wrappers: TensorFlow's errors pickle themselves by it.
                replacement.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        inherited = isinstance(owner, type) and name not in vars(owner)
        setattr(owner, name, replacement)
        self._done.append(_Patch(owner, name, original, replacement, inherited))
        return True

    def wrap_item(
        self, table: MutableMapping[Any, Any], key: Any, make: Callable[[Any], Wrapper], *, takes: int,
    ) -> bool:
        """The same for an entry of a dict."""
        original = table.get(key)
        if original is None or not _takes(original, takes):
            self.missing.append(getattr(key, "__name__", str(key)))
            return False
        table[key] = replacement = make(original)
        self._done.append(_Patch(table, key, original, replacement, inherited=False))
        return True

    def targets(self) -> list[str]:
        """What is replaced, as `owner.name`."""
        return [f"{getattr(patch.owner, '__name__', 'registry')}.{getattr(patch.name, '__name__', patch.name)}"
                for patch in self._done]

    def restore(self) -> None:
        """Put everything back, the last first.

        What somebody else has wrapped since is left to them: inside theirs, ours only passes on.
        """
        while self._done:
            patch = self._done.pop()
            if isinstance(patch.owner, MutableMapping):
                if patch.owner.get(patch.name) is patch.replacement:
                    patch.owner[patch.name] = patch.original
            elif vars(patch.owner).get(patch.name) is patch.replacement:
                if patch.inherited:
                    delattr(patch.owner, patch.name)
                else:
                    setattr(patch.owner, patch.name, patch.original)


def _takes(function: Any, count: int) -> bool:
    try:
        return len(inspect.signature(function).parameters) == count
    except (TypeError, ValueError):
        return False
