#include "timeline_parts.h"

#include <string.h>

/* ---- time ------------------------------------------------------------------------------------------------------ */

hps_time_slot *hps_slot_at(hps_timeline *self, uint64_t index) {
    hps_time_slot *slot = &self->slots[index % HPS_SLOTS];
    if (slot->index != index) {
        memset(slot, 0, sizeof *slot);
        slot->index = index;
    }
    return slot;
}

static hps_detail *detail_of(hps_timeline *self, uint16_t phase, uint32_t key) {
    hps_detail *stalest = &self->details[0];
    for (int i = 0; i < self->detail_count; i++) {
        if (self->details[i].key == key && self->details[i].phase == phase) {
            return &self->details[i];
        }
        if (self->details[i].until_ns < stalest->until_ns) {
            stalest = &self->details[i];
        }
    }
    /* In a full table the one that was on longest ago makes room: details are read as differences over seconds. */
    hps_detail *detail = self->detail_count < HPS_DETAILS_MOST ? &self->details[self->detail_count++] : stalest;
    *detail = (hps_detail){.key = key, .phase = phase};
    return detail;
}

static void count_detail(hps_timeline *self, const hps_event *event) {
    if (!(event->flags & HPS_PRODUCTIVE)) {
        hps_detail *detail = detail_of(self, event->phase, event->key);
        detail->count++;
        detail->until_ns = event->t_ns; /* a new one must not be the first to make room */
    }
}

/* Charge everything up to `t_ns` to the category that is on. */
static void advance(hps_timeline *self, uint64_t t_ns) {
    if (t_ns <= self->now_ns) {
        return;
    }
    uint64_t span = t_ns - self->now_ns;
    self->totals_ns[self->category] += span;
    if (self->phase != 0 && self->category != HPS_USER_PRODUCTIVE) { /* details are of stalls */
        hps_detail *detail = detail_of(self, self->phase, self->key);
        detail->ns += span;
        detail->until_ns = t_ns;
    }
    uint64_t from = self->now_ns;
    uint64_t oldest = t_ns / HPS_SLOT_NS < HPS_SLOTS ? 0 : (t_ns / HPS_SLOT_NS - HPS_SLOTS + 1) * HPS_SLOT_NS;
    if (from < oldest) {
        from = oldest; /* no window looks back that far */
    }
    while (from < t_ns) {
        uint64_t index = from / HPS_SLOT_NS;
        uint64_t end = (index + 1) * HPS_SLOT_NS;
        if (end > t_ns) {
            end = t_ns;
        }
        hps_slot_at(self, index)->ns[self->category] += (uint32_t)(end - from);
        from = end;
    }
    self->now_ns = t_ns;
}

/* The smaller wins. */
static int precedence(uint8_t category, bool yields) {
    return 2 * (yields ? HPS_COLLECTIVE : category == HPS_USER_PRODUCTIVE ? HPS_USER : category) + yields;
}

/* What may take as long as it does without a step, and nothing hangs. */
static bool takes_its_time(uint8_t category) {
    return category == HPS_UNCOVERED || category == HPS_CHECKPOINT || category == HPS_COMPILE ||
           category == HPS_EVALUATION || category == HPS_STARTUP || category == HPS_USER_PRODUCTIVE;
}

/* Which category is on from now on: the open interval of the highest precedence, among equals the youngest. */
static void decide(hps_timeline *self) {
    uint8_t category = self->started ? HPS_HOST : HPS_STARTUP;
    uint16_t phase = 0;
    uint32_t key = 0;
    uint64_t begin = 0;
    int best = precedence(category, false);
    if (self->lost || self->paused) {
        category = HPS_UNCOVERED;
    } else {
        for (int i = 0; i < self->open_count; i++) {
            const hps_open *open = &self->open[i];
            int order = precedence(open->category, open->yields);
            if (order < best || (order == best && open->begin_ns >= begin)) {
                best = order;
                category = open->category;
                phase = open->phase;
                key = open->key;
                begin = open->begin_ns;
            }
        }
    }
    if (category != self->category && takes_its_time(self->category)) {
        self->progress_ns = self->now_ns;
    }
    if (category != self->category || phase != self->phase || key != self->key) {
        self->category = category;
        self->phase = phase;
        self->key = key;
        self->since_ns = self->now_ns;
    }
}

