/* What the real nvidia-smi asks of a driver beside NVML: a table of functions that has no header.
 *
 * Known of it, from nvidia-smi 535 and 550: the first entry is the table's size in bytes, every other one
 * a function. Those below have the numbers and arguments given here. Some of the rest are about no device
 * (logging, for one) and must succeed; what is asked about a device may be not supported. */
#include <stdio.h>
#include "standin.h"

enum {
    TABLE_ENTRIES = 512,
    HANDLE_BY_INDEX = 81,
    ENFORCED_POWER_LIMIT = 108,
    COMPUTE_PROCESSES = 213,
    MPS_PROCESSES = 214,
    GRAPHICS_PROCESSES = 215,
    HOST_PCIE_GENERATION = 230,
    TEMPERATURE_MARGIN = 240
};

static const unsigned char table_id[16] = {0xC4, 0xFE, 0x3E, 0x6C, 0xC9, 0x8F, 0x6C, 0x4E,
                                           0xA3, 0x27, 0xEE, 0x69, 0x6E, 0x12, 0xF7, 0xC4};

struct named_process {
    struct process_detail detail;
    char name[4096];
};

typedef int (*entry)(handle, void *, void *);

int nvmlDeviceGetHandleByIndex_v2(u32 index, handle *device);

static int handle_by_index(handle index, void *device, void *unused)
{
    (void)unused;
    return nvmlDeviceGetHandleByIndex_v2((u32)index, device);
}

static int enforced_power_limit(handle device, void *milliwatts, void *unused)
{
    (void)unused;
    return get_u32("nvmlDeviceGetEnforcedPowerLimit", device, POWER_ENFORCED, milliwatts);
}

static int temperature_margin(handle device, void *degrees, void *unused)
{
    (void)unused;
    return get_u32("nvmlDeviceGetMarginTemperature", device, TEMP_MARGIN, degrees);
}

static int host_pcie_generation(handle device, void *generation, void *unused)
{
    (void)unused;
    return get_u32("nvmlDeviceGetMaxPcieLinkGeneration", device, PCIE_GEN_MAX, generation);
}

/* `count` comes in as the room that there is. */
static int list_named(const char *function, handle device, u32 lists, u32 *count,
                      struct named_process *entries)
{
    struct target target;
    u64 listed;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    u32 room = *count;
    *count = 0;
    if (!given(target.device, PROCESSES, &listed))
        return leave(NOT_SUPPORTED);
    struct walk walk = walk_processes(&target, lists);
    const struct running *process;
    while (*count < room && (process = next_process(&walk))) {
        struct named_process *found = &entries[(*count)++];
        found->detail = (struct process_detail){process->pid, process->memory, process->gpu_instance,
                                                process->compute_instance, 0};
        snprintf(found->name, sizeof found->name, "%s", process->name ? process->name : "");
    }
    return leave(OK);
}

static int compute_processes(handle device, void *count, void *entries)
{
    return list_named("nvmlDeviceGetComputeRunningProcesses", device, LIST_COMPUTE, count, entries);
}

static int graphics_processes(handle device, void *count, void *entries)
{
    return list_named("nvmlDeviceGetGraphicsRunningProcesses", device, LIST_GRAPHICS, count, entries);
}

static int mps_processes(handle device, void *count, void *entries)
{
    return list_named("nvmlDeviceGetMPSComputeRunningProcesses", device, LIST_MPS, count, entries);
}

static int anything_else(handle device, void *one, void *other)
{
    struct target target;
    (void)one;
    (void)other;
    if (enter_device(__func__, device, &target) != OK)
        return OK;
    return leave(NOT_SUPPORTED);
}

EXPORT int nvmlInternalGetExportTable(const void **table, const unsigned char *id)
{
    static entry entries[TABLE_ENTRIES];
    if (!table || !id)
        return INVALID_ARGUMENT;
    for (size_t i = 0; i < sizeof table_id; i++)
        if (id[i] != table_id[i])
            return NOT_SUPPORTED;
    for (int i = 1; i < TABLE_ENTRIES; i++)
        entries[i] = anything_else;
    entries[0] = (entry)(uintptr_t)sizeof entries;
    entries[HANDLE_BY_INDEX] = handle_by_index;
    entries[ENFORCED_POWER_LIMIT] = enforced_power_limit;
    entries[COMPUTE_PROCESSES] = compute_processes;
    entries[GRAPHICS_PROCESSES] = graphics_processes;
    entries[MPS_PROCESSES] = mps_processes;
    entries[HOST_PCIE_GENERATION] = host_pcie_generation;
    entries[TEMPERATURE_MARGIN] = temperature_margin;
    *table = entries;
    return OK;
}
