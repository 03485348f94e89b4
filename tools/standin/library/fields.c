/* nvmlDeviceGetFieldValues: many values in one call, each with its own status. */
#include <string.h>
#include "standin.h"

enum { ALL_LINKS = 0xFFFFFFFF, NVLINK_4 = 6, NVLINK_5 = 7 };

struct field {
    u32 id;
    int slot;
    enum field_type type;
};

static const struct field fields[] = {
#define X(id, slot, type) {id, slot, TYPE_##type},
    FIELD_VALUES(X)
#undef X
};

/* ECC counters: corrected and uncorrected alternate. CBU has no corrected one. */
static int ecc_slot(u32 id)
{
    /* by location in pairs: L1, L2, device memory, register file, texture memory */
    enum { CBU = 7 };
    if (id >= 3 && id <= 6)
        return ECC_SLOT((id - 3) % 2, (id - 3) / 2, 0);
    if (id == 17 || id == 28)
        return ECC_SLOT(1, id == 28, CBU);
    if (id >= 7 && id <= 16)
        return ECC_SLOT((id - 7) % 2, 0, 1 + (id - 7) / 2);
    if (id >= 18 && id <= 27)
        return ECC_SLOT((id - 18) % 2, 1, 1 + (id - 18) / 2);
    return -1;
}

