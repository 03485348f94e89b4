/* Event sets: XIDs for registered processes, with a wait that blocks. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "standin.h"

#define MAX_SETS 64
#define QUEUE 256

struct event_set {
    bool used;
    u64 listens[MAX_GPUS]; /* event types, by GPU */
    struct {
        int gpu;
        u64 xid;
    } queue[QUEUE];
    u32 first, count;
    bool failed; /* it has said that a GPU is lost */
    int woken;   /* eventfd: something was queued */
    int watched; /* inotify: the scenario file may have been replaced */
};

static struct event_set sets[MAX_SETS];

static struct event_set *find_set(handle object)
{
    return object >= 1 && object <= MAX_SETS && sets[object - 1].used ? &sets[object - 1] : NULL;
}

static void queue_xid(struct event_set *set, int gpu, u64 xid)
{
    if (set->count == QUEUE) {
        set->first++;
        set->count--;
    }
    u32 place = (set->first + set->count++) % QUEUE;
    set->queue[place].gpu = gpu;
    set->queue[place].xid = xid;
    eventfd_write(set->woken, 1);
}

/* Queues every new XID of the GPU in the event sets that are registered for it. Without the right to monitor MIG
 * they are not notified: open-gpu-kernel-modules 595.45.04, gpu_rmapi.c:448. */
void events_publish(int gpu)
{
    struct gpu *from = &world.gpus[gpu];
    bool heard = false;
    if (mig_denied(&(struct target){gpu, -1, &from->card}))
        return;
    for (int i = 0; i < MAX_SETS; i++)
        heard |= sets[i].used && (sets[i].listens[gpu] & EVENT_XID);
    for (u32 x = 0; heard && x < from->xid_count; x++)
        for (; from->xids[x].told < from->xids[x].come; from->xids[x].told++)
            for (int i = 0; i < MAX_SETS; i++)
                if (sets[i].used && (sets[i].listens[gpu] & EVENT_XID))
                    queue_xid(&sets[i], gpu, from->xids[x].code);
}

static int watch_scenario(void)
{
    char folder[PATH_MAX];
    int watched = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    snprintf(folder, sizeof folder, "%s", scenario_path());
    if (watched >= 0 && inotify_add_watch(watched, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
        close(watched);
        watched = -1;
    }
    return watched;
}

EXPORT int nvmlEventSetCreate(handle *object)
{
    int status = enter(__func__);
    if (status != OK)
        return status;
    for (u32 i = 0; i < MAX_SETS; i++)
        if (!sets[i].used) {
            sets[i] = (struct event_set){
                .used = true, .woken = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .watched = watch_scenario()};
            *object = i + 1;
            return leave(OK);
        }
    return leave(MEMORY);
}

EXPORT int nvmlEventSetFree(handle object)
{
    /* Freeing is allowed when the driver is gone: it needs no driver. */
    lock();
    struct event_set *set = find_set(object);
    if (!set)
        return leave(INVALID_ARGUMENT);
    close(set->woken);
    if (set->watched >= 0)
        close(set->watched);
    set->used = false;
    return leave(OK);
}

EXPORT int nvmlDeviceGetSupportedEventTypes(handle device, u64 *types)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    *types = EVENTS_SUPPORTED;
    return leave(OK);
}

EXPORT int nvmlDeviceRegisterEvents(handle device, u64 types, handle object)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    struct event_set *set = find_set(object);
    if (!set)
        return leave(INVALID_ARGUMENT);
    if (target.mig >= 0 || (types & ~EVENTS_SUPPORTED))
        return leave(NOT_SUPPORTED);
    set->listens[target.gpu] |= types;
    events_publish(target.gpu);
    return leave(OK);
}

/* Milliseconds until something can change by itself, but no more than `most`. */
static int until_change(double most)
{
    double now = scenario_now();
    double wait = fmin(fmin(world.next_frame, fault_next_edge(now)) - now, most);
    return (int)ceil(fmin(fmax(wait, 0) * 1000, INT_MAX));
}

static void wait_for_change(int woken, int watched, int milliseconds)
{
    struct pollfd waits[] = {{woken, POLLIN, 0}, {watched, POLLIN, 0}};
    char drained[4096];
    eventfd_t count;
    poll(waits, 2, milliseconds);
    if (waits[0].revents & POLLIN)
        eventfd_read(woken, &count);
    if (waits[1].revents & POLLIN) {
        while (read(watched, drained, sizeof drained) > 0)
            ;
        lock();
        scenario_look_again();
        unlock();
    }
}

static bool has_lost_gpu(const struct event_set *set)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set->listens[gpu] && (!gpu_present(gpu) || gpu_lost(gpu)))
            return true;
    return false;
}

static int wait_for_event(const char *function, handle object, u32 timeout_ms, struct event *event)
{
    double deadline = INFINITY;
    for (;;) {
        int status = enter(function);
        if (status != OK)
            return status;
        struct event_set *set = find_set(object);
        if (!set)
            return leave(INVALID_ARGUMENT);
        /* nvml.h, nvmlEventSetWait_v2: GPU_IS_LOST "if a GPU has fallen off the bus", whichever of the set it is. That
         * it then goes on saying so, whatever happens to the others, is inferred. */
        bool lost = has_lost_gpu(set);
        if (lost && (set->failed || !set->count)) {
            set->failed = true;
            return leave(GPU_IS_LOST);
        }
        set->failed = false;
        if (set->count) {
            int gpu = set->queue[set->first % QUEUE].gpu;
            *event = (struct event){make_handle(DEVICE_HANDLE, gpu, -1), EVENT_XID,
                                    set->queue[set->first % QUEUE].xid, NO_INSTANCE, NO_INSTANCE};
            set->first = (set->first + 1) % QUEUE;
            set->count--;
            return leave(OK);
        }
        double now = scenario_now();
        if (deadline == INFINITY)
            deadline = now + timeout_ms / 1000.0;
        if (now >= deadline)
            return leave(TIMEOUT);
        int woken = set->woken, watched = set->watched;
        int milliseconds = until_change(deadline - now);
        unlock();
        wait_for_change(woken, watched, milliseconds);
    }
}

EXPORT int nvmlEventSetWait_v2(handle object, struct event *event, u32 timeout_ms)
{
    return wait_for_event(__func__, object, timeout_ms, event);
}

/* The first version's event ends before the instance ids. */
EXPORT int nvmlEventSetWait(handle object, struct event *event, u32 timeout_ms)
{
    struct event whole;
    int status = wait_for_event(__func__, object, timeout_ms, &whole);
    if (status == OK)
        memcpy(event, &whole, offsetof(struct event, gpu_instance));
    return status;
}
