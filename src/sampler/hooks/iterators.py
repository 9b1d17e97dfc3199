"""Every way to get an element of a tf.data iterator: eager or inside a `tf.function`, plain or distributed."""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ext import _calls, _events
from ...protocol.phases import Flag, Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names
    from .graph import GraphMarks
    from .patches import Patches

_KEY = "_hpcsampler_key"
_LONGEST_CHAIN, _STAGES_SHOWN = 32, 6
_SITES_MOST = 256
"""Places in functions whose dataset is remembered, the latest."""
_STEP, _END = int(Phase.STEP), int(Kind.END)
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_LIBRARIES = (f"{os.sep}tensorflow{os.sep}", f"{os.sep}keras{os.sep}", _OURS)


@dataclass(frozen=True, slots=True)
class OpenIterator:
    """An eager iterator that somebody holds."""

    reference: weakref.ref[Any]
    resource: Any
    """The tensor that stands for it in TensorFlow."""
    dataset: Any
    keys: list[int]
    """Of the input events that are waits for it, as far as that is known."""
    trains: bool
    """Gradients are computed from what it yields."""


class IteratorHooks:
    """Wraps the methods that block until the next element is there."""

    def __init__(self, names: Names, marks: GraphMarks) -> None:
        from tensorflow.python.eager import context
        from tensorflow.python.util import nest

        self._names = names
        self._marks = marks
        self._nest = nest
        self._context = context.context()
        _ = self._context._thread_local_data.is_eager  # noqa: SLF001 - fails here, if it is gone, and not in `timed_next`
        self._by_dataset: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._by_likeness: dict[tuple[object, ...], tuple[weakref.ref[Any], int]] = {}
        self._last_optional: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._recent: deque[weakref.ref[Any]] = deque(maxlen=16)
        self._open: dict[weakref.ref[Any], None] = {}
        self._fed: dict[int, weakref.ref[Any]] = {}
        self._watched: set[weakref.ref[Any]] = set()

    def install(self, patches: Patches) -> None:
        """Wrap the iterators of this TensorFlow."""
        from tensorflow.python.data.ops import iterator_ops, optional_ops
        from tensorflow.python.distribute import input_lib

        owned, distributed = iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase
        optional = "get_next_as_optional"
        patches.wrap(owned, "__init__", self._made)
        # `__next__` and `get_next` both come through here.
        patches.wrap(owned, "_next_internal", lambda original: self._timed(original, self._next_in_graph), takes=1)
        patches.wrap(owned, optional, lambda original: self._optional(original, outer=False), takes=1)
        patches.wrap(distributed, "get_next", self._distributed_get_next, takes=2)
        patches.wrap(distributed, optional, lambda original: self._optional(original, outer=True), takes=1)
        patches.wrap(optional_ops._OptionalImpl, "get_value", self._get_value)  # noqa: SLF001

    # ---- which dataset -----------------------------------------------------------------------------------------

    def _made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note each eager iterator: one that a function gets as an argument doesn't know its dataset."""

        def init(iterator: Any, *args: Any, **kwargs: Any) -> None:
            original(iterator, *args, **kwargs)
            if getattr(iterator, "_dataset", None) is not None and self._context.executing_eagerly():
                self._recent.append(weakref.ref(iterator))
                self._open[weakref.ref(iterator, self._forget)] = None

        return init

    def _forget(self, reference: weakref.ref[Any]) -> None:
        self._open.pop(reference, None)

    def open_iterators(self) -> list[OpenIterator]:
        """Eager iterators that are in use now, oldest first, with the keys of the waits for them. From any thread."""
        found = []
        for reference in list(self._open):
            iterator = reference()
            dataset = getattr(iterator, "_dataset", None)
            resource = getattr(iterator, "_iterator_resource", None)
            key = getattr(iterator, _KEY, None)
            # Not to be the last to hold it: its end is an event of the thread that lets it go.
            del iterator
            if dataset is None or resource is None:
                continue
            keys = {site for site, fed in list(self._fed.items()) if fed() is dataset}
            if key:
                keys.add(key)
            trains = not keys.isdisjoint(self._marks.trained)
            found.append(OpenIterator(reference, resource, dataset, sorted(keys), trains))
        return found

    def _feeder(self, iterator: Any) -> Any | None:
        """The dataset that feeds an iterator inside a function, as far as can be told: of the newest of its like."""
        dataset = getattr(iterator, "_dataset", None)
        spec = getattr(iterator, "element_spec", None)
        for reference in reversed(self._recent):
            known = reference()
            if dataset is None and known is not None and known.element_spec == spec:
                dataset = known._dataset  # noqa: SLF001
        return dataset

    def _site(self, graph: Any, iterator: Any) -> int:
        """The key of `iterator` in the function being traced, which it gets a name and a dataset by."""
        dataset = self._feeder(iterator)
        site = self._marks.site(graph, iterator, describe(dataset) if dataset is not None else "")
        if dataset is not None:
            if len(self._fed) >= _SITES_MOST:
                self._fed.pop(next(iter(self._fed)), None)
            self._fed[site] = weakref.ref(dataset)
        return site

    # ---- eager --------------------------------------------------------------------------------------------------

    def _timed(self, original: Callable[..., Any], in_graph: Callable[..., Any], *, outer: bool = False) -> Any:
        return _calls.timed_next(original, in_graph, self._context, _KEY, self._new_key, outer=outer)

    def _new_key(self, iterator: Any) -> int:
        """Give an iterator the key of its source, and watch for its end."""
        key = self._source_key(iterator)
        object.__setattr__(iterator, _KEY, key)
        emit, watched = _events.emit, self._watched  # not looked up when the interpreter is going down

        def gone(reference: weakref.ref[Any]) -> None:
            # A loop that was left with `break` ends its last step here.
            watched.discard(reference)
            emit(_STEP, _END, key, 0, Flag.GRAPH)

        watched.add(weakref.ref(iterator, gone))
        return key

    def _source_key(self, iterator: Any) -> int:
        """Each epoch's iterator on one dataset is the same source.

        So is the iterator on a dataset that is made anew for each epoch: built alike and consumed at the same line
        as one that is gone by now.
        """
        dataset = getattr(iterator, "_dataset", None)
        if dataset is None:
            return self._names.key(describe(iterator))
        known = self._by_dataset.get(id(dataset))
        if known is not None and known[0]() is dataset:
            return known[1]
        likeness = (describe(dataset), str(dataset.element_spec), *_users_line())
        alike = self._by_likeness.get(likeness)
        again = alike is not None and alike[0]() is None
        key = alike[1] if alike is not None and again else self._names.key(likeness[0])
        source = (weakref.ref(dataset), key)
        self._by_dataset[id(dataset)] = self._by_likeness[likeness] = source
        return key

    def _distributed_get_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._timed(original, self._next_in_graph, outer=True)

        def get_next(iterator: Any, name: str | None = None) -> Any:
            return timed(iterator) if name is None else original(iterator, name)

        return get_next

    # ---- in a graph ---------------------------------------------------------------------------------------------

    def _next_in_graph(self, original: Callable[..., Any], iterator: Any) -> Any:
        graph = self._marks.graph()
        if graph is None:
            return original(iterator)
        known = self._marks.sites_of(self._marks.function_of(graph))
        site = self._site(graph, iterator)
        body = self._marks.loop_body_of(graph)
        if body is not None:
            self._marks.done_at_end(body, site)
        elif site in known:
            # A loop that Python unrolled: what was to happen with the last element is traced by now.
            self._marks.place_done(site, self._marks.acting_ops())
        beside = getattr(iterator, "_iterator_resource", None)
        begin = self._marks.place(Kind.BEGIN, site, beside=beside)
        with graph.control_dependencies([begin]), _calls.Nested():
            element = original(iterator)
        flat = self._tensors(element)
        end = self._marks.place(Kind.END, site, value=1, after=[begin, *flat], beside=beside)
        return self._marks.behind(end, element)

    def _optional(self, original: Callable[..., Any], *, outer: bool) -> Callable[..., Any]:
        """`get_next_as_optional` does not raise at the end: whether an element came is in the optional."""
        nested = _calls.Nested()

        def get_next_as_optional(iterator: Any) -> Any:
            if nested.active():
                return original(iterator)
            if self._context.executing_eagerly():
                key = getattr(iterator, _KEY, None) or self._new_key(iterator)
                _events.emit(Phase.INPUT, Kind.BEGIN, key)
                got = 0
                try:
                    with nested:
                        optional = original(iterator)
                    got = int(bool(optional.has_value()))
                finally:
                    _events.emit(Phase.INPUT, Kind.END, key, got)
                return optional
            graph = self._marks.graph()
            if graph is None:
                return original(iterator)
            site = self._site(graph, iterator)
            self._last_optional[self._marks.function_of(graph)] = site
            self._marks.done_before_next(graph, site)
            beside = None if outer else getattr(iterator, "_iterator_resource", None)
            begin = self._marks.place(Kind.BEGIN, site, beside=beside)
            with graph.control_dependencies([begin]), nested:
                optional = original(iterator)
            end = self._marks.place(Kind.END, site, after=[begin], present=[optional.has_value()], beside=beside)
            return self._marks.behind(end, optional)

        return get_next_as_optional

    def _get_value(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Where a loop takes the element out of an optional, it computes on it until the end of that branch."""

        def in_graph() -> None:
            graph = self._marks.graph()
            if graph is not None and self._marks.loop_body_of(graph) is not None:
                site = self._last_optional.get(self._marks.function_of(graph))
                if site is not None:
                    self._marks.done_at_end(graph, site)

        return _calls.told_in_graph(original, in_graph, self._context)

    def _tensors(self, element: Any) -> list[Any]:
        return [t for t in self._nest.flatten(element, expand_composites=True) if hasattr(t, "op")]


def _users_line() -> tuple[str, int]:
    """File and line of the innermost caller that is no library of this chain; of the outermost one if all are."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the caller, without the cost of `inspect`
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in _LIBRARIES):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def describe(source: Any) -> str:
    """A dataset as the chain of its transformations, source first: "TFRecord > Map > Batch > Prefetch"."""
    stages: list[str] = []
    for _ in range(_LONGEST_CHAIN):
        if source is None:
            break
        name = getattr(source, "_name", None) or type(source).__name__.strip("_")
        text = str(name).removesuffix("Dataset").removesuffix("DatasetV2")
        if text not in {"Options", "Model", "MaxIntraOpParallelism", "PrivateThreadPool"}:
            stages.append(text)
        source = getattr(source, "_input_dataset", None)
    if len(stages) > _STAGES_SHOWN:
        stages = [*stages[:3], "…", *stages[-2:]]
    return " > ".join(reversed(stages))
