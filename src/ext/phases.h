/* The numbers of protocol/phases.py, which has the table and the words; a test holds the two together. */
#ifndef HPCSAMPLER_PHASES_H
#define HPCSAMPLER_PHASES_H

enum {
    HPS_CHECKPOINT = 1,
    HPS_COMPILE = 2,
    HPS_GC = 3,
    HPS_INPUT = 4,
    HPS_COLLECTIVE = 5,
    HPS_TRANSFER = 6,
    HPS_DEVICE = 7,
    HPS_CALLBACK = 8,
    HPS_USER = 9,
    HPS_EVALUATION = 10,
    HPS_STEP = 11,
    HPS_STARTUP = 12,
    HPS_HOST = 13,
    HPS_FIRST_USER_PHASE = 1024,
};

enum { HPS_BEGIN = 1, HPS_END = 2, HPS_POINT = 3, HPS_COUNTER = 4 };

enum { HPS_OTHER_THREAD = 1, HPS_GRAPH = 2, HPS_PRODUCTIVE = 4, HPS_EXACT = 8, HPS_ABORT = 16, HPS_FLOAT = 32, HPS_YIELDS = 64 };

enum { HPS_ROLE_TRAIN = 1, HPS_RESUMED = 0, HPS_PAUSED = 1 };

#endif
