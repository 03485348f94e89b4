/* Every value of a GPU that is one number or one text: its slot, its key in a scenario file, the field of
 * gputally.model that it is, and the NVML functions and fields that return it. tools/standin/raw.py reads the
 * rows of SINGLE_SLOTS, too. A new value is a row there, and one in GETTERS, FIELD_VALUES or GPM_METRICS. */
#ifndef STANDIN_SLOTS_H
#define STANDIN_SLOTS_H

enum { MAX_GPUS = 64, MAX_MIGS = 16, MAX_LINKS = 36, MAX_FANS = 16, MAX_XIDS = 32, MAX_FAULTS = 64 };

/* clang-format off */
/* Slot, key, field of the model (with its label), units of NVML per base unit: milliwatts per watt, percent
 * per ratio. NO_FIELD: raw.py, or a scenario written by hand, has another source for it. */
#define SINGLE_SLOTS(X) \
    X(MINOR_NUMBER, "minor_number", NO_FIELD, 0) \
    X(ARCHITECTURE, "architecture", NO_FIELD, 0) \
    X(BRAND, "brand", NO_FIELD, 0) \
    X(CC_MAJOR, "cc_major", NO_FIELD, 0) \
    X(CC_MINOR, "cc_minor", NO_FIELD, 0) \
    X(PCI_DEVICE_ID, "pci_device_id", NO_FIELD, 0) \
    X(PCI_SUBSYSTEM_ID, "pci_subsystem_id", NO_FIELD, 0) \
    X(LOST, "lost", NO_FIELD, 0) \
    X(ABSENT, "absent", NO_FIELD, 0) \
    X(UTIL_GPU, "util.gpu", gpu_utilization_ratio, 100) \
    X(UTIL_MEMORY, "util.memory", memory_utilization_ratio, 100) \
    X(UTIL_ENCODER, "util.encoder", encoder_utilization_ratio, 100) \
    X(UTIL_DECODER, "util.decoder", decoder_utilization_ratio, 100) \
    X(UTIL_JPEG, "util.jpeg", jpeg_utilization_ratio, 100) \
    X(UTIL_OFA, "util.ofa", ofa_utilization_ratio, 100) \
    X(MEMORY_TOTAL, "memory.total", memory_total_bytes, 1) \
    X(MEMORY_USED, "memory.used", memory_used_bytes, 1) \
    X(MEMORY_FREE, "memory.free", memory_free_bytes, 1) \
    X(MEMORY_RESERVED, "memory.reserved", memory_reserved_bytes, 1) \
    X(BAR1_TOTAL, "bar1.total", bar1_total_bytes, 1) \
    X(BAR1_USED, "bar1.used", bar1_used_bytes, 1) \
    X(BAR1_FREE, "bar1.free", bar1_free_bytes, 1) \
    X(POWER_USAGE, "power.usage", power_watts, 1000) \
    X(POWER_LIMIT, "power.limit", power_limit_watts, 1000) \
    X(POWER_ENFORCED, "power.enforced", power_enforced_limit_watts, 1000) \
    X(POWER_DEFAULT, "power.default", power_default_limit_watts, 1000) \
    X(POWER_MIN, "power.min", power_min_limit_watts, 1000) \
    X(POWER_MAX, "power.max", power_max_limit_watts, 1000) \
    X(ENERGY, "energy", energy_millijoules, 1) \
    X(POWER_MODULE, "power.module", NO_FIELD, 0) \
    X(ENERGY_MODULE, "energy.module", NO_FIELD, 0) \
    X(TEMP_GPU, "temp.gpu", temperature_celsius, 1) \
    X(TEMP_MEMORY, "temp.memory", memory_temperature_celsius, 1) \
    X(TEMP_SLOWDOWN, "temp.slowdown", temperature_slowdown_celsius, 1) \
    X(TEMP_SHUTDOWN, "temp.shutdown", temperature_shutdown_celsius, 1) \
    X(TEMP_MARGIN, "temp.margin", NO_FIELD, 0) \
    X(TEMP_MEMORY_MAX, "temp.memory_max", memory_temperature_limit_celsius, 1) \
    X(TEMP_GPU_MAX, "temp.gpu_max", NO_FIELD, 0) \
    X(TEMP_TLIMIT_SHUTDOWN, "temp.tlimit_shutdown", NO_FIELD, 0) \
    X(TEMP_TLIMIT_SLOWDOWN, "temp.tlimit_slowdown", temperature_slowdown_offset_celsius, 1) \
    X(PSTATE, "pstate", performance_state, 1) \
    X(THROTTLE_ACTIVE, "throttle.active", NO_FIELD, 0) \
    X(THROTTLE_SUPPORTED, "throttle.supported", NO_FIELD, 0) \
    X(VIOLATION_POWER, "violation.power", throttle_seconds[sw_power_cap], 1000000000) \
    X(VIOLATION_THERMAL, "violation.thermal", throttle_seconds[thermal], 1000000000) \
    X(VIOLATION_SYNC_BOOST, "violation.sync_boost", throttle_seconds[sync_boost], 1000000000) \
    X(VIOLATION_BOARD_LIMIT, "violation.board_limit", throttle_seconds[board_limit], 1000000000) \
    X(VIOLATION_LOW_UTILIZATION, "violation.low_utilization", throttle_seconds[low_utilization], 1000000000) \
    X(VIOLATION_RELIABILITY, "violation.reliability", throttle_seconds[reliability], 1000000000) \
    X(VIOLATION_APP_CLOCKS, "violation.app_clocks", throttle_seconds[app_clocks], 1000000000) \
    X(VIOLATION_BASE_CLOCKS, "violation.base_clocks", throttle_seconds[base_clocks], 1000000000) \
    X(VIOLATION_SW_THERMAL, "violation.sw_thermal", throttle_seconds[sw_thermal_slowdown], 1000000000) \
    X(VIOLATION_HW_THERMAL, "violation.hw_thermal", throttle_seconds[hw_thermal_slowdown], 1000000000) \
    X(VIOLATION_HW_POWER_BRAKE, "violation.hw_power_brake", throttle_seconds[hw_power_brake_slowdown], 1000000000) \
    X(RETIRED_SINGLE_BIT, "retired.single_bit", retired_pages[single_bit], 1) \
    X(RETIRED_DOUBLE_BIT, "retired.double_bit", retired_pages[double_bit], 1) \
    X(RETIRED_PENDING, "retired.pending", retired_pages_pending, 1) \
    X(REMAPPED_CORRECTABLE, "remapped.correctable", remapped_rows[correctable], 1) \
    X(REMAPPED_UNCORRECTABLE, "remapped.uncorrectable", remapped_rows[uncorrectable], 1) \
    X(REMAPPED_PENDING, "remapped.pending", remapped_rows_pending, 1) \
    X(REMAPPED_FAILURE, "remapped.failure", remapped_rows_failure, 1) \
    X(BANKS_MAX, "remap_banks.max", remap_banks[max], 1) \
    X(BANKS_HIGH, "remap_banks.high", remap_banks[high], 1) \
    X(BANKS_PARTIAL, "remap_banks.partial", remap_banks[partial], 1) \
    X(BANKS_LOW, "remap_banks.low", remap_banks[low], 1) \
    X(BANKS_NONE, "remap_banks.none", remap_banks[none], 1) \
    X(PCIE_GEN, "pcie.gen", pcie_generation, 1) \
    X(PCIE_GEN_MAX, "pcie.gen_max", pcie_generation_max, 1) \
    X(PCIE_GEN_MAX_DEVICE, "pcie.gen_max_device", pcie_generation_max, 1) \
    X(PCIE_WIDTH, "pcie.width", pcie_width, 1) \
    X(PCIE_WIDTH_MAX, "pcie.width_max", pcie_width_max, 1) \
    X(PCIE_REPLAYS, "pcie.replays", pcie_replays, 1) \
    X(PCIE_TX, "pcie.tx", pcie_throughput_bytes_per_second[tx], 1/1000) \
    X(PCIE_RX, "pcie.rx", pcie_throughput_bytes_per_second[rx], 1/1000) \
    X(RECOVERY_ACTION, "recovery_action", NO_FIELD, 0) \
    X(FABRIC_STATE, "fabric.state", fabric_state, 1) \
    X(FABRIC_STATUS, "fabric.status", fabric_status, 1) \
    X(FABRIC_CLIQUE, "fabric.clique", NO_FIELD, 0) \
    X(FABRIC_HEALTH, "fabric.health", NO_FIELD, 0) \
    X(PERSISTENCE, "persistence", persistence_mode, 1) \
    X(ACCOUNTING, "accounting", accounting_mode, 1) \
    X(ECC_MODE, "ecc_mode", ecc_mode, 1) \
    X(ECC_PENDING, "ecc_pending", ecc_mode, 1) \
    X(MIG_MODE, "mig_mode", mig_mode, 1) \
    X(MIG_PENDING, "mig_pending", mig_mode, 1) \
    X(MIG_MAX, "mig_max", NO_FIELD, 0) \
    X(COMPUTE_MODE, "compute_mode", NO_FIELD, 0) \
    X(SAMPLES, "samples", NO_FIELD, 0) \
    X(SAMPLES_RAW, "samples.raw", NO_FIELD, 0) \
    X(PROCESSES, "processes", NO_FIELD, 0) \
    X(GI, "gi", NO_FIELD, 0) \
    X(CI, "ci", NO_FIELD, 0) \
    X(GI_SLICES, "gi_slices", NO_FIELD, 0) \
    X(CI_SLICES, "ci_slices", NO_FIELD, 0) \
    X(PROFILE_ID, "profile_id", NO_FIELD, 0) \
    X(MULTIPROCESSORS, "multiprocessors", multiprocessors, 1) \
    X(GPM_GRAPHICS, "gpm.graphics", graphics_active_ratio, 100) \
    X(GPM_SM, "gpm.sm", sm_active_ratio, 100) \
    X(GPM_OCCUPANCY, "gpm.occupancy", sm_occupancy_ratio, 100) \
    X(GPM_TENSOR, "gpm.tensor", tensor_active_ratio, 100) \
    X(GPM_DRAM, "gpm.dram", dram_active_ratio, 100) \
    X(GPM_FP64, "gpm.fp64", fp64_active_ratio, 100) \
    X(GPM_FP32, "gpm.fp32", fp32_active_ratio, 100) \
    X(GPM_FP16, "gpm.fp16", fp16_active_ratio, 100) \
    X(GPM_PCIE_TX, "gpm.pcie_tx", pcie_throughput_bytes_per_second[tx], 1/1048576) \
    X(GPM_PCIE_RX, "gpm.pcie_rx", pcie_throughput_bytes_per_second[rx], 1/1048576)

