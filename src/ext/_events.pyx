# cython: language_level=3, boundscheck=False, wraparound=False
"""The process's ring of events, and what a program writes to it: steps, phases, marks.

Nothing here imports a framework, zmq or numpy: `import hpcsampler` loads this module and no other compiled one.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

import os
import sys


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() nogil

cdef extern from "ring.h" nogil:
    ctypedef struct hps_event:
        pass
    ctypedef struct hps_ring:
        uint64_t head
        uint64_t dropped
        void *slots
        uint64_t mask
    hps_ring hps_the_ring
    uint64_t hps_now_ns()
    bint hps_recording()
    void hps_emit(uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value)
    void hps_emit_at(uint64_t t_ns, uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value)
    int hps_ring_open(size_t events)
    void hps_ring_record(bint on)
    size_t hps_ring_drain(hps_event *out, size_t most)
    size_t hps_ring_backlog()
    void hps_ring_wake()

cdef extern from "graph_mark.h":
    int hps_graph_mark_register(const char *library, char *error, size_t error_size)

cdef extern from "courier.h" nogil:
    ctypedef struct hps_courier:
        uint64_t sequence
        uint64_t next_sign_ns
    int hps_courier_open(hps_courier *courier, const uint8_t *prefix, size_t size, double event_cost_ns)
    void hps_courier_close(hps_courier *courier)
    int hps_courier_bind(hps_courier *courier, const char *library, void *socket)
    size_t hps_courier_pack(hps_courier *courier, const uint8_t **message)
    void hps_courier_lose(hps_courier *courier)
    void hps_courier_call(hps_courier *courier)
    int hps_courier_carry(hps_courier *courier, uint64_t every_ns, uint64_t until_ns)
    enum:
        HPS_COURIER_DUE
        HPS_COURIER_WOKEN
        HPS_COURIER_BLOCKED
        HPS_COURIER_READY, HPS_COURIER_ASKED

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline int64_t hps_float_bits(double value) { int64_t bits; memcpy(&bits, &value, 8); return bits; }
    /* The thread that drives the steps. Events of other threads are flagged, so that they never enter the partition. */
    static unsigned long hps_driver;
    /* It has been seen to train, or says so: another thread that trains does not take its place. */
    static int hps_driver_trains;
    """
    int64_t hps_float_bits(double value) nogil
    unsigned long hps_driver
    int hps_driver_trains

DEF EVENT_BYTES = 24


# ---- for the other compiled modules, see _events.pxd ------------------------------------------------------------

cdef uint8_t here() noexcept nogil:
    """The flag of the calling thread."""
    return 0 if PyThread_get_thread_ident() == hps_driver else OTHER_THREAD


cdef bint is_recording() noexcept nogil:
    return hps_recording()


