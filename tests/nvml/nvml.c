/* A scripted libnvidia-ml.so.1: the real nvidia-ml-py loads it by name and knows no difference.
 *
 * SIMULATED_GPUS       how many (default 2)
 * SIMULATED_PIDS       pids with a compute context on GPU 0, by commas
 * SIMULATED_STATE      a file whose first words are "utilization milliwatts mode", read at each call; mode is
 *                      ok, hang (nvmlDeviceGetPowerUsage never returns) or lost (GPU 1 has fallen off the bus)
 * SIMULATED_NO_DRIVER  nvmlInit fails as without a kernel module
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_SIZE = 7, NO_DRIVER = 9, LOST = 15 };
enum { GPUS_MOST = 64 };

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

static int devices[GPUS_MOST]; /* handles point in here */

static unsigned count(void) {
    const char *text = getenv("SIMULATED_GPUS");
    return text ? (unsigned)atoi(text) : 2;
}

static int state(unsigned *percent, unsigned *milliwatts, char mode[16]) {
    *percent = 63, *milliwatts = 250000;
    strcpy(mode, "ok");
    const char *path = getenv("SIMULATED_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%u %u %15s", percent, milliwatts, mode) != 3) {
            strcpy(mode, "ok");
        }
        fclose(file);
    }
    return 0;
}

static int answer(void *device) {
    unsigned percent, milliwatts;
    char mode[16];
    state(&percent, &milliwatts, mode);
    return strcmp(mode, "lost") == 0 && device == &devices[1] ? LOST : OK;
}

int nvmlInit_v2(void) { return getenv("SIMULATED_NO_DRIVER") ? NO_DRIVER : OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    return code == NO_DRIVER ? "Driver Not Loaded" : code == LOST ? "GPU is lost" : "Simulated error";
}
int nvmlDeviceGetCount_v2(unsigned *out) { *out = count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= count()) {
        return INVALID;
    }
    *out = &devices[index];
    return OK;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) {
    snprintf(out, size, "SIMULATED GPU %d", (int)((int *)device - devices));
    return OK;
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    snprintf(out, size, "GPU-simulated-%d", (int)((int *)device - devices));
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization *out) {
    unsigned milliwatts;
    char mode[16];
    state(&out->gpu, &milliwatts, mode);
    out->memory = 10;
    return answer(device);
}
int nvmlDeviceGetMemoryInfo(void *device, memory *out) {
    *out = (memory){80ull << 30, 60ull << 30, 20ull << 30};
    return answer(device);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *out) {
    unsigned percent;
    char mode[16];
    state(&percent, out, mode);
    while (strcmp(mode, "hang") == 0) {
        sleep(1000);
    }
    return answer(device);
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out) { *out = 400000; return answer(device); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out) {
    (void)device, (void)sensor, (void)out;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *out) {
    *out = type == 1 ? 1410 : 1593;
    return answer(device);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *size, process *out) {
    unsigned found = 0;
    char text[256] = "";
    if (getenv("SIMULATED_PIDS") && device == &devices[0]) {
        strncpy(text, getenv("SIMULATED_PIDS"), sizeof text - 1);
    }
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ","), found++) {
        if (out && found < *size) {
            out[found] = (process){(unsigned)atoi(word), 1ull << 30, ~0u, ~0u};
        }
    }
    int code = found > *size ? NO_SIZE : OK;
    *size = found;
    return code;
}
