/* The memory's health: ECC counters, retired pages, remapped rows. */
#include <string.h>
#include "standin.h"

EXPORT int nvmlDeviceGetTotalEccErrors(handle device, u32 type, u32 lifetime, u64 *count)
{
    if (type >= ECC_TYPES || lifetime >= ECC_LIFETIMES)
        return INVALID_ARGUMENT;
    return get_u64(__func__, device, ECC_SLOT(type, lifetime, 0), count);
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(handle device, u32 type, u32 lifetime, u32 location, u64 *count)
{
    if (type >= ECC_TYPES || lifetime >= ECC_LIFETIMES || location >= ECC_LOCATIONS - 1)
        return INVALID_ARGUMENT;
    return get_u64(__func__, device, ECC_SLOT(type, lifetime, location + 1), count);
}

EXPORT int nvmlDeviceGetDetailedEccErrors(handle device, u32 type, u32 lifetime, struct ecc_counts *counts)
{
    struct target target;
    if (type >= ECC_TYPES || lifetime >= ECC_LIFETIMES)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    u64 *const places[] = {&counts->l1_cache, &counts->l2_cache, &counts->device_memory,
                           &counts->register_file};
    for (int i = 0; status == OK && i < 4; i++)
        status = fetch(__func__, &target, ECC_SLOT(type, lifetime, i + 1), places[i]);
    return leave(status);
}

/* Addresses are made up: only their number matters. */
static int retired_pages(const char *function, handle device, u32 cause, u32 *count, u64 *addresses,
                         u64 *times_us)
{
    struct target target;
    u32 pages;
    if (cause > 1 || !count)
        return INVALID_ARGUMENT;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    status = fetch_u32(function, &target, cause ? RETIRED_DOUBLE_BIT : RETIRED_SINGLE_BIT, &pages);
    if (status != OK)
        return leave(status);
    u32 room = addresses ? *count : 0;
    *count = pages;
    if (pages > room)
        return leave(INSUFFICIENT_SIZE);
    for (u32 i = 0; i < pages; i++) {
        addresses[i] = 0x10000ULL * (i + 1);
        if (times_us)
            times_us[i] = 0;
    }
    return leave(OK);
}

EXPORT int nvmlDeviceGetRetiredPages(handle device, u32 cause, u32 *count, u64 *addresses)
{
    return retired_pages(__func__, device, cause, count, addresses, NULL);
}

EXPORT int nvmlDeviceGetRetiredPages_v2(handle device, u32 cause, u32 *count, u64 *addresses, u64 *times_us)
{
    return retired_pages(__func__, device, cause, count, addresses, times_us);
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(handle device, u32 *pending)
{
    return get_u32(__func__, device, RETIRED_PENDING, pending);
}

EXPORT int nvmlDeviceGetRemappedRows(handle device, u32 *correctable, u32 *uncorrectable, u32 *pending,
                                     u32 *failure)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if ((status = fetch_u32(__func__, &target, REMAPPED_CORRECTABLE, correctable)) == OK &&
        (status = fetch_u32(__func__, &target, REMAPPED_UNCORRECTABLE, uncorrectable)) == OK &&
        (status = fetch_u32(__func__, &target, REMAPPED_PENDING, pending)) == OK)
        status = fetch_u32(__func__, &target, REMAPPED_FAILURE, failure);
    return leave(status);
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(handle device, struct remap_banks *banks)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    u32 *const places[] = {&banks->max, &banks->high, &banks->partial, &banks->low, &banks->none};
    for (int i = 0; status == OK && i < 5; i++)
        status = fetch_u32(__func__, &target, BANKS_MAX + i, places[i]);
    return leave(status);
}
