#include "ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

hps_ring hps_the_ring;
static int wake_fd = -1;

static bool inherited; /* this ring is the parent's, as it was at the fork */

/* A forked child has the parent's ring but not its sender: it must not record. This runs for every fork(), also for
 * those that Python does not know of, so it does no more than it must. */
static void after_fork_in_child(void) {
    atomic_store(&hps_the_ring.recording, false);
    inherited = true;
    if (wake_fd >= 0) {
        close(wake_fd);
        wake_fd = -1;
    }
}

static void clear(void) {
    for (uint64_t i = 0; i <= hps_the_ring.mask; i++) {
        atomic_store_explicit(&hps_the_ring.slots[i].sequence, i, memory_order_relaxed);
    }
    atomic_store(&hps_the_ring.head, 0);
    atomic_store(&hps_the_ring.tail, 0);
    atomic_store(&hps_the_ring.dropped, 0);
}

int hps_ring_open(size_t events) {
    if (wake_fd < 0) {
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    if (hps_the_ring.slots == NULL) {
        hps_slot *slots = calloc(events, sizeof(hps_slot));
        if (slots == NULL) {
            return -1;
        }
        hps_the_ring.mask = events - 1;
        hps_the_ring.slots = slots;
        clear();
        pthread_atfork(NULL, NULL, after_fork_in_child);
    } else if (inherited) {
        /* What the parent had not sent yet is the parent's, and a producer that the fork caught in the middle of a
         * write would block the ring for good. */
        clear();
    }
    inherited = false;
    return 0;
}

void hps_ring_record(bool on) {
    if (hps_the_ring.slots != NULL && !inherited) {
        atomic_store(&hps_the_ring.recording, on);
    }
}

size_t hps_ring_drain(hps_event *out, size_t most) {
    hps_ring *ring = &hps_the_ring;
    if (ring->slots == NULL) {
        return 0;
    }
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t n = 0;
    while (n < most) {
        hps_slot *slot = &ring->slots[tail & ring->mask];
        if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != tail + 1) {
            break; /* empty, or a producer is between taking this slot and writing it: next time */
        }
        out[n++] = slot->event;
        atomic_store_explicit(&slot->sequence, tail + ring->mask + 1, memory_order_release);
        tail++;
    }
    atomic_store_explicit(&ring->tail, tail, memory_order_relaxed);
    return n;
}

size_t hps_ring_backlog(void) {
    /* The tail first: it can't pass a head that is read after it. */
    uint64_t tail = atomic_load_explicit(&hps_the_ring.tail, memory_order_acquire);
    return (size_t)(atomic_load_explicit(&hps_the_ring.head, memory_order_acquire) - tail);
}

int hps_ring_wait(uint64_t least_ns, uint64_t most_ns) {
    uint64_t end = hps_now_ns() + most_ns;
    for (;;) {
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        struct timespec pause = {(time_t)(least_ns / 1000000000u), (long)(least_ns % 1000000000u)};
        int ready = ppoll(&wake, wake_fd >= 0 ? 1 : 0, &pause, NULL);
        if (ready > 0) {
            uint64_t count;
            while (read(wake_fd, &count, sizeof count) < 0 && errno == EINTR) {
            }
            return HPS_WAIT_WOKEN;
        }
        if (hps_ring_backlog() > 0) {
            return HPS_WAIT_EVENTS;
        }
        if (hps_now_ns() >= end) {
            return HPS_WAIT_EMPTY;
        }
    }
}

void hps_ring_wake(void) {
    uint64_t one = 1;
    if (wake_fd >= 0) {
        while (write(wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
        }
    }
}
