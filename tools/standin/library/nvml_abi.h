/* NVML's binary interface, as far as the stand-in speaks it: numbers and struct layouts that
 * callers have compiled in. Names are our own; order, size and padding are NVML's. */
#ifndef STANDIN_NVML_ABI_H
#define STANDIN_NVML_ABI_H

#include <stdint.h>

typedef uintptr_t handle; /* an opaque pointer to callers; see device.c for what is in it */
typedef unsigned int u32;
typedef unsigned long long u64;

enum status {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    MEMORY = 20,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

#define NOT_AVAILABLE (~0ULL)
#define NO_INSTANCE 0xFFFFFFFFu
#define NO_PID 0xFFFFFFFFu /* of a sample while no process was active: NV2080_GPUMON_PID_INVALID */
#define STRUCT_VERSION(type, version) ((u32)(sizeof(type) | ((u32)(version) << 24)))

struct utilization {
    u32 gpu, memory;
};
struct memory {
    u64 total, free, used;
};
struct memory_v2 {
    u32 version;
    u64 total, reserved, free, used;
};
struct bar1_memory {
    u64 total, free, used;
};
struct violation_time {
    u64 reference_us, violation_ns;
};
struct temperature {
    u32 version;
    u32 sensor;
    int degrees;
};
struct margin_temperature {
    u32 version;
    int degrees;
};
/* nvmlGpuFabricInfo_v3_t; version 2 ends before the summary (nvml.h:3924-3951). */
struct fabric_info {
    u32 version;
    unsigned char cluster[16];
    u32 status, clique;
    unsigned char state;
    u32 health;
    unsigned char summary;
};
struct ecc_counts {
    u64 l1_cache, l2_cache, device_memory, register_file;
};
struct remap_banks {
    u32 max, high, partial, low, none;
};

struct pci_info {
    char bus_id_legacy[16];
    u32 domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct pci_info_v2 {
    char bus_id_legacy[16];
    u32 domain, bus, device, device_id, subsystem_id, reserved[4];
};
struct pci_info_ext {
    u32 version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct process_v1 {
    u32 pid;
    u64 memory;
};
struct process {
    u32 pid;
    u64 memory;
    u32 gpu_instance, compute_instance;
};
struct process_detail {
    u32 pid;
    u64 memory;
    u32 gpu_instance, compute_instance;
    u64 protected_memory;
};
struct process_details {
    u32 version, mode, count;
    struct process_detail *entries;
};
struct process_sample {
    u32 pid;
    u64 time_us;
    u32 sm, memory, encoder, decoder;
};
struct process_sample_info {
    u64 time_us;
    u32 pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct process_samples_info {
    u32 version, count;
    u64 last_seen_us;
    struct process_sample_info *entries;
};
struct accounting {
    u32 gpu_percent, memory_percent;
    u64 max_memory, time_ms, start_us;
    u32 running, reserved[5];
};
struct accounting_v2 {
    u32 pid, running, gpu_percent, memory_percent;
    u64 max_memory;
    u32 samples;
    u64 sum_gpu, sum_memory, time_ms, start_us;
};

union field_number {
    double real;
    int i;
    u32 u;
    unsigned long ul;
    u64 ull;
    long long ll;
};
struct field_value {
    u32 id, scope;
    long long time_us, latency_us;
    u32 type;
    u32 status;
    union field_number value;
};
enum field_type { TYPE_U32 = 1, TYPE_U64 = 3, TYPE_I32 = 5 };

struct event {
    handle device;
    u64 type, data;
    u32 gpu_instance, compute_instance;
};
#define EVENT_XID 0x8ULL
#define EVENTS_SUPPORTED 0x1FULL

struct gpm_metric {
    u32 id, status;
    double value;
    const char *short_name, *long_name, *unit;
};
struct gpm_metrics {
    u32 version, count;
    void *sample1, *sample2;
    struct gpm_metric metrics[];
};
struct gpm_support {
    u32 version, supported;
};

struct attributes {
    u32 multiprocessors, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    u64 memory_mib;
};
struct placement {
    u32 start, size;
};
struct gpu_instance_info {
    handle device;
    u32 id, profile_id;
    struct placement placement;
};
struct compute_instance_info {
    handle device, gpu_instance;
    u32 id, profile_id;
    struct placement placement;
};
struct gi_profile {
    u32 id, p2p, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    u64 memory_mib;
};
struct gi_profile_v2 {
    u32 version, id, p2p, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    u64 memory_mib;
    char name[96];
};
struct gi_profile_v3 {
    u32 version, id, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    u64 memory_mib;
    char name[96];
    u32 capabilities;
};
struct ci_profile {
    u32 id, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
};
struct ci_profile_v2 {
    u32 version, id, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    char name[96];
};

#endif
