/* The event and the ring: fixed size, many producers, one consumer, no lock, no allocation, no Python. */
#ifndef HPCSAMPLER_RING_H
#define HPCSAMPLER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "phases.h"

typedef struct {
    uint64_t t_ns; /* CLOCK_MONOTONIC */
    int64_t value;
    uint32_t key;
    uint16_t phase;
    uint8_t kind;
    uint8_t flags;
} hps_event;

_Static_assert(sizeof(hps_event) == 24, "the event is 24 bytes on the wire");

typedef struct {
    /* Vyukov's bounded queue: == position while free, position + 1 once written. */
    _Atomic uint64_t sequence;
    hps_event event;
} hps_slot;

typedef struct {
    hps_slot *slots;
    uint64_t mask;
    /* Producers and the consumer each on cache lines of their own. */
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t dropped;
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic bool recording;
} hps_ring;

/* The process's ring. All zero until hps_ring_open; events before that vanish, as do those while not recording. */
extern hps_ring hps_the_ring;

static inline uint64_t hps_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline bool hps_recording(void) {
    return atomic_load_explicit(&hps_the_ring.recording, memory_order_relaxed);
}

/* Append one event with its own time. Full: dropped and counted. Safe from any thread; not from a signal handler. */
static inline void hps_emit_at(uint64_t t_ns, uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key,
                               int64_t value) {
    hps_ring *ring = &hps_the_ring;
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    hps_slot *slot;
    for (;;) {
        slot = &ring->slots[position & ring->mask];
        uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        int64_t lead = (int64_t)(sequence - position);
        if (lead == 0) {
            if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                break;
            }
        } else if (lead < 0) { /* the slot still holds an event that nobody took: full */
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return;
        } else {
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
        }
    }
    slot->event = (hps_event){t_ns, value, key, phase, kind, flags};
    atomic_store_explicit(&slot->sequence, position + 1, memory_order_release);
}

static inline void hps_emit(uint16_t phase, uint8_t kind, uint8_t flags, uint32_t key, int64_t value) {
    if (hps_recording()) {
        hps_emit_at(hps_now_ns(), phase, kind, flags, key, value);
    }
}

/* Make the ring if there is none. 0, or -1 without memory. The size of a ring that is there stays as it is. */
int hps_ring_open(size_t events);

/* Stop or go on recording; without a ring nothing happens. */
void hps_ring_record(bool on);

/* Move up to `most` events to `out`, oldest first; returns how many. One consumer at a time. */
size_t hps_ring_drain(hps_event *out, size_t most);

/* Events in the ring, the unfinished ones included. */
size_t hps_ring_backlog(void);

enum { HPS_WAIT_EMPTY = 0, HPS_WAIT_EVENTS = 1, HPS_WAIT_WOKEN = 2 };

/* Sleep until there are events, but at least `least_ns` and at most `most_ns`, or until hps_ring_wake.
 * Looks every `least_ns`, so that producers need not signal. */
int hps_ring_wait(uint64_t least_ns, uint64_t most_ns);

/* End the current or the next hps_ring_wait at once. */
void hps_ring_wake(void);

#endif
