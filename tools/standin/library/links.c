/* Connections of a GPU: PCIe, NVLink and topology. */
#include <stdio.h>
#include "standin.h"

#define PCIE_WINDOW_MS 20
#define LINK_CAPABILITIES 6

/* The driver counts bytes over a window, and the call blocks. */
EXPORT int nvmlDeviceGetPcieThroughput(handle device, u32 direction, u32 *kb_per_second)
{
    if (direction > 1)
        return INVALID_ARGUMENT;
    int status = get_u32(__func__, device, direction ? PCIE_RX : PCIE_TX, kb_per_second);
    if (status == OK)
        pause_ms(PCIE_WINDOW_MS);
    return status;
}

static int get_link(const char *function, handle device, u32 link, int counter, u64 *value)
{
    return link < MAX_LINKS ? get_u64(function, device, LINK(link, counter), value) : INVALID_ARGUMENT;
}

static int get_link_u32(const char *function, handle device, u32 link, int counter, u32 *value)
{
    u64 wide;
    int status = get_link(function, device, link, counter, &wide);
    if (status == OK)
        *value = (u32)wide;
    return status;
}

EXPORT int nvmlDeviceGetNvLinkState(handle device, u32 link, u32 *active)
{
    return get_link_u32(__func__, device, link, LINK_STATE, active);
}

EXPORT int nvmlDeviceGetNvLinkVersion(handle device, u32 link, u32 *version)
{
    return get_link_u32(__func__, device, link, LINK_VERSION, version);
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(handle device, u32 link, u32 counter, u64 *count)
{
    if (counter > LINK_ECC_DATA - LINK_REPLAY)
        return INVALID_ARGUMENT;
    return get_link(__func__, device, link, LINK_REPLAY + (int)counter, count);
}

EXPORT int nvmlDeviceGetNvLinkCapability(handle device, u32 link, u32 capability, u32 *result)
{
    if (capability >= LINK_CAPABILITIES)
        return INVALID_ARGUMENT;
    return get_link_u32(__func__, device, link, LINK_STATE, result);
}

static void put_uuid(const char *text, unsigned char uuid[16])
{
    unsigned byte;
    for (int i = 0; text && i < 16 && sscanf(text, "%2x", &byte) == 1; i++) {
        uuid[i] = (unsigned char)byte;
        text += text[2] == '-' ? 3 : 2;
    }
}

/* NOT_SUPPORTED without a fabric; the status counts only once the state is complete (nvml.h:3816, 7850). */
EXPORT int nvmlDeviceGetGpuFabricInfoV(handle device, struct fabric_info *info)
{
    enum { HEALTHY = 1, V2 = offsetof(struct fabric_info, summary) | 2 << 24 };
    struct target target;
    u32 state;
    int status = enter_device(__func__, device, &target);
    if (status != OK)
        return status;
    if (info->version != V2 && info->version != STRUCT_VERSION(struct fabric_info, 3))
        return leave(ARGUMENT_VERSION_MISMATCH);
    if ((status = fetch_u32(__func__, &target, FABRIC_STATE, &state)) != OK)
        return leave(status);
    info->state = (unsigned char)state;
    info->status = info->clique = info->health = 0;
    fetch_u32(__func__, &target, FABRIC_STATUS, &info->status);
    fetch_u32(__func__, &target, FABRIC_CLIQUE, &info->clique);
    fetch_u32(__func__, &target, FABRIC_HEALTH, &info->health);
    put_uuid(target.device->text[TEXT_FABRIC_CLUSTER], info->cluster);
    if (info->version != V2)
        info->summary = HEALTHY;
    return leave(OK);
}

static int enter_two(const char *function, handle one, handle other, struct target targets[2])
{
    int status = enter_device(function, one, &targets[0]);
    if (status != OK)
        return status;
    unlock();
    return enter_device(function, other, &targets[1]);
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(handle one, handle other, u32 *level)
{
    enum { INTERNAL = 0, NODE = 40 };
    struct target targets[2];
    int status = enter_two(__func__, one, other, targets);
    if (status != OK)
        return status;
    *level = targets[0].gpu == targets[1].gpu ? INTERNAL : NODE;
    return leave(OK);
}

EXPORT int nvmlDeviceGetP2PStatus(handle one, handle other, u32 capability, u32 *result)
{
    enum { P2P_OK = 0, P2P_CHIPSET_NOT_SUPPORTED = 1 };
    struct target targets[2];
    u64 up[2];
    (void)capability;
    int status = enter_two(__func__, one, other, targets);
    if (status != OK)
        return status;
    bool linked = given(targets[0].device, LINK(0, LINK_STATE), &up[0]) &&
                  given(targets[1].device, LINK(0, LINK_STATE), &up[1]) && up[0] && up[1];
    *result = linked ? P2P_OK : P2P_CHIPSET_NOT_SUPPORTED;
    return leave(OK);
}

EXPORT int nvmlDeviceOnSameBoard(handle one, handle other, int *same)
{
    struct target targets[2];
    int status = enter_two(__func__, one, other, targets);
    if (status != OK)
        return status;
    *same = targets[0].gpu == targets[1].gpu;
    return leave(OK);
}
