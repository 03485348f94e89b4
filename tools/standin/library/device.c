/* One GPU: identity, utilisation, memory, power, temperatures, clocks, fans, throttling, modes. */
#include <stdio.h>
#include <string.h>
#include "standin.h"

#define GETTER_U32(function, slot) \
    EXPORT int function(handle device, u32 *value) { return get_u32(__func__, device, slot, value); }
#define GETTER_U64(function, slot) \
    EXPORT int function(handle device, u64 *value) { return get_u64(__func__, device, slot, value); }
#define GETTER_TEXT(function, text) \
    EXPORT int function(handle device, char *buffer, u32 room) \
    { \
        return get_text(__func__, device, text, buffer, room); \
    }
/* Value and sampling period. */
#define GETTER_ENGINE(function, slot) \
    EXPORT int function(handle device, u32 *percent, u32 *period_us) \
    { \
        int status = get_u32(__func__, device, slot, percent); \
        if (status == OK) \
            *period_us = 167000; \
        return status; \
    }
/* Current and pending mode, or lowest and highest limit. */
#define GETTER_TWO(function, one_slot, other_slot) \
    EXPORT int function(handle device, u32 *one, u32 *other) \
    { \
        return get_two(__func__, device, (const int[]){one_slot, other_slot}, one, other); \
    }
#define GETTER_CLOCK(function, kind) \
    EXPORT int function(handle device, u32 domain, u32 *mhz) \
    { \
        return domain < CLOCK_DOMAINS ? get_u32(__func__, device, CLOCK(kind, domain), mhz) \
                                      : INVALID_ARGUMENT; \
    }

GETTER_TEXT(nvmlDeviceGetUUID, TEXT_UUID)
GETTER_TEXT(nvmlDeviceGetSerial, TEXT_SERIAL)
GETTER_TEXT(nvmlDeviceGetVbiosVersion, TEXT_VBIOS)
GETTER_TEXT(nvmlDeviceGetBoardPartNumber, TEXT_BOARD_PART)
GETTER_CLOCK(nvmlDeviceGetClockInfo, CLOCK_NOW)
GETTER_CLOCK(nvmlDeviceGetMaxClockInfo, CLOCK_MAX)
GETTER_CLOCK(nvmlDeviceGetMaxCustomerBoostClock, CLOCK_MAX)
GETTER_CLOCK(nvmlDeviceGetApplicationsClock, CLOCK_APP)
GETTER_CLOCK(nvmlDeviceGetDefaultApplicationsClock, CLOCK_APP_DEFAULT)
GETTERS(GETTER_U32, GETTER_U64, GETTER_ENGINE, GETTER_TWO)

/* On Grace Hopper the older counter is the whole module's (ml-energy/zeus#172). */
int total_energy_slot(const struct device *device)
{
    return device->given[ENERGY_MODULE] ? ENERGY_MODULE : ENERGY;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(handle device, u64 *millijoules)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    return leave(fetch(__func__, &target, total_energy_slot(target.device), millijoules));
}

/* The name of a MIG device is its parent's name and its profile. */
EXPORT int nvmlDeviceGetName(handle device, char *buffer, u32 room)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    const char *name = world.gpus[target.gpu].card.text[TEXT_NAME];
    const char *profile = target.device->text[TEXT_PROFILE];
    char joined[256];
    if (target.mig >= 0 && name && profile) {
        snprintf(joined, sizeof joined, "%s MIG %s", name, profile);
        name = joined;
    }
    return leave(put_text(name, buffer, room));
}

EXPORT int nvmlDeviceGetUtilizationRates(handle device, struct utilization *rates)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    status = fetch_u32(__func__, &target, UTIL_GPU, &rates->gpu);
    /* The driver has one status for both: a missing memory utilisation is 0. */
    if (status == OK && fetch_u32(__func__, &target, UTIL_MEMORY, &rates->memory) != OK)
        rates->memory = 0;
    return leave(status);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (mig_denied(&target))
        return leave(NO_PERMISSION);
    if (memory->version != STRUCT_VERSION(struct memory_v2, 2))
        return leave(ARGUMENT_VERSION_MISMATCH);
    if ((status = fetch(__func__, &target, MEMORY_TOTAL, &memory->total)) == OK &&
        (status = fetch(__func__, &target, MEMORY_USED, &memory->used)) == OK &&
        (status = fetch(__func__, &target, MEMORY_FREE, &memory->free)) == OK)
        status = fetch(__func__, &target, MEMORY_RESERVED, &memory->reserved);
    return leave(status);
}

