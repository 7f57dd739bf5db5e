/* A stand-in for the driver's libnvidia-ml.so.1, so that the real binding, its structs and its error paths run
 * without a GPU. It is told what to be by standin_script(), or by the file that NVML_STAND_IN names, read again
 * whenever it changes. One command a line; a device is 0, or 0:1 for a MIG slice, or * for any:
 *
 *   gpus N                     start anew with N healthy GPUs
 *   begin N                    the same in a process that has none yet; it comes first in a file that changes
 *   mig G N                    slice GPU G in N
 *   set D FIELD VALUE          power_mw, util, temperature, used, total, limit_mw, energy_mj, frozen, period_us,
 *                              value_type, junk; uuid and name take text; counter_mj is what the energy counter shows,
 *                              whatever was drawn; field_result answers each field by itself; crowded: so many times
 *                              the processes are more than were told a moment ago; stride: bytes of an entry in the
 *                              list of running processes
 *   sample D TIMESTAMP VALUE   put a sample into the utilisation buffer, which is told whatever was seen before
 *   process D PID UTIL         a process that is busy from now on; UTIL 0 ends it
 *   clock US | advance US      a clock of its own from here on, microseconds since the epoch
 *   step US                    somebody sets that clock: it jumps by US, and no time passes
 *   fail CALL D CODE [AFTER]   answer CODE from the AFTERth call on; hang CALL D [AFTER]; ok CALL D ends either
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MOST_GPUS = 8, MOST_SLICES = 7, MOST_FAULTS = 256, MOST_COUNTS = 1024, RING = 120, MOST_PROCESSES = 16, HANG = -1 };

typedef unsigned long long u64;
typedef struct { u64 timestamp; union { double d; unsigned u; u64 ull; } value; } sample_t;
typedef struct { unsigned pid; u64 timestamp; unsigned sm, memory, encoder, decoder; } process_sample_t;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { unsigned field, scope; int64_t timestamp, latency; unsigned type; int result; u64 value; } field_t;
typedef struct device {
    int gpu, slice; /* slice is -1 for a whole GPU */
    char uuid[96], name[96];
    u64 power_mw, util, temperature, used, total, limit_mw, energy_nj, since_us, frozen, frozen_mj, period_us;
    u64 value_type, junk, busy, sampled_us, number, counter_mj, field_result, crowded, stride;
    sample_t ring[RING];
    char by_hand[RING];
    unsigned pids[MOST_PROCESSES], pid_util[MOST_PROCESSES];
    int slices;
} device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device gpus[MOST_GPUS][MOST_SLICES + 1];
static int gpu_count, initialised, hanging;
static pid_t owner;
static u64 own_clock_us;
static struct { char call[64], device[8]; int code; long after; } faults[MOST_FAULTS];
static struct { char call[64], device[8]; long count; } counts[MOST_COUNTS];
static struct timespec read_at;

