/* The system, and handles of devices. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "standin.h"

EXPORT const char *nvmlErrorString(int status)
{
    static const char *const texts[] = {"Success",
                                        "Uninitialized",
                                        "Invalid Argument",
                                        "Not Supported",
                                        "Insufficient Permissions",
                                        "Already Initialized",
                                        "Not Found",
                                        "Insufficient Size",
                                        "Insufficient External Power",
                                        "Driver Not Loaded",
                                        "Timeout",
                                        "Interrupt Request Issue",
                                        "NVML Shared Library Not Found",
                                        "Function Not Found",
                                        "Corrupted infoROM",
                                        "GPU is lost",
                                        "GPU requires restart",
                                        "The operating system has blocked the request.",
                                        "RM has detected an NVML/RM version mismatch.",
                                        "In use by another client",
                                        "Insufficient Memory",
                                        "No data",
                                        "ECC not supported with vGPU",
                                        "Insufficient resources",
                                        "Frequency not supported",
                                        "Argument version mismatch",
                                        "Deprecated",
                                        "Not ready",
                                        "GPU not found",
                                        "Invalid state"};
    bool known = status >= 0 && status < (int)(sizeof texts / sizeof *texts);
    return known ? texts[status] : "Unknown Error";
}

static int get_system_text(const char *function, const char *text, char *buffer, u32 room)
{
    int status = enter(function);
    return status == OK ? leave(put_text(*text ? text : NULL, buffer, room)) : status;
}

EXPORT int nvmlSystemGetDriverVersion(char *buffer, u32 room)
{
    return get_system_text(__func__, world.driver_version, buffer, room);
}

EXPORT int nvmlSystemGetNVMLVersion(char *buffer, u32 room)
{
    return get_system_text(__func__, world.nvml_version, buffer, room);
}

static int get_cuda_version(const char *function, int *version)
{
    int status = enter(function);
    if (status != OK)
        return status;
    *version = (int)world.cuda_version;
    return leave(*version ? OK : NOT_SUPPORTED);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return get_cuda_version(__func__, version); }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return get_cuda_version(__func__, version); }

static int count_gpus(const char *function, u32 *count)
{
    int status = enter(function);
    if (status != OK)
        return status;
    *count = 0;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        *count += gpu_present(gpu);
    return leave(OK);
}

EXPORT int nvmlDeviceGetCount(u32 *count) { return count_gpus(__func__, count); }
EXPORT int nvmlDeviceGetCount_v2(u32 *count) { return count_gpus(__func__, count); }

/* Returns a handle and releases the lock. A lost GPU has none. */
static int give_handle(const char *function, int gpu, int mig, handle *device)
{
    const struct fault *fault = fault_active(FAULT_ERROR, function, gpu);
    if (fault)
        return leave((int)fault->value);
    if (gpu_lost(gpu))
        return leave(GPU_IS_LOST);
    *device = make_handle(DEVICE_HANDLE, gpu, mig);
    return leave(OK);
}

static int handle_by_index(const char *function, u32 index, handle *device)
{
    int status = enter(function);
    if (status != OK)
        return status;
    u32 seen = 0;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (gpu_present(gpu) && seen++ == index)
            return give_handle(function, gpu, -1, device);
    return leave(INVALID_ARGUMENT);
}

