/* Common to all calls: the lock, faults, initialisation, and handles. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "standin.h"

#define HANG_LOOK_MS 10

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static u32 references; /* nvmlInit calls without nvmlShutdown */
static u32 generation; /* handles of an earlier one are invalid */
static double initialised_at;
static bool driver_was_gone; /* since then; a later file does not change it */
static int held = -1;

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

int leave(int status)
{
    unlock();
    return status;
}

void pause_ms(u32 milliseconds)
{
    struct timespec wait = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&wait, NULL);
}

/* Hangs, sleeps and errors of the scenario. They wait without the lock, so that other threads continue. */
static int pass_faults(const char *function, int gpu)
{
    const struct fault *fault;
    lock();
    scenario_refresh();
    if ((fault = fault_active(FAULT_SLEEP, function, gpu))) {
        u32 wait = (u32)fault->value;
        unlock();
        pause_ms(wait);
        lock();
        scenario_refresh();
    }
    while (fault_active(FAULT_HANG, function, gpu)) {
        unlock();
        pause_ms(HANG_LOOK_MS);
        lock();
        scenario_refresh();
    }
    if (world.broken)
        return leave(UNKNOWN);
    if ((fault = fault_active(FAULT_ERROR, function, gpu)))
        return leave((int)fault->value);
    return OK;
}

/* Whether nvmlInit is needed: it was not called, or the driver was gone since. */
bool session_over(void)
{
    driver_was_gone |= driver_was_gone_since(initialised_at);
    return references == 0 || driver_was_gone;
}

int enter(const char *function)
{
    int status = pass_faults(function, -1);
    if (status == OK && session_over())
        return leave(UNINITIALIZED);
    return status;
}

/* A handle: kind (8 bits), generation (24), check of a MIG device's UUID (8), GPU + 1 (8), MIG + 1 (8). */
static u32 uuid_check(const struct device *device)
{
    u32 sum = 0;
    for (const char *c = device->text[TEXT_UUID]; c && *c; c++)
        sum = sum * 31 + (unsigned char)*c;
    return sum & 0xFF;
}

handle make_handle(enum handle_kind kind, int gpu, int mig)
{
    handle check = mig < 0 ? 0 : uuid_check(world.gpus[gpu].migs[mig]);
    return (handle)kind << 56 | (handle)(generation & 0xFFFFFF) << 24 | check << 16 | (handle)(gpu + 1) << 8 |
           (handle)(mig + 1);
}

static int handle_gpu(handle object) { return (int)(object >> 8 & 0xFF) - 1; }

static bool find_target(handle object, enum handle_kind kind, struct target *target)
{
    int gpu = handle_gpu(object), mig = (int)(object & 0xFF) - 1;
    if (gpu < 0 || gpu >= MAX_GPUS || mig >= MAX_MIGS || !world.gpus[gpu].known)
        return false;
    if (mig >= 0 && !world.gpus[gpu].migs[mig])
        return false;
    *target = (struct target){gpu, mig, mig < 0 ? &world.gpus[gpu].card : world.gpus[gpu].migs[mig]};
    return object == make_handle(kind, gpu, mig);
}

int enter_kind(const char *function, handle object, enum handle_kind kind, struct target *target)
{
    int status = pass_faults(function, handle_gpu(object));
    if (status != OK)
        return status;
    if (session_over())
        return leave(UNINITIALIZED);
    if (!find_target(object, kind, target))
        return leave(INVALID_ARGUMENT);
    if (!gpu_present(target->gpu) || gpu_lost(target->gpu))
        return leave(GPU_IS_LOST);
    return OK;
}

int enter_device(const char *function, handle device, struct target *target)
{
    return enter_kind(function, device, DEVICE_HANDLE, target);
}

bool gpu_present(int gpu)
{
    u64 absent;
    const struct gpu *found = &world.gpus[gpu];
    return found->known && !(given(&found->card, ABSENT, &absent) && absent) &&
           !fault_active(FAULT_ABSENT, NULL, gpu);
}

bool gpu_lost(int gpu)
{
    u64 lost;
    return (given(&world.gpus[gpu].card, LOST, &lost) && lost) || fault_active(FAULT_LOST, NULL, gpu);
}

/* The driver is in use while this file is open. */
static void hold_driver(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.held", scenario_path());
    if (held < 0)
        held = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
}

static void release_driver(void)
{
    if (held >= 0)
        close(held);
    held = -1;
}

static int initialise(const char *function)
{
    lock();
    bool found = scenario_choose(getenv("GPUTALLY_STANDIN_SCENARIO"));
    unlock();
    int status = pass_faults(function, -1);
    if (status != OK)
        return status;
    if (!found || fault_active(FAULT_DRIVER_GONE, NULL, -1))
        return leave(DRIVER_NOT_LOADED);
    if (fault_active(FAULT_VERSION_MISMATCH, NULL, -1))
        return leave(LIB_RM_VERSION_MISMATCH);
    if (session_over()) {
        references = 0;
        generation++;
        initialised_at = scenario_now();
        driver_was_gone = false;
    }
    references++;
    hold_driver();
    return leave(OK);
}

EXPORT int nvmlInit(void) { return initialise(__func__); }
EXPORT int nvmlInit_v2(void) { return initialise(__func__); }
EXPORT int nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    return initialise(__func__);
}

EXPORT int nvmlShutdown(void)
{
    int status = pass_faults(__func__, -1);
    if (status != OK)
        return status;
    if (references == 0)
        return leave(UNINITIALIZED);
    if (--references == 0)
        release_driver();
    return leave(OK);
}
