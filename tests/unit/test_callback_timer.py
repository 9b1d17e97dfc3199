"""Each of Keras's callbacks is timed under its own name, and is what it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hpcsampler.ext import _events
from hpcsampler.sampler.hooks import callbacks as module
from hpcsampler.sampler.hooks.callbacks import CallbackTimer
from hpcsampler.sampler.names import Names


class Callback:
    """As Keras's: what does nothing says so."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        pass

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.on_batch_end(batch, logs)

    for method in (on_epoch_end, on_batch_end, on_train_batch_end):
        method._is_default = True  # type: ignore[attr-defined]


class Called(Callback):
    def __init__(self) -> None:
        self.got: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.got.append((type(self), epoch, logs))


class CallbackList:
    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = list(callbacks)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen = list(self.callbacks)
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setattr(_events, "recording", lambda: True)
    return Names()


def test_only_what_does_something_is_stood_in_for_and_all_is_put_back(names: Names) -> None:
    timed = CallbackTimer(names).timed("on_epoch_end", CallbackList.on_epoch_end)
    idle, called = Callback(), Called()
    several = CallbackList(idle, called)
    timed(several, 3, {"loss": 1.0})
    assert called.got == [(Called, 3, {"loss": 1.0})]
    assert several.callbacks == [idle, called]
    assert several.seen[0] is idle
    assert several.seen[1] is not called
    assert several.seen[1].got is called.got  # all else is passed on
    assert set(names.announced()[1].values()) == {"Keras CallbackList", "Called.on_epoch_end"}
    timed(CallbackList(idle), 4)
    other = Called()
    several.callbacks[1] = other
    timed(several, 5)
    assert (len(called.got), len(other.got)) == (1, 1)


def test_an_exception_passes_through(names: Names) -> None:
    def broken(epoch: int, logs: Any) -> None:
        raise KeyError(epoch)

    callback = Callback()
    callback.on_epoch_end = broken  # type: ignore[method-assign]
    several = CallbackList(callback)
    with pytest.raises(KeyError):
        CallbackTimer(names).timed("on_epoch_end", CallbackList.on_epoch_end)(several, 3)
    assert several.callbacks == [callback]
    assert "broken() on_epoch_end" in names.announced()[1].values()


def test_a_copy_of_the_list_has_nothing_of_ours(names: Names) -> None:
    several = CallbackList(Called())
    CallbackTimer(names).timed("on_epoch_end", CallbackList.on_epoch_end)(several, 3)
    several.seen = []
    assert not vars(copy.deepcopy(several))[module._STAND_INS]


def test_the_older_name_of_a_method_counts(names: Names) -> None:
    class Old(Callback):
        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    assert module._label(Old(), "on_train_batch_end") == "Old.on_batch_end"
    assert module._label(Callback(), "on_train_batch_end") is None


def test_names_that_are_the_same_have_one_key_and_are_bounded(names: Names) -> None:
    assert names.shared_key("a") == names.shared_key("a") != names.key("a")
    keys = {names.shared_key(f"function {i}") for i in range(1000)}
    assert 0 in keys
    assert len(names.announced()[1]) < 300