static u64 now_us(void) {
    struct timespec now;
    if (own_clock_us) return own_clock_us;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

/* Integrates power, and fills the utilisation buffer up to now. */
static void catch_up(device *d) {
    u64 now = now_us(), at = d->since_us;
    if (now <= at) return;
    d->energy_nj += d->power_mw * (now - at);
    while (d->sampled_us + d->period_us <= now) {
        u64 end = d->sampled_us + d->period_us;
        d->busy += d->util * (end - at);
        d->by_hand[d->number % RING] = 0;
        sample_t *one = &d->ring[d->number++ % RING];
        one->timestamp = end;
        one->value.ull = d->busy / d->period_us;
        d->busy = 0;
        at = d->sampled_us = end;
    }
    d->busy += d->util * (now - at);
    d->since_us = now;
}

static void make(int gpu, int slice) {
    device *d = &gpus[gpu][slice + 1];
    memset(d, 0, sizeof *d);
    d->gpu = gpu, d->slice = slice;
    d->since_us = d->sampled_us = now_us();
    d->power_mw = 300000, d->util = 40, d->temperature = 55, d->limit_mw = 700000, d->period_us = 100000, d->value_type = 1;
    d->used = 20ull << 30, d->total = 80ull << 30, d->stride = sizeof(process_t);
    if (slice < 0) sprintf(d->uuid, "GPU-%08d-1111-2222-3333-444444444444", gpu);
    else sprintf(d->uuid, "MIG-%08d-%04d-5555-6666-777777777777", gpu, slice);
    strcpy(d->name, slice < 0 ? "NVIDIA H100 80GB HBM3" : "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
}

static device *named(const char *text) {
    int gpu = 0, slice = -1;
    sscanf(text, "%d:%d", &gpu, &slice);
    return &gpus[gpu % MOST_GPUS][(slice + 1) % (MOST_SLICES + 1)];
}

static void set(device *d, const char *field, const char *text) {
    u64 value = strtoull(text, NULL, 0);
    catch_up(d);
    if (!strcmp(field, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%s", text);
    else if (!strcmp(field, "name")) snprintf(d->name, sizeof d->name, "%s", text);
    else if (!strcmp(field, "power_mw")) d->power_mw = value;
    else if (!strcmp(field, "util")) d->util = value;
    else if (!strcmp(field, "temperature")) d->temperature = value;
    else if (!strcmp(field, "used")) d->used = value;
    else if (!strcmp(field, "total")) d->total = value;
    else if (!strcmp(field, "limit_mw")) d->limit_mw = value;
    else if (!strcmp(field, "energy_mj")) d->energy_nj = value * 1000000;
    else if (!strcmp(field, "frozen")) d->frozen = value, d->frozen_mj = d->energy_nj / 1000000;
    else if (!strcmp(field, "period_us")) d->period_us = value;
    else if (!strcmp(field, "value_type")) d->value_type = value;
    else if (!strcmp(field, "junk")) d->junk = value;
    else if (!strcmp(field, "counter_mj")) d->counter_mj = value;
    else if (!strcmp(field, "field_result")) d->field_result = value;
    else if (!strcmp(field, "crowded")) d->crowded = value;
    else if (!strcmp(field, "stride")) d->stride = value;
    else fprintf(stderr, "nvml stand-in: no device has %s\n", field), abort();
}

static void set_process(device *d, unsigned pid, unsigned util) {
    int free_slot = -1;
    for (int i = 0; i < MOST_PROCESSES; i++) {
        if (d->pids[i] == pid) free_slot = i;
        else if (!d->pid_util[i] && free_slot < 0) free_slot = i;
    }
    if (free_slot >= 0) d->pids[free_slot] = util ? pid : 0, d->pid_util[free_slot] = util;
}

static void set_fault(const char *call, const char *dev, int code, long after) {
    int slot = -1;
    for (int i = 0; i < MOST_FAULTS; i++) {
        int same = !strcmp(faults[i].call, call) && !strcmp(faults[i].device, dev);
        if (same || (!faults[i].call[0] && slot < 0)) slot = i;
        if (same) break;
    }
    if (slot < 0) return;
    if (!code) { faults[slot].call[0] = 0; return; }
    snprintf(faults[slot].call, sizeof faults[slot].call, "%s", call);
    snprintf(faults[slot].device, sizeof faults[slot].device, "%s", dev);
    faults[slot].code = code, faults[slot].after = after;
}

static void set_clock(u64 us) {
    /* Real time that passed before is not lived through again. */
    for (int g = 0; g < gpu_count; g++)
        for (int s = 0; s <= MOST_SLICES; s++) {
            device *d = &gpus[g][s];
            if (!own_clock_us) d->since_us = d->sampled_us = us, d->number = 0;
            else catch_up(d);
        }
    own_clock_us = us;
}

static void step_clock(long long us) {
    for (int g = 0; g < gpu_count; g++)
        for (int s = 0; s <= MOST_SLICES; s++)
            gpus[g][s].since_us += (u64)us, gpus[g][s].sampled_us += (u64)us;
    own_clock_us += (u64)us;
}

static void command(const char *line) {
    char a[64] = "", b[96] = "", text[96] = "";
    u64 x = 0, y = 0;
    long long signed_us = 0;
    int code = 0;
    long after = 0;
    if (sscanf(line, "begin %d", &code) == 1 && gpu_count) return;
    if (sscanf(line, "gpus %d", &code) == 1 || sscanf(line, "begin %d", &code) == 1) {
        memset(faults, 0, sizeof faults), memset(counts, 0, sizeof counts);
        own_clock_us = 0, gpu_count = code;
        for (int g = 0; g < MOST_GPUS; g++) for (int s = -1; s < MOST_SLICES; s++) make(g, s);
    } else if (sscanf(line, "mig %llu %d", &x, &code) == 2) gpus[x % MOST_GPUS][0].slices = code;
    else if (sscanf(line, "set %63s %95s %95[^\n]", a, b, text) == 3) set(named(a), b, text);
    else if (sscanf(line, "sample %63s %llu %llu", a, &x, &y) == 3) {
        device *d = named(a);
        catch_up(d);
        d->by_hand[d->number % RING] = 1;
        sample_t *one = &d->ring[d->number++ % RING];
        one->timestamp = x, one->value.ull = y;
    } else if (sscanf(line, "process %63s %llu %llu", a, &x, &y) == 3) set_process(named(a), (unsigned)x, (unsigned)y);
    else if (sscanf(line, "clock %llu", &x) == 1) set_clock(x);
    else if (sscanf(line, "advance %llu", &x) == 1) set_clock(now_us() + x);
    else if (sscanf(line, "step %lld", &signed_us) == 1) step_clock(signed_us);
    else if (sscanf(line, "fail %63s %95s %d %ld", a, b, &code, &after) >= 3) set_fault(a, b, code, after);
    else if (sscanf(line, "hang %63s %95s %ld", a, b, &after) >= 2) set_fault(a, b, HANG, after);
    else if (sscanf(line, "ok %63s %95s", a, b) == 2) set_fault(a, b, 0, 0);
    else if (line[0]) fprintf(stderr, "nvml stand-in: what is %s\n", line), abort();
}

static void run_script(const char *script) {
    char *copy = strdup(script), *rest = copy, *line;
    while ((line = strsep(&rest, "\n"))) command(line);
    free(copy);
}

static void read_file(void) {
    const char *path = getenv("NVML_STAND_IN");
    struct stat status;
    if (!path || stat(path, &status)) return;
    if (!memcmp(&status.st_mtim, &read_at, sizeof read_at)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char script[8192];
    script[fread(script, 1, sizeof script - 1, file)] = 0;
    fclose(file);
    read_at = status.st_mtim;
    run_script(script);
}

void standin_script(const char *script) {
    pthread_mutex_lock(&lock);
    run_script(script);
    pthread_mutex_unlock(&lock);
}

/* How often a call was made on a device (or on "-", the library). */
long standin_calls(const char *call, const char *dev) {
    long count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_COUNTS; i++)
        if (!strcmp(counts[i].call, call) && !strcmp(counts[i].device, dev)) count = counts[i].count;
    pthread_mutex_unlock(&lock);
    return count;
}

int standin_hanging(void) { return __atomic_load_n(&hanging, __ATOMIC_SEQ_CST); }
int standin_references(void) { return initialised; }

static int fault(const char *call, const char *dev, int *counted) {
    if (!*counted) {
        for (int i = 0; i < MOST_COUNTS; i++)
            if (!counts[i].call[0] || (!strcmp(counts[i].call, call) && !strcmp(counts[i].device, dev))) {
                strcpy(counts[i].call, call), strcpy(counts[i].device, dev), counts[i].count++;
                break;
            }
    }
    for (int i = 0; i < MOST_FAULTS; i++) {
        int device_matches = !strcmp(faults[i].device, dev) || !strcmp(faults[i].device, "*");
        if (strcmp(faults[i].call, call) || !device_matches) continue;
        if (!*counted && faults[i].after-- > 0) break;
        faults[i].after = 0, *counted = 1;
        return faults[i].code;
    }
    *counted = 1;
    return SUCCESS;
}

/* Takes the lock, which leave() gives back, except where it answers an error. */
static int enter(const char *call, device *d, int needs_init) {
    char dev[8] = "-";
    int counted = 0, code;
    if (d) snprintf(dev, sizeof dev, d->slice < 0 ? "%d" : "%d:%d", d->gpu % MOST_GPUS, d->slice % MOST_SLICES);
    pthread_mutex_lock(&lock);
    read_file();
    while ((code = fault(call, dev, &counted)) == HANG) {
        __atomic_add_fetch(&hanging, 1, __ATOMIC_SEQ_CST);
        do {
            pthread_mutex_unlock(&lock);
            usleep(1000);
            pthread_mutex_lock(&lock);
            read_file();
        } while ((code = fault(call, dev, &counted)) == HANG);
        __atomic_sub_fetch(&hanging, 1, __ATOMIC_SEQ_CST);
        break;
    }
    if (!code && needs_init && (!initialised || owner != getpid())) code = UNINITIALIZED;
    if (code) pthread_mutex_unlock(&lock);
    else if (d) catch_up(d);
    return code;
}

static int leave(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

#define ENTER(d) do { int code = enter(__func__, d, 1); if (code) return code; } while (0)
/* Nobody tells how busy a slice is, nor a GPU that is sliced. */
#define WHOLE_ONLY(d) do { if ((d)->slice >= 0 || (d)->slices) return leave(NOT_SUPPORTED); } while (0)
#define GPU_ONLY(d) do { if ((d)->slice >= 0) return leave(NOT_SUPPORTED); } while (0)

int nvmlInitWithFlags(unsigned flags) {
    int code = enter(__func__, NULL, 0);
    if (code) return code;
    if (!gpu_count) run_script("gpus 2");
    if (owner != getpid()) initialised = 0, owner = getpid();
    initialised++;
    return leave(SUCCESS);
}

int nvmlShutdown(void) {
    ENTER(NULL);
    initialised--;
    return leave(SUCCESS);
}

const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER(NULL);
    snprintf(text, length, "570.00");
    return leave(SUCCESS);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NULL);
    *count = (unsigned)gpu_count;
    return leave(SUCCESS);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found) {
    device *d = index < MOST_GPUS ? &gpus[index][0] : NULL;
    ENTER(d);
    if (index >= (unsigned)gpu_count) return leave(INVALID_ARGUMENT);
    *found = d;
    return leave(SUCCESS);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device **found) {
    device *d = NULL;
    for (int g = 0; g < gpu_count && !d; g++)
        for (int s = 0; s <= gpus[g][0].slices && !d; s++)
            if (!strcmp(gpus[g][s].uuid, uuid)) d = &gpus[g][s];
    ENTER(d);
    *found = d;
    return leave(d ? SUCCESS : NOT_FOUND);
}

int nvmlDeviceGetUUID(device *d, char *text, unsigned length) {
    ENTER(d);
    snprintf(text, length, "%s", d->uuid);
    return leave(SUCCESS);
}

int nvmlDeviceGetName(device *d, char *text, unsigned length) {
    ENTER(d);
    snprintf(text, length, "%s", d->name);
    return leave(SUCCESS);
}

int nvmlDeviceGetMemoryInfo(device *d, memory_t *memory) {
    ENTER(d);
    memory->total = d->total, memory->used = d->used, memory->free = d->total - d->used;
    return leave(SUCCESS);
}

int nvmlDeviceGetTemperature(device *d, unsigned sensor, unsigned *value) {
    ENTER(d);
    GPU_ONLY(d);
    *value = (unsigned)d->temperature;
    return leave(SUCCESS);
}

int nvmlDeviceGetUtilizationRates(device *d, unsigned rates[2]) {
    ENTER(d);
    WHOLE_ONLY(d);
    rates[0] = (unsigned)d->util, rates[1] = 0;
    return leave(SUCCESS);
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) {
    ENTER(d);
    GPU_ONLY(d);
    *milliwatts = (unsigned)d->power_mw;
    return leave(SUCCESS);
}

int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *milliwatts) {
    ENTER(d);
    GPU_ONLY(d);
    *milliwatts = (unsigned)d->limit_mw;
    return leave(SUCCESS);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetTotalEnergyConsumption(device *d, u64 *millijoules) {
    ENTER(d);
    GPU_ONLY(d);
    *millijoules = d->counter_mj ? d->counter_mj : d->frozen ? d->frozen_mj : d->energy_nj / 1000000;
    return leave(SUCCESS);
}

int nvmlDeviceGetFieldValues(device *d, int count, field_t *fields) {
    ENTER(d);
    GPU_ONLY(d);
    for (int i = 0; i < count; i++) {
        int known = fields[i].field == 185 || fields[i].field == 186;
        fields[i].result = known ? (int)d->field_result : NOT_SUPPORTED;
        fields[i].type = 1, fields[i].timestamp = (int64_t)now_us(), fields[i].value = fields[i].result ? 0 : d->power_mw;
    }
    return leave(SUCCESS);
}

/* NULL asks for the size of the buffer, as pynvml does first. */
int nvmlDeviceGetSamples(device *d, unsigned kind, u64 last_seen, unsigned *type, unsigned *count, sample_t *samples) {
    ENTER(d);
    WHOLE_ONLY(d);
    if (kind != 1) return leave(NOT_SUPPORTED);
    *type = (unsigned)d->value_type;
    if (!samples) { *count = RING; return leave(SUCCESS); }
    unsigned filled = 0;
    u64 first = d->number > RING ? d->number - RING : 0;
    for (u64 i = first; i < d->number && filled < *count; i++)
        if (d->by_hand[i % RING] || d->ring[i % RING].timestamp > last_seen) samples[filled++] = d->ring[i % RING];
    *count = filled;
    return leave(filled ? SUCCESS : NOT_FOUND);
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    ENTER(d);
    GPU_ONLY(d);
    *current = *pending = d->slices > 0;
    return leave(SUCCESS);
}

int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) {
    ENTER(d);
    *count = d->slices ? MOST_SLICES : 0;
    return leave(SUCCESS);
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **found) {
    ENTER(d);
    if (index >= (unsigned)d->slices) return leave(NOT_FOUND);
    *found = &gpus[d->gpu][index + 1];
    return leave(SUCCESS);
}

int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) {
    ENTER(d);
    *id = (unsigned)d->slice + 7; /* real ones begin anywhere */
    return leave(SUCCESS);
}

int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) {
    ENTER(d);
    *id = 0;
    return leave(SUCCESS);
}
#endif