/* Functions that return one slot (as 32 or 64 bits; ENGINE: with its sampling period), or two. */
#define GETTERS(U32, U64, ENGINE, TWO) \
    U32(nvmlDeviceGetMinorNumber, MINOR_NUMBER) \
    U32(nvmlDeviceGetArchitecture, ARCHITECTURE) \
    U32(nvmlDeviceGetBrand, BRAND) \
    U32(nvmlDeviceGetPowerUsage, POWER_USAGE) \
    U32(nvmlDeviceGetPowerManagementLimit, POWER_LIMIT) \
    U32(nvmlDeviceGetEnforcedPowerLimit, POWER_ENFORCED) \
    U32(nvmlDeviceGetPowerManagementDefaultLimit, POWER_DEFAULT) \
    U32(nvmlDeviceGetPerformanceState, PSTATE) \
    U32(nvmlDeviceGetPowerState, PSTATE) \
    U32(nvmlDeviceGetPersistenceMode, PERSISTENCE) \
    U32(nvmlDeviceGetComputeMode, COMPUTE_MODE) \
    U32(nvmlDeviceGetDefaultEccMode, ECC_MODE) \
    U32(nvmlDeviceGetCurrPcieLinkGeneration, PCIE_GEN) \
    U32(nvmlDeviceGetMaxPcieLinkGeneration, PCIE_GEN_MAX) \
    U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, PCIE_GEN_MAX_DEVICE) \
    U32(nvmlDeviceGetCurrPcieLinkWidth, PCIE_WIDTH) \
    U32(nvmlDeviceGetMaxPcieLinkWidth, PCIE_WIDTH_MAX) \
    U32(nvmlDeviceGetPcieReplayCounter, PCIE_REPLAYS) \
    U64(nvmlDeviceGetCurrentClocksEventReasons, THROTTLE_ACTIVE) \
    U64(nvmlDeviceGetCurrentClocksThrottleReasons, THROTTLE_ACTIVE) \
    U64(nvmlDeviceGetSupportedClocksEventReasons, THROTTLE_SUPPORTED) \
    U64(nvmlDeviceGetSupportedClocksThrottleReasons, THROTTLE_SUPPORTED) \
    ENGINE(nvmlDeviceGetEncoderUtilization, UTIL_ENCODER) \
    ENGINE(nvmlDeviceGetDecoderUtilization, UTIL_DECODER) \
    ENGINE(nvmlDeviceGetJpgUtilization, UTIL_JPEG) \
    ENGINE(nvmlDeviceGetOfaUtilization, UTIL_OFA) \
    TWO(nvmlDeviceGetPowerManagementLimitConstraints, POWER_MIN, POWER_MAX) \
    TWO(nvmlDeviceGetCudaComputeCapability, CC_MAJOR, CC_MINOR) \
    TWO(nvmlDeviceGetEccMode, ECC_MODE, ECC_PENDING) \
    TWO(nvmlDeviceGetMigMode, MIG_MODE, MIG_PENDING)

