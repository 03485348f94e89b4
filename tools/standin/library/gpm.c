/* GPM: activity of the parts of a GPU or GPU instance between two samples. */
#include <stdlib.h>
#include <string.h>
#include "standin.h"

enum { GPM_VERSION = 1, GPM_SLOTS = GPM_PCIE_RX - GPM_GRAPHICS + 1 };

struct gpm_sample {
    bool filled;
    double percent[GPM_SLOTS];
    bool given[GPM_SLOTS];
};

static const struct {
    u32 id;
    int slot;
    const char *short_name, *long_name;
} metrics[] = {
#define X(id, slot, short_name, long_name) {id, slot, short_name, long_name},
    GPM_METRICS(X)
#undef X
};

static bool any_gpm(const struct device *device)
{
    /* Every card has PCIe: activity tells whether it has GPM. */
    for (int slot = GPM_GRAPHICS; slot <= GPM_FP16; slot++)
        if (device->given[slot])
            return true;
    return false;
}

/* A GPU in MIG mode may support it for its instances only. */
static bool supports_gpm(int gpu)
{
    bool any = any_gpm(&world.gpus[gpu].card);
    for (int mig = 0; !any && mig < MAX_MIGS; mig++)
        any = world.gpus[gpu].migs[mig] && any_gpm(world.gpus[gpu].migs[mig]);
    return any;
}

EXPORT int nvmlGpmQueryDeviceSupport(handle device, struct gpm_support *support)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (support->version != GPM_VERSION)
        return leave(ARGUMENT_VERSION_MISMATCH);
    support->supported = supports_gpm(target.gpu);
    return leave(OK);
}

EXPORT int nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
    int status = enter(__func__);
    if (status != OK)
        return status;
    *sample = calloc(1, sizeof **sample);
    return leave(*sample ? OK : MEMORY);
}

EXPORT int nvmlGpmSampleFree(struct gpm_sample *sample)
{
    free(sample);
    return sample ? OK : INVALID_ARGUMENT;
}

static int fill(struct gpm_sample *sample, const struct device *device)
{
    if (!any_gpm(device))
        return NOT_SUPPORTED;
    memcpy(sample->percent, &device->number[GPM_GRAPHICS], sizeof sample->percent);
    memcpy(sample->given, &device->given[GPM_GRAPHICS], sizeof sample->given);
    sample->filled = true;
    return OK;
}

EXPORT int nvmlGpmSampleGet(handle device, struct gpm_sample *sample)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    return leave(sample ? fill(sample, target.device) : INVALID_ARGUMENT);
}

EXPORT int nvmlGpmMigSampleGet(handle device, u32 gpu_instance, struct gpm_sample *sample)
{
    struct target target;
    u64 found;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (target.mig >= 0 || !sample)
        return leave(INVALID_ARGUMENT);
    for (int mig = 0; mig < MAX_MIGS; mig++) {
        const struct device *instance = world.gpus[target.gpu].migs[mig];
        if (instance && given(instance, GI, &found) && found == gpu_instance)
            return leave(fill(sample, instance));
    }
    return leave(NOT_FOUND);
}

/* The scenario has the ratios: those of the second sample are returned. */
EXPORT int nvmlGpmMetricsGet(struct gpm_metrics *request)
{
    int status = enter(__func__);
    if (status != OK)
        return status;
    const struct gpm_sample *before = request->sample1, *after = request->sample2;
    if (request->version != GPM_VERSION)
        return leave(ARGUMENT_VERSION_MISMATCH);
    if (!before || !after || before == after || !before->filled || !after->filled)
        return leave(INVALID_ARGUMENT);
    for (u32 i = 0; i < request->count; i++) {
        struct gpm_metric *metric = &request->metrics[i];
        metric->status = NOT_SUPPORTED;
        for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
            int place = metrics[m].slot - GPM_GRAPHICS;
            if (metrics[m].id != metric->id || !after->given[place])
                continue;
            metric->status = OK;
            metric->value = after->percent[place];
            metric->short_name = metrics[m].short_name;
            metric->long_name = metrics[m].long_name;
            metric->unit = "%";
        }
    }
    return leave(OK);
}
