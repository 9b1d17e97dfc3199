"""Each of Keras's callbacks is timed under its own name, and is what it was."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from hpcsampler.ext import _events, _keras
from hpcsampler.protocol.phases import Kind, Phase
from hpcsampler.sampler.hooks import callbacks as module
from hpcsampler.sampler.hooks.callbacks import CallbackTimer
from hpcsampler.sampler.names import Names
from tests.support.records import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
def names() -> Iterator[Names]:
    _events.open_ring(1024)
    _events.record(True)
    yield Names()
    _events.record(False)
    _events.drain()


def timed(names: Names) -> Callable[..., None]:
    method = CallbackTimer(names).timed("on_epoch_end", CallbackList.on_epoch_end)
    return _keras.between(method, _keras.Batches(1))


def test_each_that_does_something_is_told_and_the_list_is_what_it_was(names: Names) -> None:
    run = timed(names)
    idle, called = Callback(), Called()
    several = CallbackList(idle, called)
    run(several, 3, {"loss": 1.0})
    assert called.got == [(Called, 3, {"loss": 1.0})]
    assert several.callbacks == [idle, called]
    assert type(several.callbacks) is list
    assert all(a is b for a, b in zip(several.seen, (idle, called), strict=True))
    assert set(names.announced()[1].values()) == {"Keras CallbackList", "Called.on_epoch_end"}
    run(CallbackList(idle), 4)
    other = Called()
    several.callbacks[1] = other
    run(several, 5)
    assert (len(called.got), len(other.got)) == (1, 1)


def test_an_exception_passes_through(names: Names) -> None:
    def broken(epoch: int, logs: Any) -> None:
        raise KeyError(epoch)

    callback = Callback()
    callback.on_epoch_end = broken  # type: ignore[method-assign]
    several = CallbackList(callback)
    with pytest.raises(KeyError):
        timed(names)(several, 3)
    assert several.callbacks == [callback]
    assert "broken() on_epoch_end" in names.announced()[1].values()


def test_a_copy_of_the_list_has_nothing_of_ours(names: Names) -> None:
    several = CallbackList(Called())
    timed(names)(several, 3)
    several.seen = []
    assert vars(several)["_hpcsampler_keys"]
    assert not vars(copy.deepcopy(several))["_hpcsampler_keys"]


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


def test_a_callback_that_looks_at_its_list_finds_what_it_would_find_without_us(names: Names) -> None:
    class Looks(Called):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            inside = made.callbacks
            assert isinstance(inside, list)
            assert any(callback is self for callback in inside)
            assert [type(callback) for callback in inside] == [Looks, Called]
            assert inside.index(self) == 0
            assert type(copy.copy(inside)) is type(pickle.loads(pickle.dumps(inside[2:]))) is list
            inside[1].told = epoch

    other = Called()
    made = CallbackList(Looks(), other)
    timed(names)(made, 3)
    assert other.told == 3  # type: ignore[attr-defined]
    told = [(kind, names.announced()[1][key]) for _, _, key, _, kind, _ in parse(_events.drain())]
    assert told == [
        (Kind.BEGIN, "Keras CallbackList"), (Kind.BEGIN, "Looks.on_epoch_end"), (Kind.END, "Looks.on_epoch_end"),
        (Kind.BEGIN, "Called.on_epoch_end"), (Kind.END, "Called.on_epoch_end"), (Kind.END, "Keras CallbackList"),
    ]


def test_a_callback_that_changes_its_list_changes_it(names: Names) -> None:
    class Adds(Called):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            made.callbacks.append(last)
            made.callbacks.remove(self)
            super().on_epoch_end(epoch, logs)

    first, last = Adds(), Called()
    middle = [Called(), Called()]
    made = CallbackList(first, *middle)
    held = made.callbacks
    timed(names)(made, 3)
    assert made.callbacks is held
    assert held == [*middle, last]
    # As Python's loop over a list that is changed has it: what took the place of the one that went is passed over.
    assert [len(callback.got) for callback in (first, *middle, last)] == [1, 0, 1, 1]


def test_what_replaces_the_list_stays(names: Names) -> None:
    class Replaces(Called):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            made.callbacks = other

    other: list[Any] = [Called()]
    made = CallbackList(Replaces())
    timed(names)(made, 3)
    assert made.callbacks is other


class Slots:
    """A callback may be anything that has the methods, and may say what it likes when it is looked at."""

    __slots__ = ("epochs",)

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)


def test_a_callback_that_has_no_dict_is_timed_too(names: Names) -> None:
    callback = Slots()
    timed(names)(CallbackList(callback), 3)
    assert callback.epochs == [3]
    assert "Slots.on_epoch_end" in names.announced()[1].values()


def test_what_fails_when_it_is_looked_at_is_not_timed_and_runs(names: Names) -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:
            raise RuntimeError

    class Odd(Slots, metaclass=Meta):
        pass

    callback = Odd()
    timed(names)(CallbackList(callback), 3)
    assert callback.epochs == [3]


@pytest.mark.parametrize(("first", "last", "steps"), [
    (0, 0, 1), (3, 7, 5), (0, None, 1), (None, 3, 1), (7, 3, 1), (1 << 70, 1 << 71, 1), (-4, 2, 1), ("a", 2, 1),
])  # fmt: skip
def test_a_batch_end_counts_the_steps_since_its_begin(names: Names, first: Any, last: Any, steps: int) -> None:
    batches = _keras.Batches(1)
    timer = CallbackTimer(names)
    called: list[Any] = []
    begin = _keras.batch_begin(timer.timed("on_train_batch_begin", lambda *a: called.append(a)), batches, Phase.STEP)
    end = _keras.batch_end(timer.timed("on_train_batch_end", lambda *a: called.append(a)), batches, Phase.STEP)
    several = CallbackList()
    begin(several, first)
    end(several, last, logs={})
    end(several, last)  # that of no step
    batches.leave()
    assert called == [(several, first, None), (several, last, {}), (several, last, None)]
    told = [(kind, value) for _, value, _, phase, kind, _ in parse(_events.drain()) if phase == Phase.STEP]
    assert told == [(Kind.BEGIN, 0), (Kind.END, steps)]


def test_a_step_that_the_data_ended_in_comes_to_nothing(names: Names) -> None:
    batches = _keras.Batches(1)
    method = CallbackTimer(names).timed("on_train_batch_begin", lambda *a: None)
    _keras.batch_begin(method, batches, Phase.STEP)(CallbackList(), 0)
    timed_end = CallbackTimer(names).timed("on_epoch_end", CallbackList.on_epoch_end)
    _keras.between(timed_end, batches)(CallbackList(), 0)
    told = [(kind, value) for _, value, _, phase, kind, _ in parse(_events.drain()) if phase == Phase.STEP]
    assert told == [(Kind.BEGIN, 0), (Kind.END, 0)]