/* One entry a process that was busy since last_seen; never SUCCESS to NULL. */
int nvmlDeviceGetProcessUtilization(device *d, process_sample_t *found, unsigned *count, u64 last_seen) {
    ENTER(d);
    WHOLE_ONLY(d);
    unsigned filled = 0, room = *count;
    if (found && d->crowded) d->crowded--, room = 0;
    if (!found || room < RING) { *count = RING; return leave(INSUFFICIENT_SIZE); }
    /* No process, more than all of the GPU, or a moment long gone (nvtop#110). */
    for (; d->junk && filled < 100; filled++)
        found[filled] = (process_sample_t){
            filled % 3 == 0 ? 0xdeadbeef : 5000 + filled, filled % 3 == 2 ? filled * 977 : d->sampled_us,
            filled % 3 == 1 ? 4000 + filled : 50, 7777, 0, 0};
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (d->pid_util[i] && d->sampled_us > last_seen)
            /* Each process has its own instants (go-nvml#51). */
            found[filled++] = (process_sample_t){d->pids[i], d->sampled_us - (u64)i * 10, d->pid_util[i], 0, 0, 0};
    *count = filled;
    return leave(filled ? SUCCESS : NOT_FOUND);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process_t *found) {
    ENTER(d);
    unsigned room = *count, there = 0;
    for (int i = 0; i < MOST_PROCESSES; i++) {
        if (!d->pids[i]) continue;
        /* Entries of another size than the caller's are another version of the struct (nvitop#75). */
        process_t one = {d->pids[i], 300 << 20, ~0u, ~0u};
        if (found && there < room) memcpy((char *)found + there * d->stride, &one, d->stride);
        there++;
    }
    if (found && d->crowded) d->crowded--, room = 0;
    *count = there;
    return leave(there > room ? INSUFFICIENT_SIZE : SUCCESS);
}
#endif
