/* Faults of the scenario: which are active, for which function and GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"

static const char *const kind_names[FAULT_KINDS] = {"hang", "sleep",  "error",       "garbage",
                                                    "lost", "absent", "driver_gone", "version_mismatch"};

static bool parse_setting(char *word, struct fault *fault)
{
    char *value = strchr(word, '=');
    if (!value || !value[1])
        return false;
    *value++ = '\0';
    char *end = value;
    if (strcmp(word, "function") == 0) {
        snprintf(fault->function, sizeof fault->function, "%s", value);
        return true;
    }
    if (strcmp(word, "gpu") == 0)
        fault->gpu = (int)strtol(value, &end, 10);
    else if (strcmp(word, "from") == 0)
        fault->from = strtod(value, &end);
    else if (strcmp(word, "until") == 0)
        fault->until = strtod(value, &end);
    else if (strcmp(word, "value") == 0) {
        fault->value = strtoull(value, &end, 10);
        fault->has_value = true;
    } else
        return false;
    return *end == '\0';
}

/* "KIND name=value ..." */
bool fault_parse(char *words, struct fault *fault)
{
    *fault = (struct fault){.kind = FAULT_KINDS, .gpu = -1, .until = INFINITY};
    char *rest, *word = strtok_r(words, " ", &rest);
    for (int i = 0; word && i < FAULT_KINDS; i++)
        if (strcmp(word, kind_names[i]) == 0)
            fault->kind = (enum fault_kind)i;
    if (fault->kind == FAULT_KINDS)
        return false;
    while ((word = strtok_r(NULL, " ", &rest)))
        if (!parse_setting(word, fault))
            return false;
    return true;
}

static bool version_suffix(const char *text)
{
    return text[0] == '_' && text[1] == 'v' && text[2] >= '1' && text[2] <= '9' && !text[3];
}

static bool function_matches(const char *pattern, const char *function)
{
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*')
        return strncmp(pattern, function, length - 1) == 0;
    return strncmp(pattern, function, length) == 0 &&
           (function[length] == '\0' || version_suffix(function + length));
}

/* The active fault of this kind for the function (NULL: any) and GPU (-1: none). */
const struct fault *fault_active(enum fault_kind kind, const char *function, int gpu)
{
    if (!world.fault_count)
        return NULL;
    double now = scenario_now();
    for (u32 i = 0; i < world.fault_count; i++) {
        const struct fault *fault = &world.faults[i];
        if (fault->kind == kind && fault->from <= now && now < fault->until &&
            (fault->gpu < 0 || fault->gpu == gpu) &&
            (!function || function_matches(fault->function, function)))
            return fault;
    }
    return NULL;
}

/* The next time after `now` at which a fault begins or ends. */
double fault_next_edge(double now)
{
    double next = INFINITY;
    for (u32 i = 0; i < world.fault_count; i++) {
        const struct fault *fault = &world.faults[i];
        if (fault->from > now)
            next = fmin(next, fault->from);
        if (fault->until > now)
            next = fmin(next, fault->until);
    }
    return next;
}

/* Whether the driver was gone at any time since that moment. */
bool driver_was_gone_since(double moment)
{
    double now = world.fault_count ? scenario_now() : 0;
    for (u32 i = 0; i < world.fault_count; i++) {
        const struct fault *fault = &world.faults[i];
        if (fault->kind == FAULT_DRIVER_GONE && fault->from <= now && fault->until > moment)
            return true;
    }
    return false;
}
