# cython: language_level=3, boundscheck=False, wraparound=False
"""The timeline of one rank: events in, an exclusive partition of its wall time out."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy


cdef extern from "timeline.h" nogil:
    ctypedef struct hps_event:
        pass
    ctypedef struct hps_detail:
        uint32_t key
        uint16_t phase
        uint64_t ns
        uint64_t count
    ctypedef struct hps_step_time:
        uint32_t end_ms
        float ms
    ctypedef struct hps_mark:
        uint32_t id
        bint is_float
        int64_t last
        uint64_t count
    ctypedef struct hps_collective:
        uint64_t before_ns, begin_ns, end_ns
        int64_t value
        uint32_t key
        uint16_t arrived
    ctypedef struct hps_timeline:
        uint64_t progress_ns, collective_count
        uint64_t start_ns, now_ns, since_ns, step_time_count, events, late, unmatched, overflow, evaluation_steps
        uint64_t totals_ns[16]
        uint8_t category
        uint16_t phase
        uint32_t key
        bint started, paused
        int detail_count, mark_count
        hps_detail details[256]
        hps_mark marks[256]
        hps_step_time step_times[8192]
    void hps_timeline_start(hps_timeline *, uint64_t)
    void hps_timeline_feed(hps_timeline *, hps_event *, size_t, uint64_t)
    void hps_timeline_gap(hps_timeline *)
    uint64_t hps_timeline_steps(const hps_timeline *)
    void hps_timeline_window(const hps_timeline *, uint64_t, uint64_t *, uint64_t *)
    size_t hps_timeline_collectives(const hps_timeline *, uint64_t *, int, hps_collective *, size_t)
    const hps_collective *hps_timeline_open_collective(const hps_timeline *)
    size_t hps_timeline_step_times(const hps_timeline *, uint64_t, float *, size_t)

cdef extern from *:
    """
    static inline double hps_bits_float(int64_t bits) { double value; memcpy(&value, &bits, 8); return value; }
    """
    double hps_bits_float(int64_t) nogil

DEF CATEGORIES = 16
DEF EVENT_BYTES = 24
DEF STEP_TIMES = 8192
DEF COLLECTIVES = 256

UNCOVERED = 0
"""Index of time about which nothing is known, in what `totals_ns` and `window` return. 1 to 13 are the phases."""
USER_PRODUCTIVE = 14
"""Index of user phases that the user counts as productive."""


cdef class Timeline:
    """Folds the events of one rank. Not safe for use from several threads at once."""

    cdef hps_timeline *c

    def __cinit__(self, uint64_t start_ns):
        self.c = <hps_timeline *>calloc(1, sizeof(hps_timeline))
        if self.c == NULL:
            raise MemoryError
        hps_timeline_start(self.c, start_ns)

    def __dealloc__(self):
        free(self.c)

    def feed(self, const unsigned char[::1] records not None, uint64_t watermark_ns):
        """Fold records (24 bytes each) and go on to `watermark_ns`: nothing older is still to come."""
        cdef size_t size = <size_t>records.shape[0]
        if size % EVENT_BYTES:
            raise ValueError("records are not a multiple of 24 bytes")
        if size == 0:
            hps_timeline_feed(self.c, NULL, 0, watermark_ns)
            return
        cdef hps_event *copy = <hps_event *>malloc(size)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, &records[0], size)
        with nogil:
            hps_timeline_feed(self.c, copy, size // EVENT_BYTES, watermark_ns)
        free(copy)

    def gap(self):
        """Events were lost after the last one fed: until the next one, time counts as not covered."""
        hps_timeline_gap(self.c)

    @property
    def now_ns(self):
        """Time folded so far, CLOCK_MONOTONIC."""
        return self.c.now_ns

    @property
    def steps(self):
        """Training steps since the start."""
        return hps_timeline_steps(self.c)

    @property
    def evaluation_steps(self):
        """Batches evaluated since the start."""
        return self.c.evaluation_steps

    @property
    def progress_ns(self):
        """When a training or evaluation step ended last, or what takes its time without one (a checkpoint, compiling,
        evaluation, startup, a productive phase of the user's, a pause); CLOCK_MONOTONIC, 0 before any."""
        return self.c.progress_ns

    @property
    def collective_count(self):
        """Collectives begun since the start."""
        return self.c.collective_count

    def collectives(self, uint64_t since, int shift):
        """`(where to go on, [(key, value, replicas, before, arrival, departure), …])`: collectives that are over.

        From the `since`-th on, one in 2^`shift` of them, the same ones on all ranks; at most 256. Times in
        ns, CLOCK_MONOTONIC; before: when the rank had left its last collective before this one, 0 if not known.
        """
        cdef hps_collective found[COLLECTIVES]
        cdef size_t n = hps_timeline_collectives(self.c, &since, shift, found, COLLECTIVES)
        return since, [(found[i].key, found[i].value, found[i].arrived, found[i].before_ns, found[i].begin_ns,
                        found[i].end_ns)
                       for i in range(n)]

    def open_collective(self):
        """`(key, value, arrival in ns)` of the oldest collective that the rank is in at `now_ns`, or None."""
        cdef const hps_collective *c = hps_timeline_open_collective(self.c)
        return None if c == NULL else (c.key, c.value, c.begin_ns)

    @property
    def started(self):
        """Whether a first step or evaluation has begun."""
        return self.c.started

    @property
    def paused(self):
        """Whether recording is paused."""
        return self.c.paused

    @property
    def counts(self):
        """Bookkeeping: events folded, late ones, ends without a begin, what no table had room for."""
        return {"events": self.c.events, "late": self.c.late, "unmatched": self.c.unmatched,
                "overflow": self.c.overflow}

    def totals_ns(self):
        """Nanoseconds since the start by category: 0 uncovered, 1-13 the phases, 14 productive user phases."""
        return [self.c.totals_ns[i] for i in range(CATEGORIES)]

    def window(self, double seconds):
        """`(ns by category, training steps, evaluation steps)` of the last `seconds` before `now_ns`.

        Windows are made of whole slots of 100 ms aligned on CLOCK_MONOTONIC; the last may be partly filled. At
        most 12.7 s.
        """
        cdef uint64_t ns[CATEGORIES]
        cdef uint64_t steps[2]
        hps_timeline_window(self.c, <uint64_t>(seconds * 1e9), ns, steps)
        return [ns[i] for i in range(CATEGORIES)], steps[0], steps[1]

    def open_phase(self):
        """`(category, phase id on the wire or 0, key, since_ns)` of what the rank is in at `now_ns`."""
        return self.c.category, self.c.phase, self.c.key, self.c.since_ns

    def details_ns(self):
        """`{(phase id, key): ns}` since the start: which iterator, which phase of the user's (not the productive ones)."""
        return {(self.c.details[i].phase, self.c.details[i].key): self.c.details[i].ns
                for i in range(self.c.detail_count)}

    def detail_counts(self):
        """`{(phase id, key): how often}` since the start, of the same details but for iterators."""
        return {(self.c.details[i].phase, self.c.details[i].key): self.c.details[i].count
                for i in range(self.c.detail_count) if self.c.details[i].count}

    def marks(self):
        """`{id: (count, last value)}` of the user's marks."""
        cdef hps_mark *m
        cdef dict out = {}
        for i in range(self.c.mark_count):
            m = &self.c.marks[i]
            out[m.id] = (m.count, hps_bits_float(m.last) if m.is_float else m.last)
        return out

    def step_percentiles_ms(self, double seconds, tuple ratios):
        """Percentiles (nearest rank) of the step times of the last `seconds`; None without any.

        ratios: for example (0.5, 0.95, 0.99).
        """
        cdef float *times = <float *>malloc(STEP_TIMES * sizeof(float))
        cdef uint64_t back = <uint64_t>(seconds * 1e9)
        cdef uint64_t since = self.c.now_ns - back if self.c.now_ns > back else 0
        cdef size_t n, k
        cdef list out = []
        if times == NULL:
            raise MemoryError
        n = hps_timeline_step_times(self.c, since, times, STEP_TIMES)
        for ratio in ratios:
            if n:
                k = <size_t>(ratio * n)
                out.append(select(times, n, k if k < n else n - 1))
        free(times)
        return tuple(out) if n else None

    def step_median_ms(self, uint64_t begin_ns, uint64_t end_ns, size_t least):
        """Median of the times of the steps that ended from `begin_ns` to `end_ns`; None if fewer than `least` are known."""
        cdef float *times = <float *>malloc(STEP_TIMES * sizeof(float))
        cdef uint64_t i, known = min(self.c.step_time_count, <uint64_t>STEP_TIMES)
        cdef uint64_t begin_ms = (max(begin_ns, self.c.start_ns) - self.c.start_ns) // 1_000_000
        cdef uint64_t end_ms = (max(end_ns, self.c.start_ns) - self.c.start_ns) // 1_000_000
        cdef size_t n = 0
        if times == NULL:
            raise MemoryError
        for i in range(known):
            if begin_ms <= self.c.step_times[i].end_ms <= end_ms:
                times[n] = self.c.step_times[i].ms
                n += 1
        median = select(times, n, n // 2) if n and n >= least else None
        free(times)
        return median


cdef float select(float *v, size_t n, size_t k) noexcept nogil:
    """The k-th smallest of v[:n] by Hoare's quickselect; reorders v."""
    cdef size_t low = 0, high = n - 1, i, j
    cdef float pivot, t
    while low < high:
        pivot = v[low + (high - low) // 2]
        i = low
        j = high
        while True:
            while v[i] < pivot:
                i += 1
            while v[j] > pivot:
                j -= 1
            if i >= j:
                break
            t = v[i]
            v[i] = v[j]
            v[j] = t
            i += 1
            j -= 1
        if k <= j:
            high = j
        else:
            low = j + 1
    return v[k]