/* ---- open intervals -------------------------------------------------------------------------------------------- */

static uint8_t category_of(uint16_t phase, uint8_t flags) {
    if (phase >= HPS_FIRST_USER_PHASE) {
        return flags & HPS_PRODUCTIVE ? HPS_USER_PRODUCTIVE : HPS_USER;
    }
    return phase >= 1 && phase <= HPS_HOST ? (uint8_t)phase : 0;
}

hps_open *hps_find_open(hps_timeline *self, uint16_t phase, uint32_t key) {
    for (int i = self->open_count - 1; i >= 0; i--) {
        if (self->open[i].phase == phase && self->open[i].key == key) {
            return &self->open[i];
        }
    }
    return NULL;
}

void hps_open_interval(hps_timeline *self, const hps_event *event) {
    uint8_t category = category_of(event->phase, event->flags);
    if (category == 0) {
        return;
    }
    hps_open *open = hps_find_open(self, event->phase, event->key);
    if (open != NULL) {
        if (event->flags & HPS_GRAPH) {
            open->begin_ns = self->now_ns; /* an error swallowed the end of the last one */
            open->depth = 1;
        } else {
            open->depth++;
        }
        return;
    }
    if (self->open_count == HPS_OPEN_MOST) {
        self->overflow++;
        return;
    }
    self->open[self->open_count++] = (hps_open){
        self->now_ns, event->key, event->phase, category, (event->flags & HPS_GRAPH) != 0,
        category == HPS_COMPILE && (event->flags & HPS_YIELDS) != 0, 1};
}

void hps_remove_open(hps_timeline *self, hps_open *open) {
    *open = self->open[--self->open_count];
}