/* nvmlDeviceGetFieldValues: field id, slot, type of the value. */
#define FIELD_VALUES(X) \
    X(1, ECC_MODE, U32) \
    X(2, ECC_PENDING, U32) \
    X(29, RETIRED_SINGLE_BIT, U32) \
    X(30, RETIRED_DOUBLE_BIT, U32) \
    X(31, RETIRED_PENDING, U32) \
    X(74, VIOLATION_POWER, U64) \
    X(75, VIOLATION_THERMAL, U64) \
    X(76, VIOLATION_SYNC_BOOST, U64) \
    X(77, VIOLATION_BOARD_LIMIT, U64) \
    X(78, VIOLATION_LOW_UTILIZATION, U64) \
    X(79, VIOLATION_RELIABILITY, U64) \
    X(80, VIOLATION_APP_CLOCKS, U64) \
    X(81, VIOLATION_BASE_CLOCKS, U64) \
    X(82, TEMP_MEMORY, U32) \
    X(94, PCIE_REPLAYS, U32) \
    X(142, REMAPPED_CORRECTABLE, U32) \
    X(143, REMAPPED_UNCORRECTABLE, U32) \
    X(144, REMAPPED_PENDING, U32) \
    X(145, REMAPPED_FAILURE, U32) \
    X(185, POWER_USAGE, U32) \
    X(186, POWER_USAGE, U32) \
    X(187, POWER_MIN, U32) \
    X(188, POWER_MAX, U32) \
    X(189, POWER_DEFAULT, U32) \
    X(190, POWER_ENFORCED, U32) \
    X(191, ENERGY, U64) \
    X(192, POWER_LIMIT, U32) \
    X(193, TEMP_TLIMIT_SHUTDOWN, I32) \
    X(194, TEMP_TLIMIT_SLOWDOWN, I32) \
    X(230, RECOVERY_ACTION, U32) \
    X(269, VIOLATION_SW_THERMAL, U64) \
    X(270, VIOLATION_HW_THERMAL, U64) \
    X(271, VIOLATION_HW_POWER_BRAKE, U64)

