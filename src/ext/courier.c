#include "courier.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ring.h"

enum { BATCH_EVENTS = 4096, HEADER_ROOM = 192, FIELDS = 5, INTEGER = 9, BIN = 5 };
static const uint64_t SIGN_NS = 1000000000u; /* a rank that records nothing says so: that its newest state holds */

/* Of zmq.h, fixed by libzmq's ABI (4.x: int). */
enum { ZMQ_DONTWAIT = 1, ZMQ_EVENTS = 15, ZMQ_POLLIN = 1, ZMQ_POLLOUT = 2 };

int hps_courier_open(hps_courier *courier, const uint8_t *prefix, size_t size, double event_cost_ns) {
    memset(courier, 0, sizeof *courier);
    courier->event_cost_ns = event_cost_ns;
    if (size + FIELDS * INTEGER + BIN > HEADER_ROOM) {
        return -1;
    }
    courier->memory = malloc(HEADER_ROOM + BATCH_EVENTS * sizeof(hps_event));
    if (courier->memory == NULL) {
        return -1;
    }
    courier->prefix = size;
    /* The header ends where the events begin, and those are aligned. */
    memcpy(courier->memory + HEADER_ROOM - size - FIELDS * INTEGER - BIN, prefix, size);
    courier->dropped_before = atomic_load(&hps_the_ring.dropped);
    courier->emitted_before = atomic_load(&hps_the_ring.head);
    return 0;
}

void hps_courier_close(hps_courier *courier) {
    free(courier->memory);
    courier->memory = NULL;
}

int hps_courier_bind(hps_courier *courier, const char *library, void *socket) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL) {
        return -1;
    }
    *(void **)&courier->send = dlsym(handle, "zmq_send");
    *(void **)&courier->getsockopt = dlsym(handle, "zmq_getsockopt");
    dlclose(handle);
    if (courier->send == NULL || courier->getsockopt == NULL) {
        return -1;
    }
    courier->socket = socket;
    return 0;
}

/* msgpack's formats `uint 64` (0xcf) and `bin 32` (0xc6), big-endian. */
static uint8_t *put(uint8_t *at, uint8_t format, uint64_t value, int bytes) {
    *at++ = format;
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
        *at++ = (uint8_t)(value >> shift);
    }
    return at;
}

static uint64_t overhead_ns(const hps_courier *courier) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    uint64_t events = atomic_load_explicit(&hps_the_ring.head, memory_order_relaxed) - courier->emitted_before;
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec +
           (uint64_t)((double)events * courier->event_cost_ns);
}

size_t hps_courier_pack(hps_courier *courier, const uint8_t **message) {
    /* Both before the events are taken out: the daemon is told nothing of what is still in the ring. */
    uint64_t dropped = atomic_load(&hps_the_ring.dropped) - courier->dropped_before + courier->lost;
    uint64_t watermark_ns = hps_now_ns();
    size_t count = hps_ring_drain((hps_event *)(courier->memory + HEADER_ROOM), BATCH_EVENTS);
    if (count == 0 && watermark_ns < courier->next_sign_ns) {
        return 0;
    }
    courier->next_sign_ns = watermark_ns + SIGN_NS;
    uint8_t *begin = courier->memory + HEADER_ROOM - courier->prefix - FIELDS * INTEGER - BIN;
    uint8_t *at = begin + courier->prefix;
    at = put(at, 0xcf, ++courier->sequence, 8);
    at = put(at, 0xcf, watermark_ns, 8);
    at = put(at, 0xcf, courier->sent, 8);
    at = put(at, 0xcf, dropped, 8);
    at = put(at, 0xcf, overhead_ns(courier), 8);
    put(at, 0xc6, count * sizeof(hps_event), 4);
    courier->packed = count;
    courier->sent += count;
    *message = begin;
    return courier->prefix + FIELDS * INTEGER + BIN + count * sizeof(hps_event);
}

void hps_courier_lose(hps_courier *courier) {
    courier->sent -= courier->packed;
    courier->lost += courier->packed;
    courier->packed = 0;
}

static int socket_events(hps_courier *courier) {
    int events = 0;
    size_t size = sizeof events;
    return courier->getsockopt(courier->socket, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

/* Send what is there. Returns why to go back to Python, or -1. */
static int flush(hps_courier *courier) {
    const uint8_t *message;
    do {
        int events = socket_events(courier);
        if (events & ZMQ_POLLIN) {
            return HPS_COURIER_ASKED;
        }
        if (!(events & ZMQ_POLLOUT)) {
            return HPS_COURIER_BLOCKED;
        }
        size_t size = hps_courier_pack(courier, &message);
        if (size == 0) {
            return -1;
        }
        if (courier->send(courier->socket, message, size, ZMQ_DONTWAIT) < 0) {
            hps_courier_lose(courier);
            return HPS_COURIER_BLOCKED;
        }
    } while (courier->packed == BATCH_EVENTS);
    return -1;
}

void hps_courier_call(hps_courier *courier) { atomic_store_explicit(&courier->called, true, memory_order_release); }

int hps_courier_carry(hps_courier *courier, uint64_t every_ns, uint64_t until_ns) {
    for (;;) {
        uint64_t now = hps_now_ns();
        if (now >= until_ns) {
            return HPS_COURIER_DUE;
        }
        uint64_t end = courier->next_sign_ns < until_ns ? courier->next_sign_ns : until_ns;
        if (hps_ring_wait(every_ns, end > now ? end - now : 0) == HPS_WAIT_WOKEN ||
            atomic_exchange_explicit(&courier->called, false, memory_order_acquire)) {
            return HPS_COURIER_WOKEN;
        }
        if (courier->socket == NULL) {
            return HPS_COURIER_READY;
        }
        int outcome = flush(courier);
        if (outcome >= 0) {
            return outcome;
        }
    }
}
