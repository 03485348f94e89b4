/* Processes on a GPU: lists, utilisation samples, names. */
#include <stdlib.h>
#include <string.h>
#include "standin.h"

#define GARBAGE_ENTRIES 100

/* Imitates uninitialised memory, the same in every run. */
static u64 garbage(u32 seed) { return (seed + 1) * 0x9E3779B97F4A7C15ULL; }

static u32 garbage_count(const char *function, int gpu)
{
    const struct fault *fault = fault_active(FAULT_GARBAGE, function, gpu);
    if (!fault)
        return 0;
    return fault->has_value ? (u32)fault->value : GARBAGE_ENTRIES;
}

/* The list of a GPU includes the processes of its MIG devices. */
const struct running *next_process(struct walk *walk)
{
    const struct gpu *gpu = &world.gpus[walk->target->gpu];
    bool whole = walk->target->mig < 0;
    for (; walk->mig < (whole ? MAX_MIGS : 0); walk->mig++, walk->next = 0) {
        const struct device *device = walk->mig < 0 ? walk->target->device : gpu->migs[walk->mig];
        while (device && walk->next < device->processes.count) {
            const struct running *process = &device->processes.entries[walk->next++];
            if (process->lists & walk->lists)
                return process;
        }
    }
    return NULL;
}

struct walk walk_processes(const struct target *target, u32 lists)
{
    return (struct walk){target, lists, -1, 0};
}

static u32 count_processes(const struct target *target, u32 lists)
{
    struct walk walk = walk_processes(target, lists);
    u32 count = 0;
    while (next_process(&walk))
        count++;
    return count;
}

/* When the buffer is too small, the needed size is returned. */
static int list_processes(const char *function, handle device, u32 lists, u32 *count, void *entries,
                          size_t size)
{
    struct target target;
    u64 listed;
    if (!count)
        return INVALID_ARGUMENT;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    if (mig_denied(&target))
        return leave(NO_PERMISSION);
    u32 garbled = garbage_count(function, target.gpu);
    if (!garbled && !given(target.device, PROCESSES, &listed))
        return leave(NOT_SUPPORTED);
    u32 room = entries ? *count : 0;
    *count = garbled ? garbled : count_processes(&target, lists);
    if (*count > room)
        return leave(INSUFFICIENT_SIZE);
    struct walk walk = walk_processes(&target, lists);
    for (u32 i = 0; i < *count; i++) {
        const struct running *process = next_process(&walk);
        struct process entry;
        if (process)
            entry = (struct process){process->pid, process->memory, process->gpu_instance,
                                     process->compute_instance};
        else
            entry =
                (struct process){(u32)garbage(i), garbage(i + 1), (u32)garbage(i + 2), (u32)garbage(i + 3)};
        memcpy((char *)entries + i * size, &entry, size);
    }
    return leave(OK);
}

#define RUNNING_LIST(function, lists) \
    EXPORT int function(handle device, u32 *count, struct process_v1 *entries) \
    { \
        return list_processes(__func__, device, lists, count, entries, sizeof *entries); \
    } \
    EXPORT int function##_v2(handle device, u32 *count, struct process *entries) \
    { \
        return list_processes(__func__, device, lists, count, entries, sizeof *entries); \
    } \
    EXPORT int function##_v3(handle device, u32 *count, struct process *entries) \
    { \
        return list_processes(__func__, device, lists, count, entries, sizeof *entries); \
    }

RUNNING_LIST(nvmlDeviceGetComputeRunningProcesses, LIST_COMPUTE)
RUNNING_LIST(nvmlDeviceGetGraphicsRunningProcesses, LIST_GRAPHICS)
RUNNING_LIST(nvmlDeviceGetMPSComputeRunningProcesses, LIST_MPS)

EXPORT int nvmlDeviceGetRunningProcessDetailList(handle device, struct process_details *list)
{
    static const u32 modes[] = {LIST_COMPUTE, LIST_GRAPHICS, LIST_MPS,
                                LIST_COMPUTE | LIST_GRAPHICS | LIST_MPS};
    struct target target;
    u64 listed;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (list->version != STRUCT_VERSION(struct process_details, 1))
        return leave(ARGUMENT_VERSION_MISMATCH);
    if (list->mode >= sizeof modes / sizeof *modes)
        return leave(INVALID_ARGUMENT);
    if (mig_denied(&target))
        return leave(NO_PERMISSION);
    if (!given(target.device, PROCESSES, &listed))
        return leave(NOT_SUPPORTED);
    u32 room = list->entries ? list->count : 0;
    list->count = count_processes(&target, modes[list->mode]);
    if (list->count > room)
        return leave(INSUFFICIENT_SIZE);
    struct walk walk = walk_processes(&target, modes[list->mode]);
    const struct running *process;
    for (struct process_detail *entry = list->entries; (process = next_process(&walk)); entry++)
        *entry = (struct process_detail){process->pid, process->memory, process->gpu_instance,
                                         process->compute_instance, 0};
    return leave(OK);
}

/* The sample buffer, or the error: in MIG mode there is none. */
static int sample_buffer(const struct target *target, const struct sample_table **samples)
{
    u64 value;
    if (target->mig >= 0 || !given(target->device, SAMPLES, &value) ||
        (given(target->device, MIG_MODE, &value) && value))
        return NOT_SUPPORTED;
    *samples = &world.gpus[target->gpu].samples;
    return OK;
}

/* Of the ring: its samples, not its entries, of which one sample has several when its engines had different
 * processes. open-gpu-kernel-modules 595, ctrl2080perf.h: NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL. */
#define RING 72

/* The room that a caller must have, however few processes there are (NVIDIA/go-nvml#11, Syllo/nvtop#110). */
#define LEAST_ROOM 100

