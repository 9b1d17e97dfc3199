# cython: language_level=3, boundscheck=False, wraparound=False
"""Keras's calls of its callbacks, timed: they bound its steps, and take time themselves."""

import sys

from cpython.object cimport PyObject_Call
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from hpcsampler.ext._events cimport BEGIN, CALLBACK, END, EVALUATION, EXACT, STEP, here, is_recording, put


cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() nogil

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


# ---- batches ----------------------------------------------------------------------------------------------------

cdef class Batches:
    """Where Keras is: the batch that it has begun, of a training or an evaluation."""

    cdef int64_t first
    cdef uint16_t open_phase
    cdef uint32_t key

    def __init__(self, uint32_t key):
        """key: of the events of a batch that is evaluated."""
        self.key = key

    cdef begin(self, uint16_t phase, batch):
        self.first = ordinal(batch)
        self.open_phase = phase
        self.tell(phase, BEGIN, 0, 0)

    cdef end(self, uint16_t phase, batch):
        """Both ends of what is executed at once are told as indices; with steps_per_execution > 1 it is this many
        steps at most. The marks in the graph count the elements that really came, and win."""
        cdef int64_t last = ordinal(batch)
        cdef int64_t done = last - self.first + 1 if 0 <= self.first <= last else 1
        if self.open_phase == phase:
            self.open_phase = 0
            self.tell(phase, END, 0, done)

    def leave(self):
        """An open batch comes to nothing: an exception left it, or the data ended inside it.

        Keras 3.3 tells no end where the data end inside steps_per_execution, though it trained with what came. That
        the graph's marks have counted.
        """
        cdef uint16_t phase = self.open_phase
        if phase:
            self.open_phase = 0
            self.tell(phase, END, EXACT if sys.exc_info()[0] is not None else 0, 0)

    cdef void tell(self, uint16_t phase, uint8_t kind, uint8_t flags, int64_t value) noexcept:
        put(phase, kind, flags | here(), 0 if phase == STEP else self.key, value)


cdef int64_t ordinal(batch) except? -1:
    """-1 if that is no number of a batch."""
    cdef int overflow = 0
    if not isinstance(batch, int):
        return -1
    cdef int64_t whole = PyLong_AsLongLongAndOverflow(batch, &overflow)
    return -1 if overflow else whole


# ---- callbacks --------------------------------------------------------------------------------------------------

cdef class Keys(dict):
    """What a list keeps of us: by method, the keys of its callbacks' classes. A copy of it, pickled or not, is empty."""

    def __reduce__(self):
        return dict, ()


cdef class Watched(list):
    """The callbacks of a list, for the time in which one of its methods runs: the loop over them that the method makes
    times each. They themselves, and the list for all others, are what they were."""

    cdef ListMethod method
    cdef dict keys
    cdef unsigned long thread
    cdef Calls calls

    def __iter__(self):
        if self.calls is not None or PyThread_get_thread_ident() != self.thread:
            return list.__iter__(self)
        self.calls = Calls(self)
        return self.calls

    def __reduce__(self):
        return list, (list.copy(self),)


cdef class Calls:
    """The loop: from one callback to the next is that callback's time."""

    cdef Watched callbacks
    cdef Py_ssize_t next
    cdef uint32_t open_key

    def __init__(self, Watched callbacks):
        self.callbacks = callbacks

    def __iter__(self):
        return self

    def __next__(self):
        self.close()
        if self.next >= len(self.callbacks):
            raise StopIteration
        callback = (<list>self.callbacks)[self.next]
        self.next += 1
        cdef uint32_t key = 0
        try:
            key = self.callbacks.method.key_of(callback, self.callbacks.keys)
        except Exception:  # whatever a callback does when it is looked at, the training must go on
            pass
        if key:
            self.open_key = key
            put(CALLBACK, BEGIN, here(), key, 0)
        return callback

    cdef close(self):
        if self.open_key:
            put(CALLBACK, END, here(), self.open_key, 0)
            self.open_key = 0


cdef class ListMethod:
    """A method of Keras's lists of callbacks, timed as a whole, and each callback in it."""

    cdef object original
    cdef str method, older
    cdef uint32_t key
    cdef object new_key

    def __init__(self, original, str method, uint32_t key, new_key):
        """key: of the whole. `new_key(callback, method)`: of one callback; 0 if it does nothing in that method."""
        self.original = original
        self.method = method
        self.older = method.replace("_train_batch_", "_batch_")
        self.key = key
        self.new_key = new_key

    cdef uint32_t key_of(self, callback, dict keys) except? 0:
        own = getattr(callback, "__dict__", None)
        if own is not None and (self.method in own or self.older in own):  # a LambdaCallback's, which has its own name
            return self.new_key(callback, self.method)
        kind = type(callback)
        key = keys.get(kind)
        if key is None:
            key = keys[kind] = self.new_key(callback, self.method)
        return key

    cdef dict keys_of(self, callbacks):
        kept = getattr(callbacks, "_hpcsampler_keys", None)
        if kept is None:
            callbacks._hpcsampler_keys = kept = Keys()
        return kept.setdefault(self.method, {})

    cdef run(self, callbacks, tuple args, dict kwargs):
        """args: with the list of callbacks itself."""
        if not is_recording():
            return PyObject_Call(self.original, args, <object>kwargs)
        put(CALLBACK, BEGIN, here(), self.key, 0)
        try:
            return self.watched(callbacks, args, kwargs)
        finally:
            put(CALLBACK, END, here(), self.key, 0)

    cdef watched(self, callbacks, tuple args, dict kwargs):
        real = getattr(callbacks, "callbacks", None)  # an unknown Keras may keep them elsewhere
        if type(real) is not list or not hasattr(callbacks, "__dict__"):
            return PyObject_Call(self.original, args, <object>kwargs)
        cdef Watched watched = Watched(real)
        cdef tuple before = tuple(real)
        watched.method = self
        watched.keys = self.keys_of(callbacks)
        watched.thread = PyThread_get_thread_ident()
        callbacks.callbacks = watched
        try:
            return PyObject_Call(self.original, args, <object>kwargs)
        finally:
            if watched.calls is not None:
                watched.calls.close()
            if callbacks.callbacks is watched:
                callbacks.callbacks = real
                if not same(watched, before):  # a callback has put one in, or taken one out
                    (<list>real)[:] = list.copy(watched)


cdef bint same(list callbacks, tuple before):
    cdef Py_ssize_t i
    if len(callbacks) != len(before):
        return False
    for i in range(len(before)):
        if callbacks[i] is not before[i]:
            return False
    return True


def batch_begin(ListMethod timed, Batches batches, uint16_t phase):
    """`timed`, for `on_*_batch_begin`: the batch begins when the callbacks are done."""

    def on_batch_begin(callbacks, batch, logs=None):
        timed.run(callbacks, (callbacks, batch, logs), {})
        batches.begin(phase, batch)

    return on_batch_begin


def batch_end(ListMethod timed, Batches batches, uint16_t phase):
    """`timed`, for `on_*_batch_end`: the batch has ended before the callbacks."""

    def on_batch_end(callbacks, batch, logs=None):
        batches.end(phase, batch)
        timed.run(callbacks, (callbacks, batch, logs), {})

    return on_batch_end


def between(ListMethod timed, Batches batches):
    """`timed`, for a method that is called between steps: one that is open has come to nothing."""

    def call(callbacks, *args, **kwargs):
        batches.leave()
        return timed.run(callbacks, (callbacks, *args), kwargs)

    return call
