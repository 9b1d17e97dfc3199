/* Which events are steps, which elements feed them, and when a wait is a wait. */
#include "timeline_parts.h"

/* The inferred step that is open, if any, is over. */
static void close_inferred(hps_timeline *self) {
    hps_open *open = hps_find_open(self, self->inferred_evaluates ? HPS_EVALUATION : HPS_STEP, self->inferred_source);
    if (self->inferred_source != 0 && open != NULL) {
        hps_remove_open(self, open);
    }
    self->inferred_source = 0;
}

/* In a full table the source that was not heard of for longest makes room: a program that makes new ones all the time,
 * say with each of many models, has done with the old ones. */
static hps_source *source_of(hps_timeline *self, uint32_t key) {
    hps_source *stalest = &self->sources[0];
    for (int i = 0; i < self->source_count; i++) {
        if (self->sources[i].key == key) {
            self->sources[i].used = ++self->source_uses;
            return &self->sources[i];
        }
        if (self->sources[i].used < stalest->used) {
            stalest = &self->sources[i];
        }
    }
    hps_source *source = stalest;
    if (self->source_count == HPS_SOURCES_MOST) {
        self->overflow++;
        hps_open *waiting = hps_find_open(self, HPS_INPUT, source->key);
        if (waiting != NULL) {
            hps_remove_open(self, waiting);
        }
        if (self->inferred_source == source->key) {
            close_inferred(self);
        }
    } else {
        source = &self->sources[self->source_count++];
    }
    *source = (hps_source){.key = key, .used = ++self->source_uses};
    return source;
}

static void count_steps(hps_timeline *self, uint64_t n) {
    if (n == 0) {
        return;
    }
    self->steps += n;
    hps_slot_at(self, self->now_ns / HPS_SLOT_NS)->steps += (uint32_t)n;
    self->progress_ns = self->now_ns;
    uint64_t evaluation = self->totals_ns[HPS_EVALUATION];
    if (self->last_step_ns != 0) {
        uint64_t between = self->now_ns - self->last_step_ns;
        uint64_t validation = evaluation - self->evaluation_mark_ns;
        hps_step_time *entry = &self->step_times[self->step_time_count++ % HPS_STEP_TIMES];
        entry->end_ms = (uint32_t)((self->now_ns - self->start_ns) / 1000000u);
        entry->ms = (float)((double)(between > validation ? between - validation : 0) / 1e6 / (double)n);
    }
    self->last_step_ns = self->now_ns;
    self->evaluation_mark_ns = evaluation;
}

static void count_evaluation(hps_timeline *self, uint64_t n) {
    self->progress_ns = self->now_ns;
    self->evaluation_steps += n;
    hps_slot_at(self, self->now_ns / HPS_SLOT_NS)->evaluation_steps += (uint32_t)n;
}

static void count_inferred(hps_timeline *self, uint64_t n) {
    if (self->inferred_evaluates) {
        count_evaluation(self, n);
    } else {
        count_steps(self, n);
        self->fallback_steps += self->inferred_is_fallback ? n : 0;
    }
}

/* Someone tells the steps after all: what was inferred was none, and from this iterator none is inferred again. */
static void cancel_inferred(hps_timeline *self) {
    if (self->inferred_source != 0) {
        hps_source *source = source_of(self, self->inferred_source);
        if (source != NULL) {
            source->explicit = true;
        }
        close_inferred(self);
    }
}

/* An element that has come starts a step, outside of steps that someone tells: a training step if gradients are computed
 * from this iterator or, while none are from any, if it is the first iterator that the program consumed; an
 * evaluation step if it is another that is consumed in a row. An iterator that only alternates with the one that
 * trains is part of that one's step; if both train, of the one that began it, until one yields a second element. */
static void infer_step(hps_timeline *self, hps_source *source, bool in_a_row) {
    bool fallback = !self->trained_any && !self->explicit_any && source->key == self->first_source;
    bool trains = source->trains || fallback;
    if (source->explicit || (!trains && !in_a_row && !source->evaluates) || self->inferred_source == source->key) {
        return;
    }
    if (!trains && !source->evaluates) {
        source->evaluates = true;
        count_evaluation(self, 1); /* the element before this one, of which that was not known yet */
    }
    if (self->inferred_source != 0) {
        if (trains && !self->inferred_evaluates && !self->inferred_is_fallback) {
            if (source->joined != self->inferred_count) {
                source->joined = self->inferred_count;
                return;
            }
            count_inferred(self, 1); /* its element before this one was a step of its own */
        }
        count_inferred(self, 1);
        close_inferred(self);
    }
    self->inferred_count++;
    self->inferred_source = source->key;
    self->inferred_evaluates = !trains;
    self->inferred_is_fallback = fallback && !source->trains;
    hps_event begin = {self->now_ns, 0, source->key, trains ? HPS_STEP : HPS_EVALUATION, HPS_BEGIN, HPS_GRAPH};
    hps_open_interval(self, &begin);
    self->started = true;
}

static void element_came(hps_timeline *self, hps_source *source) {
    bool in_a_row = self->last_source == source->key;
    self->last_source = source->key;
    source->held = true;
    if (self->first_source == 0) {
        self->first_source = source->key;
    }
    if (self->scope_depth > 0) {
        self->scope_elements++;
        return;
    }
    for (int i = 0; i < self->open_count; i++) {
        if (self->open[i].phase == HPS_EVALUATION && self->open[i].key != self->inferred_source) {
            self->batch_elements++;
            return;
        }
    }
    infer_step(self, source, in_a_row);
}