/* GPM: metric id, slot, short and long name. */
#define GPM_METRICS(X) \
    X(1, GPM_GRAPHICS, "graphics_util", "Graphics Engine Utilization") \
    X(2, GPM_SM, "sm_util", "SM Utilization") \
    X(3, GPM_OCCUPANCY, "sm_occupancy", "SM Occupancy") \
    X(5, GPM_TENSOR, "any_tensor_util", "Tensor Core Utilization") \
    X(10, GPM_DRAM, "dram_bw_util", "DRAM Bandwidth Utilization") \
    X(11, GPM_FP64, "fp64_util", "FP64 Utilization") \
    X(12, GPM_FP32, "fp32_util", "FP32 Utilization") \
    X(13, GPM_FP16, "fp16_util", "FP16 Utilization") \
    X(20, GPM_PCIE_TX, "pcie_tx", "PCIe TX") \
    X(21, GPM_PCIE_RX, "pcie_rx", "PCIe RX")

#define TEXT_SLOTS(X) \
    X(UUID, "uuid") \
    X(NAME, "name") \
    X(SERIAL, "serial") \
    X(VBIOS, "vbios") \
    X(PCI_BUS_ID, "pci_bus_id") \
    X(BOARD_PART, "board_part") \
    X(FABRIC_CLUSTER, "fabric.cluster") \
    X(PROFILE, "profile")
