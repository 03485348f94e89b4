/* MIG devices: handles, attributes and profiles. */
#include <stdio.h>
#include <string.h>
#include "standin.h"

EXPORT int nvmlDeviceGetMaxMigDeviceCount(handle device, u32 *count)
{
    return get_u32(__func__, device, MIG_MAX, count);
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(handle device, u32 index, handle *mig)
{
    struct target target;
    u64 most;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (target.mig >= 0 || !given(target.device, MIG_MAX, &most))
        return leave(NOT_SUPPORTED);
    if (index >= most || index >= MAX_MIGS)
        return leave(INVALID_ARGUMENT);
    if (!world.gpus[target.gpu].migs[index])
        return leave(NOT_FOUND);
    *mig = make_handle(DEVICE_HANDLE, target.gpu, (int)index);
    return leave(OK);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(handle device, u32 *is_mig)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    *is_mig = target.mig >= 0;
    return leave(OK);
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle mig, handle *device)
{
    struct target target;
    int status = enter_device(__func__, mig, &target);
    if (status != OK)
        return status;
    if (target.mig < 0)
        return leave(INVALID_ARGUMENT);
    *device = make_handle(DEVICE_HANDLE, target.gpu, -1);
    return leave(OK);
}

EXPORT int nvmlDeviceGetGpuInstanceId(handle mig, u32 *id) { return get_u32(__func__, mig, GI, id); }
EXPORT int nvmlDeviceGetComputeInstanceId(handle mig, u32 *id) { return get_u32(__func__, mig, CI, id); }

static u32 slot_or_zero(const struct device *device, int slot)
{
    u64 value;
    return given(device, slot, &value) ? (u32)value : 0;
}

static u64 memory_mib(const struct device *device)
{
    u64 bytes;
    return given(device, MEMORY_TOTAL, &bytes) ? bytes >> 20 : 0;
}

EXPORT int nvmlDeviceGetAttributes_v2(handle mig, struct attributes *attributes)
{
    struct target target;
    u64 multiprocessors;
    int status = enter_device(__func__, mig, &target);
    if (status != OK)
        return status;
    if (target.mig < 0 || !given(target.device, MULTIPROCESSORS, &multiprocessors))
        return leave(NOT_SUPPORTED);
    *attributes = (struct attributes){.multiprocessors = (u32)multiprocessors,
                                      .gi_slices = slot_or_zero(target.device, GI_SLICES),
                                      .ci_slices = slot_or_zero(target.device, CI_SLICES),
                                      .memory_mib = memory_mib(target.device)};
    return leave(OK);
}

/* A GPU instance is identified by its first MIG device. */
static int mig_in_instance(int gpu, u32 id)
{
    u64 found;
    for (int mig = 0; mig < MAX_MIGS; mig++) {
        const struct device *device = world.gpus[gpu].migs[mig];
        if (device && given(device, GI, &found) && found == id)
            return mig;
    }
    return -1;
}

EXPORT int nvmlDeviceGetGpuInstanceById(handle device, u32 id, handle *instance)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    int mig = mig_in_instance(target.gpu, id);
    if (mig < 0)
        return leave(NOT_FOUND);
    *instance = make_handle(GPU_INSTANCE_HANDLE, target.gpu, mig);
    return leave(OK);
}

EXPORT int nvmlGpuInstanceGetInfo(handle instance, struct gpu_instance_info *info)
{
    struct target target;
    int status = enter_kind(__func__, instance, GPU_INSTANCE_HANDLE, &target);
    if (status != OK)
        return status;
    *info = (struct gpu_instance_info){make_handle(DEVICE_HANDLE, target.gpu, -1),
                                       slot_or_zero(target.device, GI),
                                       slot_or_zero(target.device, PROFILE_ID),
                                       {0, slot_or_zero(target.device, GI_SLICES)}};
    return leave(OK);
}

EXPORT int nvmlGpuInstanceGetComputeInstanceById(handle instance, u32 id, handle *compute)
{
    struct target target;
    u64 gi, ci;
    int status = enter_kind(__func__, instance, GPU_INSTANCE_HANDLE, &target);
    if (status != OK)
        return status;
    for (int mig = 0; mig < MAX_MIGS; mig++) {
        const struct device *device = world.gpus[target.gpu].migs[mig];
        if (device && given(device, GI, &gi) && gi == slot_or_zero(target.device, GI) &&
            given(device, CI, &ci) && ci == id) {
            *compute = make_handle(COMPUTE_INSTANCE_HANDLE, target.gpu, mig);
            return leave(OK);
        }
    }
    return leave(NOT_FOUND);
}

/* Profiles are numbered by their slices: 1, 2, 3, 4, 7, 8, 6. */
static const u32 slices_of_profile[] = {1, 2, 3, 4, 7, 8, 6};
enum { PROFILES = sizeof slices_of_profile / sizeof *slices_of_profile };

static u32 profile_of_slices(u32 slices)
{
    for (u32 profile = 0; profile < PROFILES; profile++)
        if (slices_of_profile[profile] == slices)
            return profile;
    return PROFILES;
}