/* Counters of one link each: the link is in the field id (older fields), or the scope (newer ones). */
static const struct {
    u32 first, last, link;
    enum link_counter counter;
} by_id[] = {
    {32, 37, 0, LINK_CRC_FLIT},   {96, 101, 6, LINK_CRC_FLIT},  {39, 44, 0, LINK_CRC_DATA},
    {102, 107, 6, LINK_CRC_DATA}, {46, 51, 0, LINK_REPLAY},     {108, 113, 6, LINK_REPLAY},
    {53, 58, 0, LINK_RECOVERY},   {114, 119, 6, LINK_RECOVERY}, {84, 89, 0, LINK_SPEED},
    {132, 137, 6, LINK_SPEED},    {148, 159, 0, LINK_ECC_DATA},
};
static const struct {
    u32 id;
    enum link_counter counter;
} sums[] = {
    {38, LINK_CRC_FLIT}, {45, LINK_CRC_DATA}, {52, LINK_REPLAY}, {59, LINK_RECOVERY}, {160, LINK_ECC_DATA},
};
static const struct {
    u32 id;
    enum link_counter counter;
    enum field_type type;
    bool nvlink5;
} by_scope[] = {
    {161, LINK_REPLAY, TYPE_U64, false},
    {162, LINK_RECOVERY, TYPE_U64, false},
    {163, LINK_CRC_FLIT, TYPE_U64, false},
    {164, LINK_SPEED, TYPE_U32, false},
    {165, LINK_STATE, TYPE_U32, false},
    {166, LINK_VERSION, TYPE_U32, false},
    {202, LINK_TX, TYPE_U64, true},
    {204, LINK_RX, TYPE_U64, true},
    {206, LINK_MALFORMED, TYPE_U64, true},
    {207, LINK_OVERRUN, TYPE_U64, true},
    {208, LINK_RECEIVE, TYPE_U64, true},
    {209, LINK_RECEIVE_REMOTE, TYPE_U64, true},
    {210, LINK_RECEIVE_GENERAL, TYPE_U64, true},
    {211, LINK_INTEGRITY, TYPE_U64, true},
    {212, LINK_DISCARD, TYPE_U64, true},
    {213, LINK_RECOVERED, TYPE_U64, true},
    {214, LINK_RECOVERY_FAILED, TYPE_U64, true},
    {215, LINK_RECOVERIES, TYPE_U64, true},
    {219, LINK_EFFECTIVE, TYPE_U64, true},
    {221, LINK_SYMBOL, TYPE_U64, true},
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static int sum_of_links(const struct device *device, enum link_counter counter, u64 *sum)
{
    bool any = false;
    u64 value;
    *sum = 0;
    for (int link = 0; link < MAX_LINKS; link++)
        if (given(device, LINK(link, counter), &value)) {
            *sum += value;
            any = true;
        }
    return any ? OK : NOT_SUPPORTED;
}

static int link_count(const struct device *device, u64 *count)
{
    *count = 0;
    for (int link = 0; link < MAX_LINKS; link++)
        *count += device->given[LINK(link, LINK_STATE)];
    return *count ? OK : NOT_SUPPORTED;
}

static bool nvlink_is(const struct device *device, u32 link, u64 least, u64 most)
{
    u64 version;
    return given(device, LINK(link, LINK_VERSION), &version) && version >= least && version <= most;
}

static bool nvlink5(const struct device *device, u32 link)
{
    return nvlink_is(device, link, NVLINK_5, ~(u64)0);
}

/* Payload in KiB, of one link or of all. NVLink 5 counts bytes by link instead. */
static int throughput(const struct target *target, enum link_counter counter, u32 scope, u64 *kib)
{
    int status;
    if (nvlink5(target->device, scope == ALL_LINKS ? 0 : scope % MAX_LINKS))
        return NOT_SUPPORTED;
    if (scope == ALL_LINKS)
        status = sum_of_links(target->device, counter, kib);
    else if (scope < MAX_LINKS)
        status = given(target->device, LINK(scope, counter), kib) ? OK : NOT_SUPPORTED;
    else
        return INVALID_ARGUMENT;
    *kib /= 1024;
    return status;
}

static int link_field(const char *function, const struct target *target, u32 id, u32 scope, u32 *type,
                      u64 *value)
{
    /* Hopper: the older error fields succeed and are always 0 (DataDog/datadog-agent#55966). */
    bool always_zero = nvlink_is(target->device, 0, NVLINK_4, NVLINK_4);
    for (size_t i = 0; i < COUNT(by_id); i++) {
        if (id < by_id[i].first || id > by_id[i].last)
            continue;
        if (always_zero && by_id[i].counter != LINK_SPEED)
            return OK;
        return fetch(function, target, LINK(by_id[i].link + id - by_id[i].first, by_id[i].counter), value);
    }
    for (size_t i = 0; i < COUNT(sums); i++)
        if (id == sums[i].id)
            return always_zero ? OK : sum_of_links(target->device, sums[i].counter, value);
    for (size_t i = 0; i < COUNT(by_scope); i++) {
        if (id != by_scope[i].id)
            continue;
        /* The counters of NVLink 5 have a sum (DCGM 4.6 DcgmCMUtils.cpp:233, DcgmCacheManager.cpp:6583). */
        bool sum = scope == ALL_LINKS && by_scope[i].nvlink5;
        if (scope >= MAX_LINKS && !sum)
            return INVALID_ARGUMENT;
        bool fifth = nvlink5(target->device, sum ? 0 : scope);
        /* The errors of the data link layer are not supported on Blackwell (nvml.h:2649-2668). */
        if (by_scope[i].nvlink5 ? !fifth : fifth && id >= 161 && id <= 163)
            return NOT_SUPPORTED;
        *type = by_scope[i].type;
        if (sum)
            return sum_of_links(target->device, by_scope[i].counter, value);
        return fetch(function, target, LINK(scope, by_scope[i].counter), value);
    }
    if (id == 138 || id == 139)
        return throughput(target, id == 138 ? LINK_TX : LINK_RX, scope, value);
    if (id == 91) {
        *type = TYPE_U32;
        return link_count(target->device, value);
    }
    return NOT_SUPPORTED;
}

/* Power and energy of the GPU (scope 0) or of the whole module (1), which only superchips have
 * (nvml.h:2705-2722). The mean over a second exists on Ampere and newer, without GA100 (nvml.h:2716). */
static int power_slot(const struct device *device, u32 id, u32 scope, int slot)
{
    enum { AVERAGE = 185, INSTANT = 186, ENERGY_COUNTER = 191, MODULE = 1 };
    u64 major = 0, minor = 0;
    given(device, CC_MAJOR, &major);
    given(device, CC_MINOR, &minor);
    if (id == AVERAGE && (major < 8 || (major == 8 && minor == 0)))
        return -1;
    if (scope == MODULE)
        return id == ENERGY_COUNTER ? ENERGY_MODULE : id <= INSTANT ? POWER_MODULE : -1;
    return scope ? -1 : slot;
}

static int find_field(const char *function, const struct target *target, u32 id, u32 scope, u32 *type,
                      u64 *value)
{
    *type = TYPE_U64;
    for (size_t i = 0; i < COUNT(fields); i++)
        if (fields[i].id == id) {
            int slot = fields[i].slot;
            if (id >= 185 && id <= 192)
                slot = power_slot(target->device, id, scope, slot);
            *type = fields[i].type;
            return slot < 0 ? NOT_SUPPORTED : fetch(function, target, slot, value);
        }
    if (id == 83)
        return fetch(function, target, total_energy_slot(target->device), value);
    int ecc = ecc_slot(id);
    if (ecc >= 0)
        return fetch(function, target, ecc, value);
    return link_field(function, target, id, scope, type, value);
}

EXPORT int nvmlDeviceGetFieldValues(handle device, int count, struct field_value *values)
{
    struct target target;
    if (count < 0 || !values)
        return INVALID_ARGUMENT;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    long long now = (long long)wall_clock_us();
    for (int i = 0; i < count; i++) {
        struct field_value *field = &values[i];
        u64 value = 0;
        field->status = (u32)find_field(__func__, &target, field->id, field->scope, &field->type, &value);
        field->time_us = now;
        field->latency_us = 0;
        field->value.ull = 0;
        if (field->type == TYPE_U64)
            field->value.ull = value;
        else
            field->value.u = (u32)value;
    }
    return leave(OK);
}
