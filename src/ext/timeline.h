/* Folding one rank's events into an exclusive partition of its wall time. No Python, no allocation after creation. */
#ifndef HPCSAMPLER_TIMELINE_H
#define HPCSAMPLER_TIMELINE_H

#include "ring.h"

/* Where a nanosecond goes: one of the phases, 1 to 13, or */
enum {
    HPS_UNCOVERED = 0,        /* events were lost or recording was paused: not known, and said so */
    HPS_USER_PRODUCTIVE = 14, /* precedence of HPS_USER, but productive */
    HPS_CATEGORIES = 16,
};

enum {
    HPS_SLOT_NS = 100000000, /* windows are sums of slots of 100 ms, aligned on CLOCK_MONOTONIC, so on all ranks alike */
    HPS_SLOTS = 128,
    HPS_OPEN_MOST = 64,
    HPS_SOURCES_MOST = 256,
    HPS_DETAILS_MOST = 256,
    HPS_MARKS_MOST = 256,
    HPS_COLLECTIVES = 1024, /* of the last ones: some seconds of them */
    HPS_COLLECTIVES_OPEN = 64, /* of the last ones, that may still be going on */
    HPS_STEP_TIMES = 8192, /* of the last ones: 10 s of steps of 1.2 ms */
};

typedef struct {
    uint64_t index; /* t_ns / HPS_SLOT_NS; the slot holds something else when it differs */
    uint32_t ns[HPS_CATEGORIES];
    uint32_t steps;
    uint32_t evaluation_steps;
} hps_time_slot;

typedef struct {
    uint64_t begin_ns;
    uint32_t key;
    uint16_t phase; /* as on the wire: may be a user phase */
    uint8_t category;
    bool graph; /* begun by a graph mark, whose end an error can swallow */
    bool yields; /* to the waits of the graph that it goes on in */
    uint32_t depth;
} hps_open;

typedef struct { /* an iterator, or a place in a graph that gets from one */
    uint32_t key;
    bool trains;   /* gradients are computed from what it yields */
    bool evaluates; /* it has a loop of its own, and trains nothing */
    bool explicit; /* its steps are told by step() or by Keras: none are inferred */
    bool in_graph; /* its events come from graph marks */
    bool held;     /* an element has come and the next was not asked for */
    bool wanted;   /* a graph has asked for the next element */
    bool tells;    /* its graph says when it is done with an element */
    uint32_t in_flight; /* elements that a graph got and has not finished with */
    uint64_t joined;    /* the inferred step (its ordinal) of another source that its last element was part of */
    uint64_t used;      /* when it was last heard of, in uses of all sources */
} hps_source;

typedef struct {
    uint32_t key;
    uint16_t phase;
    uint64_t ns;
    uint64_t until_ns; /* when it was last on */
    uint64_t count;    /* how often it began */
} hps_detail;

typedef struct {
    uint32_t id;
    bool is_float;
    int64_t last;
    uint64_t count;
} hps_mark;

typedef struct { /* one collective that this rank took part in */
    uint64_t before_ns; /* when this rank had left its last one before; 0: not known */
    uint64_t begin_ns; /* its last replica has arrived */
    uint64_t end_ns;   /* its last replica has left; 0: not yet, or nobody knows when */
    int64_t value;     /* names it, with the key, on all ranks */
    uint32_t key;
    uint16_t arrived, inside; /* replicas of this rank */
} hps_collective;

typedef struct {
    uint32_t end_ms; /* since the start of the timeline */
    float ms;
} hps_step_time;

typedef struct {
    uint64_t start_ns;
    uint64_t now_ns;     /* time folded so far */
    uint64_t since_ns;   /* the current category has been on since then */
    uint8_t category;    /* the current one */
    uint16_t phase;      /* of the interval that wins */
    uint32_t key;        /* likewise */
    bool lost, paused;   /* since the last gap: nothing is known */
    bool started;        /* a first step or evaluation has begun */

    uint64_t events, late, unmatched, overflow;
    uint64_t steps, evaluation_steps, fallback_steps;
    uint64_t totals_ns[HPS_CATEGORIES];

    int open_count;
    hps_open open[HPS_OPEN_MOST];

    int scope_depth;         /* open explicit steps */
    uint64_t scope_elements; /* elements got within the outermost */
    uint64_t batch_elements; /* likewise in the evaluation batch */
    bool trained_any, explicit_any;
    uint32_t inferred_source; /* 0: no inferred step is open */
    bool inferred_evaluates, inferred_is_fallback;
    uint64_t inferred_count; /* inferred steps begun so far */
    uint64_t source_uses;
    uint32_t first_source, last_source;
    int source_count;
    hps_source sources[HPS_SOURCES_MOST];

    uint64_t collective_count; /* begun so far */
    uint64_t collective_left_ns; /* when the last one was left */
    int collectives_inside;    /* replicas that are in one now */
    hps_collective collectives[HPS_COLLECTIVES];

    uint64_t progress_ns; /* when a training or evaluation step ended last, or what takes its time and is no step; 0: never */
    uint64_t last_step_ns, evaluation_mark_ns; /* evaluation total when the last step ended */
    uint64_t step_time_count;
    int detail_count;
    hps_detail details[HPS_DETAILS_MOST];
    int mark_count;
    hps_mark marks[HPS_MARKS_MOST];
    hps_time_slot slots[HPS_SLOTS];
    hps_step_time step_times[HPS_STEP_TIMES];
} hps_timeline;

void hps_timeline_start(hps_timeline *self, uint64_t start_ns);

/* Fold `count` events and then go on to `watermark_ns`: nothing older is still to come. Sorts the events in place. */
void hps_timeline_feed(hps_timeline *self, hps_event *events, size_t count, uint64_t watermark_ns);

/* Events were lost after the last one fed: until the next one nothing is known. */
void hps_timeline_gap(hps_timeline *self);

/* Steps since attach. */
uint64_t hps_timeline_steps(const hps_timeline *self);

/* Nanoseconds by category in the last `width_ns` before now (whole slots); `steps` are training and evaluation. */
void hps_timeline_window(const hps_timeline *self, uint64_t width_ns, uint64_t ns[HPS_CATEGORIES], uint64_t steps[2]);

/* Collectives that were begun after the first `*since`, in that order, and are over, one in 2^`shift` of them, by a hash
 * of their value that is the same on all ranks; at most `most`. Returns how many, and sets `*since` to where to go on:
 * to the first that is not over. */
size_t hps_timeline_collectives(const hps_timeline *self, uint64_t *since, int shift, hps_collective *out, size_t most);

/* The oldest collective that this rank is in now; NULL if it is in none. */
const hps_collective *hps_timeline_open_collective(const hps_timeline *self);

/* Step times in ms that ended after `since_ns`, at most `most`, unordered; returns how many. */
size_t hps_timeline_step_times(const hps_timeline *self, uint64_t since_ns, float *out, size_t most);

#endif
