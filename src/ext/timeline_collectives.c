/* Which collectives a rank was in, and from when to when: what straggling ranks are told by. */
#include "timeline_parts.h"

static hps_collective *collective_at(hps_timeline *self, uint64_t ordinal) {
    return &self->collectives[ordinal % HPS_COLLECTIVES];
}

/* The first of those that may still be going on. */
static uint64_t oldest_open(const hps_timeline *self) {
    return self->collective_count > HPS_COLLECTIVES_OPEN ? self->collective_count - HPS_COLLECTIVES_OPEN : 0;
}

static void leave(hps_timeline *self, hps_collective *collective, uint16_t replicas) {
    collective->inside -= replicas;
    self->collectives_inside -= replicas;
    if (self->collectives_inside <= 0) {
        self->collectives_inside = 0;
        hps_open *open = hps_find_open(self, HPS_COLLECTIVE, 0);
        if (open != NULL) {
            hps_remove_open(self, open);
        }
    }
}

void hps_forget_collectives(hps_timeline *self) {
    self->collective_left_ns = 0;
    for (uint64_t i = oldest_open(self); i < self->collective_count && self->collectives_inside > 0; i++) {
        hps_collective *collective = collective_at(self, i);
        if (collective->inside > 0) {
            leave(self, collective, collective->inside);
        }
    }
}

/* The one of this name that is going on, or whose other replicas have just left. */
static hps_collective *find(hps_timeline *self, const hps_event *event, bool open) {
    for (uint64_t i = self->collective_count; i-- > oldest_open(self);) {
        hps_collective *collective = collective_at(self, i);
        if (collective->key == event->key && collective->value == event->value &&
            (collective->inside > 0 || (!open && (uint32_t)event->value != 0))) {
            return collective;
        }
    }
    return NULL;
}

static void begin(hps_timeline *self, const hps_event *event) {
    hps_collective *collective = find(self, event, false);
    if (collective == NULL) {
        /* The end of one that is so far behind will not come: an error took it. */
        if (self->collective_count >= HPS_COLLECTIVES_OPEN) {
            hps_collective *behind = collective_at(self, oldest_open(self));
            if (behind->inside > 0) {
                leave(self, behind, behind->inside);
            }
        }
        collective = collective_at(self, self->collective_count++);
        *collective = (hps_collective){
            .before_ns = self->collective_left_ns, .key = event->key, .value = event->value};
    }
    collective->begin_ns = self->now_ns;
    collective->end_ns = 0;
    collective->arrived++;
    collective->inside++;
    self->collectives_inside++;
    /* One interval for all of them: several may go on at once. Those of other threads are none of the partition. */
    if (!(event->flags & HPS_OTHER_THREAD) && hps_find_open(self, HPS_COLLECTIVE, 0) == NULL) {
        hps_event interval = {self->now_ns, 0, 0, HPS_COLLECTIVE, HPS_BEGIN, HPS_GRAPH};
        hps_open_interval(self, &interval);
    }
}

void hps_collective_event(hps_timeline *self, const hps_event *event) {
    if (event->kind == HPS_BEGIN) {
        begin(self, event);
    } else if (event->kind == HPS_END) {
        hps_collective *collective = find(self, event, true);
        if (collective == NULL) {
            self->unmatched++;
            return;
        }
        leave(self, collective, 1);
        if (collective->inside == 0) {
            collective->end_ns = self->collective_left_ns = self->now_ns;
        }
    }
}

/* Spread evenly whatever the step between the numbers, so that with two collectives a step both are seen (Knuth's
 * multiplicative hash). */
static bool is_sample(int64_t value, int shift) {
    return shift <= 0 || (uint32_t)value * 2654435761u >> (32 - shift) == 0;
}

size_t hps_timeline_collectives(const hps_timeline *self, uint64_t *since, int shift, hps_collective *out, size_t most) {
    uint64_t oldest = self->collective_count > HPS_COLLECTIVES ? self->collective_count - HPS_COLLECTIVES : 0;
    uint64_t i = *since > oldest ? *since : oldest;
    size_t n = 0;
    for (; i < self->collective_count && n < most; i++) {
        const hps_collective *collective = &self->collectives[i % HPS_COLLECTIVES];
        if (collective->inside > 0) {
            break;
        }
        if (collective->end_ns != 0 && (uint32_t)collective->value != 0 && is_sample(collective->value, shift)) {
            out[n++] = *collective;
        }
    }
    *since = i;
    return n;
}

const hps_collective *hps_timeline_open_collective(const hps_timeline *self) {
    for (uint64_t i = oldest_open(self); i < self->collective_count; i++) {
        const hps_collective *collective = &self->collectives[i % HPS_COLLECTIVES];
        if (collective->inside > 0) {
            return collective;
        }
    }
    return NULL;
}