cdef void put(uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil:
    hps_emit(phase, kind, flags, key, value)


cdef void put_at(uint64_t t_ns, uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil:
    if hps_recording():
        hps_emit_at(t_ns, phase, kind, flags, key, value)


FIRST_USER_PHASE = HPS_FIRST_USER_PHASE


# ---- the ring ---------------------------------------------------------------------------------------------------

def open_ring(size_t events):
    """Make the process's ring, for `events` events (a power of two). One that is there already stays."""
    if events == 0 or events & (events - 1):
        raise ValueError("events must be a power of two")
    if hps_ring_open(events) != 0:
        raise MemoryError(f"no memory for a ring of {events} events")


def record(bint on):
    """Start or stop recording. Not recording, an event costs one load and a branch."""
    hps_ring_record(on)


def pause():
    """Stop recording, and say so: the time until `resume()` is not covered."""
    if hps_recording():
        hps_emit(HOST, POINT, here(), 0, HPS_PAUSED)
        hps_ring_record(False)


def resume():
    """Go on recording after `pause()`."""
    if not hps_recording():
        hps_ring_record(True)
        hps_emit(HOST, POINT, here(), 0, HPS_RESUMED)


def recording():
    """Whether events are recorded."""
    return hps_recording()


def now_ns():
    """CLOCK_MONOTONIC, in nanoseconds."""
    return hps_now_ns()


def emitted():
    """Events that entered the ring since it was made."""
    return hps_the_ring.head


def dropped():
    """Events that found the ring full since it was made."""
    return hps_the_ring.dropped


def capacity():
    """Events that the ring can hold; 0 without a ring."""
    return hps_the_ring.mask + 1 if hps_the_ring.slots != NULL else 0


def drain(size_t limit=65536):
    """The events that are complete, oldest first, 24 bytes each, at most `limit`; removes them. One thread at a time."""
    cdef size_t most = min(hps_ring_backlog(), limit)
    if most == 0:
        return b""
    cdef bytes buffer = PyBytes_FromStringAndSize(NULL, most * EVENT_BYTES)
    cdef hps_event *out = <hps_event *>PyBytes_AS_STRING(buffer)
    cdef size_t taken
    with nogil:
        taken = hps_ring_drain(out, most)
    return buffer if taken == most else buffer[:taken * EVENT_BYTES]


def wake():
    """End the current or the next `carry()` of the courier."""
    hps_ring_wake()


DUE = HPS_COURIER_DUE
WOKEN = HPS_COURIER_WOKEN
BLOCKED = HPS_COURIER_BLOCKED
READY, ASKED = HPS_COURIER_READY, HPS_COURIER_ASKED


cdef class Courier:
    """Takes events out of the ring and sends them as `events` messages, without the GIL. Of one thread."""

    cdef hps_courier courier

    def __cinit__(self, bytes prefix, double event_cost_ns):
        """prefix: the packed beginning of each message, up to and with the rank key. Counts from here on."""
        if hps_courier_open(&self.courier, prefix, len(prefix), event_cost_ns) != 0:
            raise MemoryError("no memory for a message of events")

    def __dealloc__(self):
        hps_courier_close(&self.courier)

    def bind(self, str library, size_t socket):
        """Send by the libzmq socket at this address, through the libzmq that the loaded `library` uses.

        False if it can't be reached there: then `carry` only says when there is something to `pack`.
        """
        return hps_courier_bind(&self.courier, os.fsencode(library), <void *>socket) == 0

    def next_sequence(self):
        """The sequence number for a message that the courier does not send."""
        self.courier.sequence += 1
        return self.courier.sequence

    def sign(self):
        """Let the next `pack` make a message even without events: what is known holds until then."""
        self.courier.next_sign_ns = 0

    def pack(self):
        """The next message, for the caller to send; empty if there is nothing to say."""
        cdef const uint8_t *message
        cdef size_t size = hps_courier_pack(&self.courier, &message)
        return PyBytes_FromStringAndSize(<const char *>message, size) if size else b""

    def lose(self):
        """The message that was packed last could not be sent: its events count as dropped."""
        hps_courier_lose(&self.courier)

    def call(self):
        """Let `carry` end, `WOKEN`, before it sends what is recorded from here on. From any thread, at no cost."""
        hps_courier_call(&self.courier)

    def carry(self, double every_s, double until_s):
        """Send what comes, every `every_s` seconds, for `until_s` seconds: `DUE`. Before that:

        `WOKEN` by `wake()` or `call()`; `BLOCKED`, if nobody is connected or takes more, and all unsent events are
        still in the ring; `ASKED`, if a message has come; `READY`, if no socket is bound and there is something to pack.
        """
        cdef uint64_t every_ns = <uint64_t>(every_s * 1e9)
        cdef uint64_t until_ns = hps_now_ns() + <uint64_t>(max(0.0, until_s) * 1e9)
        cdef int outcome
        with nogil:
            outcome = hps_courier_carry(&self.courier, every_ns, until_ns)
        return outcome


# ---- writing ----------------------------------------------------------------------------------------------------

def event_cost_ns(size_t rounds=1000):
    """What one event costs here, measured now, in nanoseconds: the clock and a place in the ring.

    Only while nothing records; the events of the measurement are taken out again.
    """
    cdef size_t i
    cdef uint64_t begin
    if hps_recording() or hps_the_ring.slots == NULL:
        return 0.0
    rounds = min(rounds, <size_t>(hps_the_ring.mask + 1) // 2)
    hps_ring_record(True)
    begin = hps_now_ns()
    for i in range(rounds):
        hps_emit(0, POINT, OTHER_THREAD, 0, 0)
    cost = (hps_now_ns() - begin) / <double>rounds
    hps_ring_record(False)
    drain(rounds)
    return cost


def set_driver(unsigned long thread, bint trains=False):
    """Name the thread that drives the steps, by its `threading.get_ident()`. Returns the one that did.

    trains: it is known to; else the first thread that is seen to train takes its place.
    """
    global hps_driver, hps_driver_trains
    before = hps_driver
    hps_driver = thread
    hps_driver_trains = trains
    return before


cdef void train_here(key) except *:
    """The calling thread trains: it drives the steps, unless one that trains, too, does already."""
    global hps_driver, hps_driver_trains
    cdef unsigned long me = PyThread_get_thread_ident()
    if hps_driver != me:
        if hps_driver_trains and hps_driver in sys._current_frames():
            return
        hps_driver = me
        if key:
            # The element that it trains with came before that was known.
            hps_emit(INPUT, BEGIN, 0, key, 0)
            hps_emit(INPUT, END, 0, key, 1)
    hps_driver_trains = True


def drives():
    """Whether the calling thread is the one that drives the steps."""
    return PyThread_get_thread_ident() == hps_driver


def emit(uint16_t phase, uint8_t kind, uint32_t key=0, int64_t value=0, uint8_t flags=0):
    """Append one event, flagged if it is not from the thread that drives the steps."""
    hps_emit(phase, kind, flags | here(), key, value)


cdef class Span:
    """A phase as a context manager. Holds no state of a run: one object serves any number of threads and depths."""

    cdef readonly uint16_t phase
    cdef readonly uint32_t key
    cdef uint8_t flags

    def __init__(self, uint16_t phase, uint32_t key=0, bint productive=False):
        self.phase = phase
        self.key = key
        self.flags = PRODUCTIVE if productive else 0

    def __enter__(self):
        hps_emit(self.phase, BEGIN, self.flags | here(), self.key, 0)
        return None

    def __exit__(self, kind, error, traceback):
        hps_emit(self.phase, END, self.flags | here(), self.key, 0)
        return None

    def __call__(self, function):
        return decorated(self, function)


cdef class StepSpan:
    """`count` training steps as a context manager; they count unless an exception leaves the block."""

    cdef readonly int64_t count

    def __init__(self, int64_t count=1):
        self.count = count

    def __enter__(self):
        global hps_driver, hps_driver_trains
        # Whoever says "this is my step" drives the steps.
        hps_driver = PyThread_get_thread_ident()
        hps_driver_trains = True
        hps_emit(STEP, BEGIN, 0, 0, 0)
        return None

    def __exit__(self, kind, error, traceback):
        hps_emit(STEP, END, EXACT, 0, self.count if kind is None else 0)
        return None

    def __call__(self, function):
        return decorated(self, function)


def decorated(span, function):
    """`function`, run inside `span` each time."""
    import functools  # not with the module: every `import hpcsampler` would pay for it

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with span:
            return function(*args, **kwargs)

    return inside


cdef class Marks:
    """Names and their ids, and the quickest way from `mark(name, value)` to an event."""

    cdef dict ids
    cdef object register
    cdef object complain

    def __init__(self, dict ids, register, complain):
        """`register(name)` gives a new name its id, or 0 if it can't have one; `complain(error)` tells the user."""
        self.ids = ids
        self.register = register
        self.complain = complain

    def __call__(self, name, value=0):
        """Say that something happened, with a whole number or a float. Costs nothing while not recording."""
        if not hps_recording():
            return None
        cdef uint16_t phase
        cdef int64_t whole
        cdef int overflow = 0
        try:
            number = self.ids.get(name)
            phase = number if number is not None else self.register(name)
            if phase == 0:
                return None
            if type(value) is int:
                whole = PyLong_AsLongLongAndOverflow(value, &overflow)
                if overflow == 0:
                    hps_emit(phase, POINT, here(), 0, whole)
                    return None
            hps_emit(phase, POINT, here() | FLOAT, 0, hps_float_bits(<double>float(value)))
        except Exception as error:
            self.complain(error)
        return None


# ---- TensorFlow ---------------------------------------------------------------------------

def register_graph_mark(str library):
    """Register the op `HpcsamplerMark` with the TensorFlow that this process has loaded from `library`.

    Raises `RuntimeError` with the reason where that can't be. Doing it twice is harmless.
    """
    cdef char error[256]
    if hps_graph_mark_register(os.fsencode(library), error, sizeof(error)) != 0:
        raise RuntimeError(error.decode(errors="replace"))
