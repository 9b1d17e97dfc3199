/* The courier: takes events out of the ring, packs them as `events` messages and hands those to ZeroMQ, without Python
 * and without the GIL, so that sending ten times a second wakes no interpreter. */
#ifndef HPCSAMPLER_COURIER_H
#define HPCSAMPLER_COURIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    /* Set by hps_courier_open. */
    uint8_t *memory;
    size_t prefix; /* bytes of the message that never change: its array header, schema, type and rank key */
    uint64_t dropped_before, emitted_before;
    double event_cost_ns;
    /* Set by hps_courier_bind; without it only hps_courier_pack is of use. */
    void *socket;
    int (*send)(void *socket, const void *data, size_t size, int flags);
    int (*getsockopt)(void *socket, int option, void *value, size_t *size);
    /* The accounts. */
    uint64_t sequence; /* of the latest message of this rank, of whatever type */
    uint64_t sent;     /* events */
    uint64_t lost;     /* events that were taken out of the ring and could not be sent */
    uint64_t next_sign_ns;
    size_t packed; /* events in the message that is packed now */
    _Atomic bool called;
} hps_courier;

enum { HPS_COURIER_DUE = 0, HPS_COURIER_WOKEN = 1, HPS_COURIER_BLOCKED = 2, HPS_COURIER_READY = 3, HPS_COURIER_ASKED = 4 };

/* Begin to count from here. 0, or -1 without memory or with a prefix that is too long. */
int hps_courier_open(hps_courier *courier, const uint8_t *prefix, size_t size, double event_cost_ns);

void hps_courier_close(hps_courier *courier);

/* Send by a libzmq socket of this thread, through the libzmq that the library at `library` (loaded already) uses.
 * 0, or -1 if it isn't found there. */
int hps_courier_bind(hps_courier *courier, const char *library, void *socket);

/* Pack what is in the ring, at most one message's worth; with nothing there only once a second, as a sign of life.
 * Returns its size, 0 for none. It stands in `*message` until the next call and counts as sent. */
size_t hps_courier_pack(hps_courier *courier, const uint8_t **message);

/* The message that was packed last could not be sent. */
void hps_courier_lose(hps_courier *courier);

/* Let hps_courier_carry return before it sends what enters the ring from here on. From any thread. */
void hps_courier_call(hps_courier *courier);

/* Send what comes, every `every_ns`, until `until_ns` (DUE) or hps_ring_wake or hps_courier_call (WOKEN), or
 * until the socket takes no
 * more or nobody is connected (BLOCKED: all not sent yet is in the ring), or has a message for us (ASKED). READY, if no socket is bound and there is
 * something to pack. */
int hps_courier_carry(hps_courier *courier, uint64_t every_ns, uint64_t until_ns);

#endif
