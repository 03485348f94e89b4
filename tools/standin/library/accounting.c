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

/* Of two processes with one pid, the ended one. */
EXPORT int nvmlDeviceGetAccountingStats(handle device, u32 pid, struct accounting *stats)
{
    struct target target;
    const struct account_table *accounts;
    const struct account *found = NULL;
    if (!stats)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = accounting_table(__func__, &target, &accounts)) != OK)
        return leave(status);
    for (u32 i = 0; i < accounts->count; i++)
        if (accounts->entries[i].pid == pid && (!found || found->stats.running))
            found = &accounts->entries[i];
    if (found)
        *stats = found->stats;
    return leave(found ? OK : NOT_FOUND);
}

EXPORT int nvmlDeviceGetAccountingBufferSize(handle device, u32 *size)
{
    u32 mode;
    int status = size ? get_u32(__func__, device, ACCOUNTING, &mode) : INVALID_ARGUMENT;
    if (status == OK)
        *size = BUFFER_SIZE;
    return status;
}