EXPORT int nvmlComputeInstanceGetInfo_v2(handle compute, struct compute_instance_info *info)
{
    struct target target;
    int status = enter_kind(__func__, compute, COMPUTE_INSTANCE_HANDLE, &target);
    if (status != OK)
        return status;
    u32 slices = slot_or_zero(target.device, CI_SLICES);
    int owner = mig_in_instance(target.gpu, slot_or_zero(target.device, GI));
    *info = (struct compute_instance_info){make_handle(DEVICE_HANDLE, target.gpu, -1),
                                           make_handle(GPU_INSTANCE_HANDLE, target.gpu, owner),
                                           slot_or_zero(target.device, CI),
                                           profile_of_slices(slices),
                                           {0, slices}};
    return leave(OK);
}

/* The profile's name is the MIG device's own, without the part for a share of the instance ("1c."). */
static void profile_name(const struct device *mig, char *name, size_t room)
{
    const char *profile = mig->text[TEXT_PROFILE] ? mig->text[TEXT_PROFILE] : "";
    const char *dot = strchr(profile, '.');
    bool shared = dot && dot > profile && dot[-1] == 'c';
    snprintf(name, room, "MIG %s", shared ? dot + 1 : profile);
}

/* The profile of a MIG device of the GPU: only profiles in use are known. */
static const struct device *mig_with(int gpu, int slot, u32 wanted)
{
    u64 found;
    for (int mig = 0; mig < MAX_MIGS; mig++) {
        const struct device *device = world.gpus[gpu].migs[mig];
        if (device && given(device, slot, &found) && found == wanted)
            return device;
    }
    return NULL;
}

static int give_gi_profile(const char *function, handle device, int slot, u32 wanted,
                           struct gi_profile_v2 *info)
{
    struct target target;
    int status = enter_device(function, device, &target);
    if (status != OK)
        return status;
    const struct device *mig = mig_with(target.gpu, slot, wanted);
    if (!mig)
        return leave(NOT_SUPPORTED);
    u32 version = info->version;
    *info = (struct gi_profile_v2){.version = version,
                                   .id = slot_or_zero(mig, PROFILE_ID),
                                   .slices = slot_or_zero(mig, GI_SLICES),
                                   .instances = 1,
                                   .multiprocessors = slot_or_zero(mig, MULTIPROCESSORS),
                                   .memory_mib = memory_mib(mig)};
    profile_name(mig, info->name, sizeof info->name);
    return leave(OK);
}

static int give_gi_profile_v(const char *function, handle device, int slot, u32 wanted, void *info)
{
    struct gi_profile_v2 profile = {0};
    u32 version = *(u32 *)info;
    if (version != STRUCT_VERSION(struct gi_profile_v2, 2) &&
        version != STRUCT_VERSION(struct gi_profile_v3, 3))
        return ARGUMENT_VERSION_MISMATCH;
    profile.version = version;
    int status = give_gi_profile(function, device, slot, wanted, &profile);
    if (status != OK)
        return status;
    if (version == STRUCT_VERSION(struct gi_profile_v2, 2)) {
        memcpy(info, &profile, sizeof profile);
        return OK;
    }
    struct gi_profile_v3 newer = {.version = version,
                                  .id = profile.id,
                                  .slices = profile.slices,
                                  .instances = profile.instances,
                                  .multiprocessors = profile.multiprocessors,
                                  .memory_mib = profile.memory_mib};
    memcpy(newer.name, profile.name, sizeof newer.name);
    memcpy(info, &newer, sizeof newer);
    return OK;
}

EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(handle device, u32 profile, void *info)
{
    return profile < PROFILES
               ? give_gi_profile_v(__func__, device, GI_SLICES, slices_of_profile[profile], info)
               : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetGpuInstanceProfileInfoByIdV(handle device, u32 id, void *info)
{
    return give_gi_profile_v(__func__, device, PROFILE_ID, id, info);
}

EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(handle device, u32 profile, struct gi_profile *info)
{
    struct gi_profile_v2 found = {0};
    if (profile >= PROFILES)
        return NOT_SUPPORTED;
    int status = give_gi_profile(__func__, device, GI_SLICES, slices_of_profile[profile], &found);
    if (status == OK)
        *info = (struct gi_profile){.id = found.id,
                                    .slices = found.slices,
                                    .instances = found.instances,
                                    .multiprocessors = found.multiprocessors,
                                    .memory_mib = found.memory_mib};
    return status;
}

EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle instance, u32 profile, u32 engine,
                                                         struct ci_profile_v2 *info)
{
    struct target target;
    if (profile >= PROFILES || engine != 0)
        return NOT_SUPPORTED;
    int status = enter_kind(__func__, instance, GPU_INSTANCE_HANDLE, &target);
    if (status != OK)
        return status;
    if (info->version != STRUCT_VERSION(struct ci_profile_v2, 2))
        return leave(ARGUMENT_VERSION_MISMATCH);
    const struct device *mig = mig_with(target.gpu, CI_SLICES, slices_of_profile[profile]);
    if (!mig)
        return leave(NOT_SUPPORTED);
    *info = (struct ci_profile_v2){.version = info->version,
                                   .id = profile,
                                   .slices = slices_of_profile[profile],
                                   .instances = 1,
                                   .multiprocessors = slot_or_zero(mig, MULTIPROCESSORS)};
    snprintf(info->name, sizeof info->name, "MIG %s", mig->text[TEXT_PROFILE] ? mig->text[TEXT_PROFILE] : "");
    return leave(OK);
}
