# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls of a framework's that block, timed: waits for an element, for a result, and for Python's garbage collector."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from hpcsampler.ext._events cimport ABORT, BEGIN, COMPILE, END, GC, GRAPH, INPUT, YIELDS, here, is_recording, put, put_at, train_here


cdef extern from "ring.h" nogil:
    uint64_t hps_now_ns()

cdef extern from *:
    """
    #include <stdint.h>
    /* >0 while an outer iterator is timed: what it gets from inner ones is part of it. Per thread. */
    static __thread int hps_nested;
    static __thread uint32_t hps_last_source, hps_known_source;
    /* Calls of tf.functions that this thread is in, and the key of what XLA compiles in the outermost; 0: nothing. */
    static __thread int hps_calls;
    static __thread uint32_t hps_compiled;
    """
    int hps_calls
    uint32_t hps_compiled
    int hps_nested
    uint32_t hps_last_source, hps_known_source


# ---- iterators --------------------------------------------------------------------------------------------------

cdef class Nested:
    """While inside, `timed_next` passes straight through: an outer iterator is being timed. Per thread."""

    def active(self):
        """Whether the calling thread is inside."""
        return hps_nested > 0

    def __enter__(self):
        global hps_nested
        hps_nested += 1

    def __exit__(self, kind, error, traceback):
        global hps_nested
        hps_nested -= 1


def last_source():
    """Key of the iterator that the calling thread got its last element from; 0 if none."""
    return hps_last_source


def watched_call(original, str trains_attribute, train, str sites_attribute):
    """`Function._call`, watched for functions that compute gradients (those that have `trains_attribute`).

    The source of what the calling thread consumed last is training data then: `train(source)` is told, once.
    sites_attribute: where a function has the keys of the iterators that it gets elements from. An error that leaves it
    has skipped the marks after it, on whatever thread it was called.
    """
    def call(self, *args, **kwargs):
        global hps_known_source, hps_calls, hps_compiled
        if hps_last_source != hps_known_source and hasattr(self, trains_attribute):
            hps_known_source = hps_last_source
            train_here(hps_last_source)
            train(hps_last_source)
        hps_calls += 1
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            for key in getattr(self, sites_attribute, ()):
                put(INPUT, END, GRAPH | ABORT, key, 0)
            raise
        finally:
            hps_calls -= 1
            if hps_compiled and not hps_calls:
                put(COMPILE, END, here(), hps_compiled, 0)
                hps_compiled = 0

    return call


def compiles_now(uint32_t key):
    """What the calling thread has traced is for XLA, which compiles it when it runs: from here to the end of the call.

    Nothing if it was not traced in order to be called.
    """
    global hps_compiled
    if hps_calls and not hps_compiled:
        hps_compiled = key
        put(COMPILE, BEGIN, YIELDS | here(), key, 0)


def timed_next(original, in_graph, context, str key_attribute, new_key, *, bint outer=False):
    """A method that times `original(self)`, the blocking "give me the next element" of an eager iterator.

    original: the method as it was.
    in_graph: called as `in_graph(original, self)` instead when a graph is being traced.
    context: TensorFlow's eager context; its `_thread_local_data.is_eager` tells which of the two it is.
    key_attribute: name of the attribute of an iterator that holds its key; `new_key(self)` sets and returns it.
    outer: the iterator gets its elements from others that are timed too; only it counts.
    """
    cdef bint is_outer = outer

    def next_element(self):
        global hps_nested, hps_last_source
        if hps_nested:
            return original(self)
        if not context._thread_local_data.is_eager:
            return in_graph(original, self)
        if not is_recording():
            return original(self)
        cdef uint32_t key
        try:
            key = getattr(self, key_attribute)
        except AttributeError:
            key = new_key(self)
        cdef uint8_t flags = here()
        cdef int64_t got = 0
        put(INPUT, BEGIN, flags, key, 0)
        if is_outer:
            hps_nested += 1
        try:
            element = original(self)
            got = 1
        finally:
            if is_outer:
                hps_nested -= 1
            put(INPUT, END, flags, key, got)
        hps_last_source = key
        return element

    return next_element


def told_in_graph(original, tell, context):
    """A method that calls `tell()` first where a graph is being traced; eager calls pass straight through.

    context: as for `timed_next`.
    """

    def method(self, *args, **kwargs):
        if not hps_nested and not context._thread_local_data.is_eager:
            tell()
        return original(self, *args, **kwargs)

    return method


def training_source():
    """Key of the iterator that the calling thread trains with; 0 if none. From here on, that thread drives the steps."""
    if hps_last_source:
        train_here(hps_last_source)
    return hps_last_source


# ---- results ----------------------------------------------------------------------------------------------------

def timed_wait(original, uint16_t phase):
    """A method that times `original(self)`, on the thread that drives the steps."""

    def wait(self):
        if not is_recording() or here():
            return original(self)
        put(phase, BEGIN, 0, 0, 0)
        try:
            return original(self)
        finally:
            put(phase, END, 0, 0, 0)

    return wait


# ---- garbage collection -----------------------------------------------------------------------------------------

DEF LEAST_NS = 50_000


cdef class Collections:
    """One of `gc.callbacks`: garbage collections of the thread on which they run.

    Those of the young generation are many and short: they are told afterwards, and only if they took 50 µs. What took
    so little before the events of other threads came is in order enough for the daemon, which sorts them.
    """

    cdef uint32_t keys[3]
    cdef uint64_t begin_ns
    cdef uint8_t flags
    cdef bint begun

    def __init__(self, keys):
        """keys: of the three generations, youngest first."""
        for generation in range(3):
            self.keys[generation] = keys[generation]

    def __call__(self, str phase, dict info):
        cdef int generation
        if not is_recording():
            self.begin_ns = 0
            return
        generation = min(max(<int>info["generation"], 0), 2)
        if phase == "start":
            self.begin_ns = hps_now_ns()
            self.flags = here()
            self.begun = generation > 0
            if self.begun:
                put_at(self.begin_ns, GC, BEGIN, self.flags, self.keys[generation], generation)
        elif self.begin_ns:
            if not self.begun and hps_now_ns() - self.begin_ns >= LEAST_NS:
                put_at(self.begin_ns, GC, BEGIN, self.flags, self.keys[generation], generation)
                self.begun = True
            if self.begun:
                put(GC, END, self.flags, self.keys[generation], generation)
            self.begin_ns = 0