/* clang-format on */

/* Families of keys: nvlink.<link>.<counter>, ecc.<type>.<lifetime>.<location>, clock.<domain>, fan.<n>. */
enum link_counter {
    LINK_STATE,
    LINK_VERSION,
    LINK_SPEED,
    LINK_TX,
    LINK_RX,
    LINK_REPLAY,
    LINK_RECOVERY,
    LINK_CRC_FLIT,
    LINK_CRC_DATA,
    LINK_ECC_DATA,
    LINK_MALFORMED,
    LINK_OVERRUN,
    LINK_RECEIVE,
    LINK_RECEIVE_REMOTE,
    LINK_RECEIVE_GENERAL,
    LINK_INTEGRITY,
    LINK_DISCARD,
    LINK_RECOVERED,
    LINK_RECOVERY_FAILED,
    LINK_RECOVERIES,
    LINK_EFFECTIVE,
    LINK_SYMBOL,
    LINK_COUNTERS
};
enum { ECC_TYPES = 2, ECC_LIFETIMES = 2, ECC_LOCATIONS = 9, CLOCK_KINDS = 4, CLOCK_DOMAINS = 4 };

enum slot {
#define X(name, key, field, factor) name,
    SINGLE_SLOTS(X)
#undef X
        CLOCKS,
    ECC = CLOCKS + CLOCK_KINDS * CLOCK_DOMAINS,
    FANS = ECC + ECC_TYPES * ECC_LIFETIMES * ECC_LOCATIONS,
    LINKS = FANS + MAX_FANS,
    SLOTS = LINKS + MAX_LINKS * LINK_COUNTERS
};
enum text_slot {
#define X(name, key) TEXT_##name,
    TEXT_SLOTS(X)
#undef X
        TEXTS
};
enum clock_kind { CLOCK_NOW, CLOCK_MAX, CLOCK_APP, CLOCK_APP_DEFAULT };

#define CLOCK(kind, domain) (CLOCKS + (kind) * CLOCK_DOMAINS + (domain))
/* location 0 is the total; NVML's own location numbers come after it */
#define ECC_SLOT(type, lifetime, location) \
    (ECC + ((type) * ECC_LIFETIMES + (lifetime)) * ECC_LOCATIONS + (location))
#define LINK(link, counter) (LINKS + (link) * LINK_COUNTERS + (counter))

#endif
