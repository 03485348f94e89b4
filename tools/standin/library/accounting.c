/* Accounting: statistics of each process, while the mode is on. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "standin.h"

#define BUFFER_SIZE 4000

/* A mode that was set is stored in a file beside the scenario, for all processes that play it. */
static int open_mode(int gpu, int flags)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.accounting.%d", scenario_path(), gpu);
    return open(name, flags | O_CLOEXEC, 0644);
}

static bool in_mig_mode(const struct target *target)
{
    u64 mode;
    return given(&world.gpus[target->gpu].card, MIG_MODE, &mode) && mode;
}

/* In MIG mode it is off. */
static int accounting_mode(const char *function, const struct target *target, u32 *mode)
{
    int status = fetch_u32(function, target, ACCOUNTING, mode);
    if (status != OK)
        return status;
    char set;
    int file = open_mode(target->gpu, O_RDONLY);
    if (file >= 0) {
        if (read(file, &set, 1) == 1)
            *mode = set == '1';
        close(file);
    }
    if (in_mig_mode(target))
        *mode = 0;
    return OK;
}

EXPORT int nvmlDeviceGetAccountingMode(handle device, u32 *mode)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    return leave(mode ? accounting_mode(__func__, &target, mode) : INVALID_ARGUMENT);
}

EXPORT int nvmlDeviceSetAccountingMode(handle device, u32 mode)
{
    struct target target;
    u32 now;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (mode > 1)
        return leave(INVALID_ARGUMENT);
    if (accounting_mode(__func__, &target, &now) != OK || in_mig_mode(&target))
        return leave(NOT_SUPPORTED);
    if (geteuid() != 0)
        return leave(NO_PERMISSION);
    int file = open_mode(target.gpu, O_CREAT | O_TRUNC | O_WRONLY);
    if (file < 0)
        return leave(UNKNOWN);
    bool written = write(file, mode ? "1" : "0", 1) == 1;
    close(file);
    return leave(written ? OK : UNKNOWN);
}

static int accounting_table(const char *function, const struct target *target,
                            const struct account_table **accounts)
{
    u32 mode;
    if (accounting_mode(function, target, &mode) != OK || !mode)
        return NOT_SUPPORTED;
    *accounts = &world.gpus[target->gpu].accounts;
    return OK;
}

/* Ended processes in the order of their end, then running ones. */
EXPORT int nvmlDeviceGetAccountingPids(handle device, u32 *count, u32 *pids)
{
    struct target target;
    const struct account_table *accounts;
    if (!count)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = accounting_table(__func__, &target, &accounts)) != OK)
        return leave(status);
    u32 room = pids ? *count : 0, filled = 0;
    *count = accounts->count;
    if (*count > room)
        return leave(INSUFFICIENT_SIZE);
    for (u32 running = 0; running < 2; running++)
        for (u32 i = 0; i < *count; i++)
            if (!accounts->entries[i].stats.running == !running)
                pids[filled++] = accounts->entries[i].pid;
    return leave(OK);
}

/* Of two processes with one pid, the ended one (open-gpu-kernel-modules 595, gpu_acct.c,
 * gpuacctGetProcAcctInfo: the list of ended processes is searched first). */
static int find_account(const char *function, const struct target *target, u32 pid,
                        const struct account **found)
{
    const struct account_table *accounts;
    int status = accounting_table(function, target, &accounts);
    *found = NULL;
    for (u32 i = 0; status == OK && i < accounts->count; i++)
        if (accounts->entries[i].pid == pid && (!*found || (*found)->stats.running))
            *found = &accounts->entries[i];
    return status != OK ? status : *found ? OK : NOT_FOUND;
}

EXPORT int nvmlDeviceGetAccountingStats(handle device, u32 pid, struct accounting *stats)
{
    struct target target;
    const struct account *found;
    if (!stats)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = find_account(__func__, &target, pid, &found)) == OK)
        *stats = found->stats;
    return leave(status);
}

/* Sums of the samples of this process, and the number of all samples since it started. The driver adds new
 * samples once a second, and none after the end of their process (gpu_acct.c: gpuacctSampleGpuUtil,
 * gpuacctProcessGpuUtil, gpuacctStopGpuAccounting). */
static void add_samples(const struct sample_table *table, const struct account *account,
                        struct accounting_v2 *stats)
{
    const u64 second_us = 1000000;
    u64 until_us = account->stats.running ? wall_clock_us()
                                          : account->stats.start_us + account->stats.time_ms * 1000;
    until_us -= until_us % second_us;
    for (u32 i = 0; i < table->count; i++) {
        const struct process_sample *one = &table->entries[i];
        if (one->time_us <= account->stats.start_us || one->time_us > until_us)
            continue;
        stats->samples += i == 0 || one->time_us != table->entries[i - 1].time_us;
        if (one->pid == account->pid) {
            stats->sum_gpu += one->sm * 100;
            stats->sum_memory += one->memory * 100;
        }
    }
}

/* nvml.h of NVML 610: the struct has no version; its pid is the caller's. */
EXPORT int nvmlDeviceGetAccountingStats_v2(handle device, struct accounting_v2 *stats)
{
    struct target target;
    const struct account *found;
    if (!stats)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = find_account(__func__, &target, stats->pid, &found)) == OK) {
        *stats = (struct accounting_v2){
            .pid = found->pid,
            .running = found->stats.running,
            .gpu_percent = found->stats.gpu_percent,
            .memory_percent = found->stats.memory_percent,
            .max_memory = found->stats.max_memory,
            .time_ms = found->stats.time_ms,
            .start_us = found->stats.start_us,
        };
        add_samples(&world.gpus[target.gpu].samples, found, stats);
    }
    return leave(status);
}

EXPORT int nvmlDeviceGetAccountingBufferSize(handle device, u32 *size)
{
    u32 mode;
    int status = size ? get_u32(__func__, device, ACCOUNTING, &mode) : INVALID_ARGUMENT;
    if (status == OK)
        *size = BUFFER_SIZE;
    return status;
}