EXPORT int nvmlDeviceGetHandleByIndex(u32 index, handle *device)
{
    return handle_by_index(__func__, index, device);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(u32 index, handle *device)
{
    return handle_by_index(__func__, index, device);
}

static bool text_is(const struct device *device, int text, const char *wanted)
{
    return device && device->text[text] && strcasecmp(device->text[text], wanted) == 0;
}

static int handle_by_text(const char *function, int text, const char *wanted, handle *device)
{
    int status = enter(function);
    if (status != OK)
        return status;
    for (int gpu = 0; wanted && gpu < MAX_GPUS; gpu++) {
        if (!gpu_present(gpu))
            continue;
        if (text_is(&world.gpus[gpu].card, text, wanted))
            return give_handle(function, gpu, -1, device);
        for (int mig = 0; mig < MAX_MIGS; mig++)
            if (text_is(world.gpus[gpu].migs[mig], text, wanted))
                return give_handle(function, gpu, mig, device);
    }
    return leave(NOT_FOUND);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device)
{
    return handle_by_text(__func__, TEXT_UUID, uuid, device);
}

EXPORT int nvmlDeviceGetHandleBySerial(const char *serial, handle *device)
{
    return handle_by_text(__func__, TEXT_SERIAL, serial, device);
}

static bool parse_bus_id(const char *text, u32 *domain, u32 *bus, u32 *device)
{
    return text && sscanf(text, "%x:%x:%x", domain, bus, device) == 3;
}

/* The domain may be written with four digits or with eight. */
static int handle_by_bus_id(const char *function, const char *bus_id, handle *device)
{
    int status = enter(function);
    if (status != OK)
        return status;
    u32 wanted[3], found[3];
    if (!parse_bus_id(bus_id, &wanted[0], &wanted[1], &wanted[2]))
        return leave(INVALID_ARGUMENT);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (gpu_present(gpu) &&
            parse_bus_id(world.gpus[gpu].card.text[TEXT_PCI_BUS_ID], &found[0], &found[1], &found[2]) &&
            memcmp(wanted, found, sizeof found) == 0)
            return give_handle(function, gpu, -1, device);
    return leave(NOT_FOUND);
}

EXPORT int nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle *device)
{
    return handle_by_bus_id(__func__, bus_id, device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device)
{
    return handle_by_bus_id(__func__, bus_id, device);
}

EXPORT int nvmlDeviceGetIndex(handle device, u32 *index)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    *index = 0;
    for (int gpu = 0; gpu < target.gpu; gpu++)
        *index += gpu_present(gpu);
    return leave(OK);
}

/* The PCI address of the device (a MIG device has its parent's), with the lock held. */
static int pci_info(const struct target *target, struct pci_info *pci)
{
    const struct device *card = &world.gpus[target->gpu].card;
    u64 value;
    memset(pci, 0, sizeof *pci);
    if (!parse_bus_id(card->text[TEXT_PCI_BUS_ID], &pci->domain, &pci->bus, &pci->device))
        return NOT_SUPPORTED;
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF,
             pci->bus & 0xFF, pci->device & 0xFF);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFF,
             pci->device & 0xFF);
    pci->device_id = given(card, PCI_DEVICE_ID, &value) ? (u32)value : 0x10DE;
    pci->subsystem_id = given(card, PCI_SUBSYSTEM_ID, &value) ? (u32)value : 0x10DE;
    return OK;
}

EXPORT int nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *pci)
{
    struct target target;
    int status = enter_device(__func__, device, &target);
    return status == OK ? leave(pci_info(&target, pci)) : status;
}

EXPORT int nvmlDeviceGetPciInfo_v2(handle device, struct pci_info_v2 *pci)
{
    struct pci_info now;
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    status = pci_info(&target, &now);
    memset(pci, 0, sizeof *pci);
    memcpy(pci, &now, offsetof(struct pci_info, bus_id));
    return leave(status);
}

EXPORT int nvmlDeviceGetPciInfoExt(handle device, struct pci_info_ext *pci)
{
    struct pci_info now;
    struct target target;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (pci->version != STRUCT_VERSION(struct pci_info_ext, 1))
        return leave(ARGUMENT_VERSION_MISMATCH);
    status = pci_info(&target, &now);
    *pci = (struct pci_info_ext){pci->version,     now.domain, now.bus, now.device, now.device_id,
                                 now.subsystem_id, 0x03,       0x02,    ""};
    memcpy(pci->bus_id, now.bus_id, sizeof pci->bus_id);
    return leave(status);
}
