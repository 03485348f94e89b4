/* From the keys of a scenario file to slots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"

static const char *const single_keys[] = {
#define X(name, key, field, factor) key,
    SINGLE_SLOTS(X)
#undef X
};
static const char *const text_keys[] = {
#define X(name, key) key,
    TEXT_SLOTS(X)
#undef X
};
static const char *const clock_kinds[CLOCK_KINDS] = {"clock", "clock_max", "clock_app", "clock_app_default"};
static const char *const clock_domains[CLOCK_DOMAINS] = {"graphics", "sm", "memory", "video"};
static const char *const ecc_types[ECC_TYPES] = {"corrected", "uncorrected"};
static const char *const ecc_lifetimes[ECC_LIFETIMES] = {"volatile", "aggregate"};
static const char *const ecc_locations[ECC_LOCATIONS] = {"total",         "l1_cache",      "l2_cache",
                                                         "device_memory", "register_file", "texture_memory",
                                                         "texture_shm",   "cbu",           "sram"};
static const char *const link_counters[LINK_COUNTERS] = {"state",
                                                         "version",
                                                         "speed",
                                                         "tx",
                                                         "rx",
                                                         "replay",
                                                         "recovery",
                                                         "crc_flit",
                                                         "crc_data",
                                                         "ecc_data",
                                                         "malformed_packet",
                                                         "buffer_overrun",
                                                         "receive",
                                                         "receive_remote",
                                                         "receive_general",
                                                         "link_integrity",
                                                         "transmit_discard",
                                                         "link_recovery_successful",
                                                         "link_recovery_failed",
                                                         "link_recovery",
                                                         "effective",
                                                         "symbol"};

static int find(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

static int small_number(const char *word, int limit)
{
    char *end;
    long value = strtol(word, &end, 10);
    return *word && !*end && value >= 0 && value < limit ? (int)value : -1;
}

int key_text(const char *key) { return find(key, text_keys, TEXTS); }

/* The slot of a key, or -1. */
int key_slot(const char *key)
{
    int single = find(key, single_keys, CLOCKS);
    if (single >= 0)
        return single;

    char parts[4][32] = {"", "", "", ""};
    int count = sscanf(key, "%31[^.].%31[^.].%31[^.].%31s", parts[0], parts[1], parts[2], parts[3]);
    int kind = find(parts[0], clock_kinds, CLOCK_KINDS);
    if (count == 2 && kind >= 0) {
        int domain = find(parts[1], clock_domains, CLOCK_DOMAINS);
        return domain < 0 ? -1 : CLOCK(kind, domain);
    }
    if (count == 2 && strcmp(parts[0], "fan") == 0) {
        int fan = small_number(parts[1], MAX_FANS);
        return fan < 0 ? -1 : FANS + fan;
    }
    if (count == 3 && strcmp(parts[0], "nvlink") == 0) {
        int link = small_number(parts[1], MAX_LINKS);
        int counter = find(parts[2], link_counters, LINK_COUNTERS);
        return link < 0 || counter < 0 ? -1 : LINK(link, counter);
    }
    if (count == 4 && strcmp(parts[0], "ecc") == 0) {
        int type = find(parts[1], ecc_types, ECC_TYPES);
        int lifetime = find(parts[2], ecc_lifetimes, ECC_LIFETIMES);
        int location = find(parts[3], ecc_locations, ECC_LOCATIONS);
        return type < 0 || lifetime < 0 || location < 0 ? -1 : ECC_SLOT(type, lifetime, location);
    }
    return -1;
}
