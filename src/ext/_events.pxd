"""What the other compiled modules of a rank use of the ring: they can't link it a second time."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# The flag of the calling thread: 0 if it drives the steps.
cdef uint8_t here() noexcept nogil
cdef bint is_recording() noexcept nogil
# Append one event, now or with a time of its own, if events are recorded.
cdef void put(uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil
cdef void put_at(uint64_t t_ns, uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) noexcept nogil
# The calling thread trains: it drives the steps, unless one that trains, too, does already.
cdef void train_here(key) except *
