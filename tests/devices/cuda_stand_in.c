/* A stand-in for the driver's libcuda.so.1, as far as doctor asks it. CUDA_STAND_IN says what it is:
 *
 *   GPU-…,GPU-…    the UUIDs that it shows, by ordinal
 *   error CODE     cuInit answers it
 *   hang           cuInit does not return
 *   crash          cuInit takes the process down
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *said(void) {
    const char *text = getenv("CUDA_STAND_IN");
    return text ? text : "";
}

int cuInit(unsigned flags) {
    int code = 0;
    if (!strcmp(said(), "crash")) abort();
    while (!strcmp(said(), "hang")) sleep(1);
    sscanf(said(), "error %d", &code);
    return code;
}

int cuDeviceGetCount(int *count) {
    *count = *said() ? 1 : 0;
    for (const char *at = said(); *at; at++) *count += *at == ',';
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    const char *at = said();
    while (device--) at = strchr(at, ',') + 1;
    at += strlen("GPU-");
    for (int i = 0; i < 16; i++, at += 2) {
        unsigned byte;
        if (*at == '-') at++;
        sscanf(at, "%2x", &byte);
        uuid[i] = (unsigned char)byte;
    }
    return 0;
}
