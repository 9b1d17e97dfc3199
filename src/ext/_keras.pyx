# cython: language_level=3, boundscheck=False, wraparound=False
"""Keras's calls of its callbacks, timed: they bound its steps, and take time themselves."""

from cpython.object cimport PyObject_Call
from libc.stdint cimport int64_t, uint16_t, uint32_t

from hpcsampler.ext._events cimport BEGIN, CALLBACK, END, EVALUATION, EXACT, STEP, here, is_recording, put


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


# ---- batches ----------------------------------------------------------------------------------------------------

cdef class Batches:
    """Where Keras is: the batch it has begun, and whether a step is open."""

    cdef int64_t first
    cdef bint step_open
    cdef uint32_t key

    def __init__(self, uint32_t key):
        """key: of the events of a batch that is evaluated."""
        self.key = key

    cdef begin(self, uint16_t phase, batch):
        self.first = ordinal(batch)
        if phase == STEP:
            put(STEP, BEGIN, here(), 0, 0)
            self.step_open = True
        else:
            put(phase, BEGIN, here(), self.key, 0)

    cdef end(self, uint16_t phase, batch):
        """Both ends of what is executed at once are told as indices; with steps_per_execution > 1 it is this many
        steps at most. The marks in the graph count the elements that really came, and win."""
        cdef int64_t last = ordinal(batch)
        cdef int64_t done = last - self.first + 1 if 0 <= self.first <= last else 1
        if phase != STEP:
            put(phase, END, here(), self.key, done)
        elif self.step_open:
            self.step_open = False
            put(STEP, END, here(), 0, done)

    def leave(self):
        """An open step comes to nothing: the data ended inside it, or an exception left it."""
        if self.step_open:
            self.step_open = False
            put(STEP, END, EXACT | here(), 0, 0)


cdef int64_t ordinal(batch) except? -1:
    """-1 if that is no number of a batch."""
    cdef int overflow = 0
    if not isinstance(batch, int):
        return -1
    cdef int64_t whole = PyLong_AsLongLongAndOverflow(batch, &overflow)
    return -1 if overflow else whole


# ---- callbacks --------------------------------------------------------------------------------------------------

cdef class TimedMethod:
    """One method of one callback, timed. Looked up anew at each call, as Keras does."""

    cdef object callback
    cdef str method
    cdef uint32_t key

    def __init__(self, callback, str method, uint32_t key):
        self.callback = callback
        self.method = method
        self.key = key

    def __call__(self, *args, **kwargs):
        put(CALLBACK, BEGIN, here(), self.key, 0)
        try:
            return getattr(self.callback, self.method)(*args, **kwargs)
        finally:
            put(CALLBACK, END, here(), self.key, 0)


cdef class Substitution:
    """The callbacks that a list had, and those that take their places while one method runs, or None."""

    cdef list real
    cdef readonly object stand_ins

    def __init__(self, list real, list stand_ins):
        self.real = real
        self.stand_ins = stand_ins

    cdef bint holds_for(self, list callbacks):
        cdef Py_ssize_t i
        if len(callbacks) != len(self.real):
            return False
        for i in range(len(callbacks)):
            if callbacks[i] is not self.real[i]:
                return False
        return True


cdef class ListMethod:
    """A method of Keras's list of callbacks, timed as a whole, and each callback in it."""

    cdef object original
    cdef str method
    cdef uint32_t key
    cdef str attribute
    cdef object substitute

    def __init__(self, original, str method, uint32_t key, str attribute, substitute):
        """key: of the whole. attribute: where a list keeps, by method, its `Substitution`; `substitute(callbacks,
        method)` puts a new one there and returns it."""
        self.original = original
        self.method = method
        self.key = key
        self.attribute = attribute
        self.substitute = substitute

    cdef run(self, callbacks, tuple args, dict kwargs):
        """args: with the list of callbacks itself."""
        if not is_recording():
            return PyObject_Call(self.original, args, <object>kwargs)
        put(CALLBACK, BEGIN, here(), self.key, 0)
        try:
            return self.substituted(callbacks, args, kwargs)
        finally:
            put(CALLBACK, END, here(), self.key, 0)

    cdef substituted(self, callbacks, tuple args, dict kwargs):
        cdef Substitution known
        real = callbacks.callbacks
        kept = getattr(callbacks, self.attribute, None)
        found = kept.get(self.method) if kept is not None else None
        if found is None or not (<Substitution?>found).holds_for(real if type(real) is list else list(real)):
            found = self.substitute(callbacks, self.method)
        known = <Substitution?>found
        if known.stand_ins is None:
            return PyObject_Call(self.original, args, <object>kwargs)
        callbacks.callbacks = known.stand_ins
        try:
            return PyObject_Call(self.original, args, <object>kwargs)
        finally:
            if callbacks.callbacks is known.stand_ins:
                callbacks.callbacks = real


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