/* A graph is done with one element, or with all (`over`: its function has ended). */
static void elements_done(hps_timeline *self, hps_source *source, bool over) {
    source->tells |= !over;
    uint32_t n = over || source->in_flight == 0 ? source->in_flight : 1;
    source->in_flight -= n;
    if (self->inferred_source == source->key && n > 0) {
        count_inferred(self, n);
    }
    if (source->in_flight > 0) {
        return;
    }
    if (self->inferred_source == source->key) {
        close_inferred(self);
    }
    hps_open *waiting = hps_find_open(self, HPS_INPUT, source->key);
    if (over) {
        source->wanted = false;
        if (waiting != NULL) {
            hps_remove_open(self, waiting);
        }
    } else if (source->wanted && waiting == NULL) {
        /* The next element was asked for while this one was computed on. From here on the graph waits for it. */
        hps_event begin = {self->now_ns, 0, source->key, HPS_INPUT, HPS_BEGIN, HPS_GRAPH};
        hps_open_interval(self, &begin);
    }
}

void hps_step_event(hps_timeline *self, const hps_event *event) {
    if (event->flags & HPS_GRAPH) { /* a graph is done with an element (point), or its function has ended (end) */
        hps_source *source = source_of(self, event->key);
        if (source != NULL && source->in_graph) {
            elements_done(self, source, event->kind == HPS_END);
        } else if (source != NULL && self->inferred_source == event->key) { /* an eager iterator is gone */
            count_inferred(self, 1);
            close_inferred(self);
            source->held = false;
        }
        return;
    }
    if (event->kind == HPS_BEGIN) {
        cancel_inferred(self);
        if (self->scope_depth++ == 0) {
            self->scope_elements = 0;
        }
        self->explicit_any = true;
        self->started = true;
        hps_open_interval(self, event);
    } else if (event->kind == HPS_END && hps_close_interval(self, event->phase, event->key)) {
        if (--self->scope_depth == 0) {
            bool exact = (event->flags & HPS_EXACT) != 0 || self->scope_elements == 0;
            count_steps(self, exact ? (uint64_t)(event->value > 0 ? event->value : 0) : self->scope_elements);
        }
    }
}

/* An error has left a graph: whatever marks were to follow did not run. key: of the only source in question, or 0. */
static void abort_graphs(hps_timeline *self, uint32_t key) {
    for (int i = 0; i < self->source_count; i++) {
        hps_source *source = &self->sources[i];
        if (!source->in_graph || (key != 0 && source->key != key)) {
            continue;
        }
        source->wanted = false;
        source->in_flight = 0;
        if (self->inferred_source == source->key) {
            close_inferred(self);
        }
        hps_open *waiting = hps_find_open(self, HPS_INPUT, source->key);
        if (waiting != NULL) {
            hps_remove_open(self, waiting);
        }
    }
}

/* Gradients are computed from what this source yields. */
static void source_trains(hps_timeline *self, hps_source *source) {
    source->trains = true;
    self->trained_any = true;
    if (source->key == self->first_source) { /* the guess was right */
        self->fallback_steps = 0;
        self->inferred_is_fallback = false;
    }
    bool told = self->scope_depth > 0 || hps_find_open(self, HPS_EVALUATION, 0) != NULL;
    if (source->held && self->last_source == source->key && self->inferred_source == 0 && !told) {
        infer_step(self, source, false); /* by an element that is in use already */
    }
}

void hps_input_event(hps_timeline *self, const hps_event *event) {
    if (event->flags & HPS_ABORT) {
        hps_forget_collectives(self);
        abort_graphs(self, event->key);
        return;
    }
    hps_source *source = source_of(self, event->key);
    if (source == NULL) {
        return;
    }
    if (event->kind == HPS_POINT) {
        if (event->value == HPS_ROLE_TRAIN && !source->trains) {
            source_trains(self, source);
        }
        return;
    }
    source->in_graph = (event->flags & HPS_GRAPH) != 0;
    if (event->kind == HPS_BEGIN) {
        source->held = false;
        if (source->in_graph) {
            /* TensorFlow may fetch the next element while it computes on the last. That is no wait. */
            source->wanted = true;
            if (source->in_flight > 0 && source->tells) {
                return;
            }
        } else if (self->inferred_source == source->key) {
            count_inferred(self, 1);
            close_inferred(self);
        }
        hps_open_interval(self, event);
    } else if (event->kind == HPS_END) {
        if (!source->in_graph || hps_find_open(self, HPS_INPUT, source->key) != NULL) {
            hps_close_interval(self, event->phase, event->key);
        }
        source->wanted = false;
        if (event->value > 0) {
            if (source->in_flight > 0 && !source->tells) {
                elements_done(self, source, false); /* of what it does not tell, the next element is the sign */
                source->tells = false;
            }
            source->in_flight += source->in_graph;
            element_came(self, source);
        }
    }
}

/* The whole evaluation has key 0 and each of its batches key 1, so that batches can be counted. A batch without a
 * whole (`test_on_batch` in a loop of the user's) says that the loop's iterator feeds no training. */
void hps_evaluation_event(hps_timeline *self, const hps_event *event) {
    if (event->kind == HPS_BEGIN) {
        if (event->key == 1 && hps_find_open(self, HPS_EVALUATION, 0) == NULL) {
            cancel_inferred(self);
        }
        self->batch_elements = 0;
        self->started = true;
        hps_open_interval(self, event);
    } else if (event->kind == HPS_END && hps_close_interval(self, event->phase, event->key)) {
        hps_open *batch = hps_find_open(self, HPS_EVALUATION, 1);
        if (event->key == 1) {
            uint64_t told = event->value > 0 ? (uint64_t)event->value : 0;
            count_evaluation(self, self->batch_elements > 0 ? self->batch_elements : told);
            self->batch_elements = 0;
        } else if (batch != NULL) {
            hps_remove_open(self, batch); /* the data ended, or an error came, inside it: nothing else ends it */
        }
    }
}

