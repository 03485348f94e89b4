/* Reading slots: numbers and texts for entry points. */
#include <stdio.h>
#include <string.h>
#include "standin.h"

#define GARBAGE 808334905 /* a utilisation that a real driver has reported */

bool given(const struct device *device, int slot, u64 *value)
{
    *value = device->number[slot];
    return device->given[slot];
}

/* In MIG mode the driver has no utilisation of the whole GPU. */
static bool hidden_by_mig(const struct target *target, int slot)
{
    u64 mig_mode;
    return slot >= UTIL_GPU && slot <= UTIL_OFA && given(target->device, MIG_MODE, &mig_mode) && mig_mode;
}

/* Whether what all MIG devices of a GPU have together is denied: open-gpu-kernel-modules 595.45.04,
 * subdevice_ctrl_gpu_kernel.c:2296 (processes), kern_mem_sys_ctrl.c:258 (memory), kern_bus.c:266 (BAR1), and nvml.h
 * ("only if the caller has appropriate privileges"). A MIG device's own handle is not denied. */
bool mig_denied(const struct target *target)
{
    u64 mig_mode;
    return world.no_mig_monitor && target->mig < 0 &&
           given(&world.gpus[target->gpu].card, MIG_MODE, &mig_mode) && mig_mode;
}

int fetch(const char *function, const struct target *target, int slot, u64 *value)
{
    if (!given(target->device, slot, value) || hidden_by_mig(target, slot))
        return NOT_SUPPORTED;
    const struct fault *garbage = fault_active(FAULT_GARBAGE, function, target->gpu);
    if (garbage)
        *value = garbage->has_value ? garbage->value : GARBAGE;
    return OK;
}

int fetch_u32(const char *function, const struct target *target, int slot, u32 *value)
{
    u64 wide;
    int status = fetch(function, target, slot, &wide);
    if (status == OK)
        *value = (u32)wide;
    return status;
}

int get_u64(const char *function, handle device, int slot, u64 *value)
{
    struct target target;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    return leave(value ? fetch(function, &target, slot, value) : INVALID_ARGUMENT);
}

int get_u32(const char *function, handle device, int slot, u32 *value)
{
    u64 wide;
    int status = value ? get_u64(function, device, slot, &wide) : INVALID_ARGUMENT;
    if (status == OK)
        *value = (u32)wide;
    return status;
}

/* Two numbers in one call: both, or an error. */
int get_two(const char *function, handle device, const int slots[2], u32 *one, u32 *other)
{
    struct target target;
    if (!one || !other)
        return INVALID_ARGUMENT;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    if ((status = fetch_u32(function, &target, slots[0], one)) == OK)
        status = fetch_u32(function, &target, slots[1], other);
    return leave(status);
}

int put_text(const char *text, char *buffer, u32 room)
{
    if (!text)
        return NOT_SUPPORTED;
    if (!buffer)
        return INVALID_ARGUMENT;
    if (strlen(text) >= room)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return OK;
}

int get_text(const char *function, handle device, int text, char *buffer, u32 room)
{
    struct target target;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    return leave(put_text(target.device->text[text], buffer, room));
}
