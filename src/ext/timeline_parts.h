/* What timeline.c and timeline_steps.c have of each other. */
#ifndef HPCSAMPLER_TIMELINE_PARTS_H
#define HPCSAMPLER_TIMELINE_PARTS_H

#include "timeline.h"

/* timeline.c: time and open intervals */
hps_time_slot *hps_slot_at(hps_timeline *self, uint64_t index);
hps_open *hps_find_open(hps_timeline *self, uint16_t phase, uint32_t key);
void hps_open_interval(hps_timeline *self, const hps_event *event);
void hps_remove_open(hps_timeline *self, hps_open *open);
bool hps_close_interval(hps_timeline *self, uint16_t phase, uint32_t key); /* false: it was not open */

/* timeline_collectives.c: and when it is not known any more which are going on */
void hps_collective_event(hps_timeline *self, const hps_event *event);
void hps_forget_collectives(hps_timeline *self);

/* timeline_steps.c: what an event of each of these phases does */
void hps_step_event(hps_timeline *self, const hps_event *event);
void hps_input_event(hps_timeline *self, const hps_event *event);
void hps_evaluation_event(hps_timeline *self, const hps_event *event);

#endif