struct answer {
    struct process_sample *entries; /* freed by the caller */
    u32 count;
};

/* The entries of the ring that are newer; `samples` is the number of samples among them, idle ones included. */
static struct answer newer_entries(const struct sample_table *table, u64 last_seen_us, u32 *samples)
{
    u32 first = table->count, ring = 0;
    while (first > 0) {
        bool another = first == table->count || table->entries[first - 1].time_us != table->entries[first].time_us;
        if (another && ring++ == RING)
            break;
        first--;
    }
    struct answer answer = {calloc(table->count + 1, sizeof *answer.entries), 0};
    *samples = 0;
    for (u32 i = first; i < table->count; i++)
        if (table->entries[i].time_us > last_seen_us) {
            *samples += i == first || table->entries[i].time_us != table->entries[i - 1].time_us;
            if (table->entries[i].pid != NO_PID)
                answer.entries[answer.count++] = table->entries[i];
        }
    return answer;
}

static u32 nearest(u32 sum, u32 count) { return (sum + count / 2) / count; }

/* One entry per process: the sum of its samples by the number of all samples since then, and the time of its
 * last one. The four answers in Syllo/nvtop#110, whose processes add up to 20 % each time; nvml.h: "one
 * utilization sample structure is returned per process running, that had some non-zero utilization". */
static struct answer means(struct answer all, u32 samples)
{
    struct answer answer = {all.entries, 0};
    for (u32 i = 0; i < all.count; i++) {
        struct process_sample one = all.entries[i];
        u32 known = 0;
        while (known < answer.count && answer.entries[known].pid != one.pid)
            known++;
        if (known == answer.count) {
            answer.entries[answer.count++] = one;
            continue;
        }
        struct process_sample *sum = &answer.entries[known];
        sum->time_us = one.time_us;
        sum->sm += one.sm;
        sum->memory += one.memory;
        sum->encoder += one.encoder;
        sum->decoder += one.decoder;
    }
    u32 working = 0;
    for (u32 i = 0; i < answer.count; i++) {
        struct process_sample one = answer.entries[i];
        if (one.sm + one.memory + one.encoder + one.decoder)
            answer.entries[working++] = (struct process_sample){
                one.pid,
                one.time_us,
                nearest(one.sm, samples),
                nearest(one.memory, samples),
                nearest(one.encoder, samples),
                nearest(one.decoder, samples),
            };
    }
    answer.count = working;
    return answer;
}

/* What the driver says of the samples since then: a mean per process, or every sample with `samples.raw 1`. */
static struct answer utilization_since(const struct target *target, const struct sample_table *table,
                                       u64 last_seen_us)
{
    u32 samples;
    u64 raw = 0;
    struct answer all = newer_entries(table, last_seen_us, &samples);
    return given(target->device, SAMPLES_RAW, &raw) && raw ? all : means(all, samples);
}

EXPORT int nvmlDeviceGetProcessUtilization(handle device, struct process_sample *entries, u32 *count,
                                           u64 last_seen_us)
{
    struct target target;
    const struct sample_table *samples;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = sample_buffer(&target, &samples)) != OK)
        return leave(status);
    struct answer answer = utilization_since(&target, samples, last_seen_us);
    u32 garbled = garbage_count(__func__, target.gpu);
    u32 needed = answer.count > garbled ? answer.count : garbled;
    u32 least = needed > LEAST_ROOM ? needed : LEAST_ROOM;
    if ((entries ? *count : 0) < least) {
        *count = least;
        status = INSUFFICIENT_SIZE;
    } else if (!needed) {
        status = NOT_FOUND;
    } else {
        *count = needed;
        memcpy(entries, answer.entries, answer.count * sizeof *entries);
        for (u32 i = answer.count; i < needed; i++)
            entries[i] = (struct process_sample){(u32)garbage(i),     garbage(i + 1),      (u32)garbage(i + 2),
                                                 (u32)garbage(i + 3), (u32)garbage(i + 4), (u32)garbage(i + 5)};
    }
    free(answer.entries);
    return leave(status);
}

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(handle device, struct process_samples_info *info)
{
    struct target target;
    const struct sample_table *samples;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (info->version != STRUCT_VERSION(struct process_samples_info, 1))
        return leave(ARGUMENT_VERSION_MISMATCH);
    if ((status = sample_buffer(&target, &samples)) != OK)
        return leave(status);
    struct answer answer = utilization_since(&target, samples, info->last_seen_us);
    u32 room = info->entries ? info->count : 0;
    info->count = answer.count;
    if (!answer.count)
        status = NOT_FOUND;
    else if (answer.count > room)
        status = INSUFFICIENT_SIZE;
    for (u32 i = 0; status == OK && i < answer.count; i++) {
        const struct process_sample *one = &answer.entries[i];
        info->entries[i] = (struct process_sample_info){one->time_us, one->pid,     one->sm, one->memory,
                                                        one->encoder, one->decoder, 0,       0};
    }
    free(answer.entries);
    return leave(status);
}

static const char *name_on(const struct device *device, u32 pid)
{
    for (u32 i = 0; device && i < device->processes.count; i++)
        if (device->processes.entries[i].pid == pid)
            return device->processes.entries[i].name;
    return NULL;
}

EXPORT int nvmlSystemGetProcessName(u32 pid, char *buffer, u32 room)
{
    int status = enter(__func__);
    if (status != OK)
        return status;
    const char *name = NULL;
    for (int gpu = 0; !name && gpu < MAX_GPUS; gpu++) {
        name = name_on(&world.gpus[gpu].card, pid);
        for (int mig = 0; !name && mig < MAX_MIGS; mig++)
            name = name_on(world.gpus[gpu].migs[mig], pid);
    }
    return leave(name ? put_text(name, buffer, room) : NOT_FOUND);
}