/* The first version has no `reserved`: it is part of `used`. */
EXPORT int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory)
{
    struct target target;
    u64 reserved;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (mig_denied(&target))
        return leave(NO_PERMISSION);
    if ((status = fetch(__func__, &target, MEMORY_TOTAL, &memory->total)) == OK &&
        (status = fetch(__func__, &target, MEMORY_USED, &memory->used)) == OK)
        status = fetch(__func__, &target, MEMORY_FREE, &memory->free);
    if (status == OK && given(target.device, MEMORY_RESERVED, &reserved))
        memory->used += reserved;
    return leave(status);
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(handle device, struct bar1_memory *bar1)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (mig_denied(&target))
        return leave(NO_PERMISSION);
    if ((status = fetch(__func__, &target, BAR1_TOTAL, &bar1->total)) == OK &&
        (status = fetch(__func__, &target, BAR1_USED, &bar1->used)) == OK)
        status = fetch(__func__, &target, BAR1_FREE, &bar1->free);
    return leave(status);
}

EXPORT int nvmlDeviceGetPowerManagementMode(handle device, u32 *mode)
{
    u32 limit;
    int status = get_u32(__func__, device, POWER_LIMIT, &limit);
    if (status == OK)
        *mode = 1;
    return status;
}

EXPORT int nvmlDeviceGetTemperature(handle device, u32 sensor, u32 *degrees)
{
    return sensor == 0 ? get_u32(__func__, device, TEMP_GPU, degrees) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetTemperatureV(handle device, struct temperature *temperature)
{
    u32 degrees;
    if (temperature->version != STRUCT_VERSION(struct temperature, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensor != 0)
        return INVALID_ARGUMENT;
    int status = get_u32(__func__, device, TEMP_GPU, &degrees);
    if (status == OK)
        temperature->degrees = (int)degrees;
    return status;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(handle device, u32 threshold, u32 *degrees)
{
    static const int slots[] = {TEMP_SHUTDOWN, TEMP_SLOWDOWN, TEMP_MEMORY_MAX, TEMP_GPU_MAX};
    if (threshold >= sizeof slots / sizeof *slots)
        return threshold < 8 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    return get_u32(__func__, device, slots[threshold], degrees);
}

EXPORT int nvmlDeviceGetMarginTemperature(handle device, struct margin_temperature *margin)
{
    u32 degrees;
    if (margin->version != STRUCT_VERSION(struct margin_temperature, 1))
        return ARGUMENT_VERSION_MISMATCH;
    int status = get_u32(__func__, device, TEMP_MARGIN, &degrees);
    if (status == OK)
        margin->degrees = (int)degrees;
    return status;
}

EXPORT int nvmlDeviceGetClock(handle device, u32 domain, u32 id, u32 *mhz)
{
    static const int kinds[] = {CLOCK_NOW, CLOCK_APP, CLOCK_APP_DEFAULT, CLOCK_MAX};
    if (domain >= CLOCK_DOMAINS || id >= sizeof kinds / sizeof *kinds)
        return INVALID_ARGUMENT;
    return get_u32(__func__, device, CLOCK(kinds[id], domain), mhz);
}

EXPORT int nvmlDeviceGetNumFans(handle device, u32 *count)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    *count = 0;
    for (int fan = 0; fan < MAX_FANS; fan++)
        *count += target.device->given[FANS + fan];
    return leave(*count ? OK : NOT_SUPPORTED);
}

EXPORT int nvmlDeviceGetFanSpeed(handle device, u32 *percent)
{
    return get_u32(__func__, device, FANS, percent);
}

EXPORT int nvmlDeviceGetFanSpeed_v2(handle device, u32 fan, u32 *percent)
{
    return fan < MAX_FANS ? get_u32(__func__, device, FANS + (int)fan, percent) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetViolationStatus(handle device, u32 policy, struct violation_time *time)
{
    static const int slots[] = {VIOLATION_POWER,
                                VIOLATION_THERMAL,
                                VIOLATION_SYNC_BOOST,
                                VIOLATION_BOARD_LIMIT,
                                VIOLATION_LOW_UTILIZATION,
                                VIOLATION_RELIABILITY,
                                -1,
                                -1,
                                -1,
                                -1,
                                VIOLATION_APP_CLOCKS,
                                VIOLATION_BASE_CLOCKS};
    if (policy >= sizeof slots / sizeof *slots || slots[policy] < 0)
        return INVALID_ARGUMENT;
    int status = get_u64(__func__, device, slots[policy], &time->violation_ns);
    if (status == OK)
        time->reference_us = wall_clock_us();
    return status;
}

/* No scenario has a display. */
static int get_zero(const char *function, handle device, u32 *value)
{
    struct target target;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    *value = 0;
    return leave(OK);
}

EXPORT int nvmlDeviceGetDisplayMode(handle device, u32 *mode) { return get_zero(__func__, device, mode); }
EXPORT int nvmlDeviceGetDisplayActive(handle device, u32 *active)
{
    return get_zero(__func__, device, active);
}