bool hps_close_interval(hps_timeline *self, uint16_t phase, uint32_t key) {
    hps_open *open = hps_find_open(self, phase, key);
    if (open == NULL) {
        self->unmatched++;
        return false;
    }
    if (--open->depth == 0) {
        hps_remove_open(self, open);
    }
    return true;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void mark_event(hps_timeline *self, const hps_event *event) {
    hps_mark *mark = NULL;
    for (int i = 0; i < self->mark_count && mark == NULL; i++) {
        if (self->marks[i].id == event->phase) {
            mark = &self->marks[i];
        }
    }
    if (mark == NULL) {
        if (self->mark_count == HPS_MARKS_MOST) {
            self->overflow++;
            return;
        }
        mark = &self->marks[self->mark_count++];
        *mark = (hps_mark){.id = event->phase};
    }
    mark->count++;
    mark->last = event->value;
    mark->is_float = (event->flags & HPS_FLOAT) != 0;
}

static void fold(hps_timeline *self, const hps_event *event) {
    self->events++;
    if (event->phase >= HPS_FIRST_USER_PHASE && event->kind == HPS_POINT) {
        mark_event(self, event); /* a mark says the same from any thread */
        return;
    }
    bool role = event->phase == HPS_INPUT && event->kind == HPS_POINT; /* the sender repeats them */
    /* A strategy launches eager collectives from threads of its own. */
    if (event->flags & HPS_OTHER_THREAD && !role && event->phase != HPS_COLLECTIVE) {
        return;
    }
    if (event->t_ns < self->now_ns) {
        self->late++;
    }
    advance(self, event->t_ns);
    self->lost = false;
    switch (event->phase) {
    case HPS_INPUT:
        hps_input_event(self, event);
        break;
    case HPS_STEP:
        hps_step_event(self, event);
        break;
    case HPS_EVALUATION:
        hps_evaluation_event(self, event);
        break;
    case HPS_COLLECTIVE:
        hps_collective_event(self, event);
        break;
    case HPS_HOST: /* a point that says whether recording stops or goes on here */
        if (event->kind == HPS_POINT) {
            self->paused = event->value != 0;
            hps_timeline_gap(self);
            self->lost = false;
        }
        break;
    default:
        if (event->kind == HPS_BEGIN) {
            hps_open_interval(self, event);
            count_detail(self, event);
        } else if (event->kind == HPS_END) {
            hps_close_interval(self, event->phase, event->key);
        }
    }
    decide(self);
}

void hps_timeline_start(hps_timeline *self, uint64_t start_ns) {
    memset(self, 0, sizeof *self);
    self->start_ns = self->now_ns = self->since_ns = start_ns;
    decide(self);
}

void hps_timeline_feed(hps_timeline *self, hps_event *events, size_t count, uint64_t watermark_ns) {
    /* Threads take their time stamps before their place in the ring, so neighbours may be swapped: nearly sorted,
     * which is what insertion is good at. A forged batch must not cost quadratic time: it may move each event by
     * 64 places only. */
    for (size_t i = 1; i < count; i++) {
        hps_event event = events[i];
        size_t j = i;
        while (j > 0 && i - j < 64 && events[j - 1].t_ns > event.t_ns) {
            events[j] = events[j - 1];
            j--;
        }
        events[j] = event;
    }
    if (watermark_ns > INT64_MAX) {
        watermark_ns = INT64_MAX; /* 292 years: forged, and near the end of the type the sums of slots would wrap */
    }
    for (size_t i = 0; i < count; i++) {
        /* Nothing can be from after the drain. Without this a forged time would move the clock for good. */
        if (events[i].t_ns > watermark_ns) {
            events[i].t_ns = watermark_ns;
        }
        fold(self, &events[i]);
    }
    advance(self, watermark_ns);
}

void hps_timeline_gap(hps_timeline *self) {
    self->open_count = 0;
    hps_forget_collectives(self);
    self->scope_depth = 0;
    self->inferred_source = 0;
    self->last_step_ns = 0;
    self->lost = true;
    decide(self);
}

uint64_t hps_timeline_steps(const hps_timeline *self) {
    /* Elements of the first iterator stood for steps only as long as nothing better was known. */
    return self->steps - (self->trained_any || self->explicit_any ? self->fallback_steps : 0);
}

void hps_timeline_window(const hps_timeline *self, uint64_t width_ns, uint64_t ns[HPS_CATEGORIES], uint64_t steps[2]) {
    memset(ns, 0, HPS_CATEGORIES * sizeof *ns);
    steps[0] = steps[1] = 0;
    uint64_t last = self->now_ns / HPS_SLOT_NS;
    uint64_t count = width_ns / HPS_SLOT_NS;
    if (count >= HPS_SLOTS) {
        count = HPS_SLOTS - 1;
    }
    for (uint64_t index = last > count ? last - count : 0; index <= last; index++) {
        const hps_time_slot *slot = &self->slots[index % HPS_SLOTS];
        if (slot->index != index) {
            continue;
        }
        for (int category = 0; category < HPS_CATEGORIES; category++) {
            ns[category] += slot->ns[category];
        }
        steps[0] += slot->steps;
        steps[1] += slot->evaluation_steps;
    }
}

size_t hps_timeline_step_times(const hps_timeline *self, uint64_t since_ns, float *out, size_t most) {
    uint64_t newest = self->step_time_count;
    uint64_t oldest = newest > HPS_STEP_TIMES ? newest - HPS_STEP_TIMES : 0;
    uint64_t since_ms = since_ns > self->start_ns ? (since_ns - self->start_ns) / 1000000u : 0;
    size_t n = 0;
    while (newest > oldest && n < most) {
        const hps_step_time *entry = &self->step_times[--newest % HPS_STEP_TIMES];
        if (entry->end_ms < since_ms) {
            break;
        }
        out[n++] = entry->ms;
    }
    return n;
}
