/* One event from C against the clock it reads: prints nanoseconds of each, `rounds` lines. */
#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

enum { CALLS = 32768 };

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    static hps_event out[CALLS];
    hps_ring_open(65536);
    hps_ring_record(true);
    uint64_t sink = 0;
    for (int round = 0; round < rounds; round++) {
        uint64_t begin = hps_now_ns();
        for (int i = 0; i < CALLS; i++) {
            sink += hps_now_ns();
        }
        uint64_t middle = hps_now_ns();
        for (int i = 0; i < CALLS; i++) {
            hps_emit(4, HPS_BEGIN, 0, 1, i);
        }
        uint64_t end = hps_now_ns();
        if (hps_ring_drain(out, CALLS) != CALLS) {
            return 1;
        }
        printf("%.3f %.3f\n", (double)(middle - begin) / CALLS, (double)(end - middle) / CALLS);
    }
    return sink == 0;
}
