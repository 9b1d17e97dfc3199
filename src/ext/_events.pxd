"""The phases' numbers, and what the other compiled modules of a rank use of the ring: they can't link it a second time."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "phases.h" nogil:
    const uint8_t BEGIN "HPS_BEGIN"
    const uint8_t END "HPS_END"
    const uint8_t POINT "HPS_POINT"
    const uint8_t OTHER_THREAD "HPS_OTHER_THREAD"
    const uint8_t GRAPH "HPS_GRAPH"
    const uint8_t PRODUCTIVE "HPS_PRODUCTIVE"
    const uint8_t EXACT "HPS_EXACT"
    const uint8_t ABORT "HPS_ABORT"
    const uint8_t FLOAT "HPS_FLOAT"
    const uint8_t YIELDS "HPS_YIELDS"
    const uint16_t COMPILE "HPS_COMPILE"
    const uint16_t GC "HPS_GC"
    const uint16_t INPUT "HPS_INPUT"
    const uint16_t CALLBACK "HPS_CALLBACK"
    const uint16_t EVALUATION "HPS_EVALUATION"
    const uint16_t STEP "HPS_STEP"
    const uint16_t HOST "HPS_HOST"
    const int64_t HPS_PAUSED
    const int64_t HPS_RESUMED
    const uint16_t HPS_FIRST_USER_PHASE

# The flag of the calling thread: 0 if it drives the steps.
cdef uint8_t here() noexcept nogil
cdef bint is_recording() noexcept nogil
# Append one event, now or with a time of its own, if events are recorded.
cdef void put(uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil
cdef void put_at(uint64_t t_ns, uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil
# The calling thread trains: it drives the steps, unless one that trains, too, does already.
cdef void train_here(key) except *
