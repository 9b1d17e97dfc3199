/* A thread that wakes ten times a second and does nothing: what that alone costs here. Prints its nanoseconds of CPU. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    int wakes = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 0; i < wakes; i++) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("%lld\n", (long long)used.tv_sec * 1000000000 + used.tv_nsec);
    return 0;
}
