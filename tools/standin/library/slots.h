/* Everything that a scenario can say of a GPU in one number or one text, and where it is kept. */
#ifndef STANDIN_SLOTS_H
#define STANDIN_SLOTS_H

enum { MAX_GPUS = 64, MAX_MIGS = 16, MAX_LINKS = 36, MAX_FANS = 16, MAX_XIDS = 32, MAX_FAULTS = 64 };

/* clang-format off */
/* Keys that hold one number, and keys that hold a text: the name here, the key in the file. */
#define SINGLE_SLOTS(X) \
    X(MINOR_NUMBER, "minor_number") \
    X(ARCHITECTURE, "architecture") \
    X(BRAND, "brand") \
    X(CC_MAJOR, "cc_major") \
    X(CC_MINOR, "cc_minor") \
    X(PCI_DEVICE_ID, "pci_device_id") \
    X(PCI_SUBSYSTEM_ID, "pci_subsystem_id") \
    X(LOST, "lost") \
    X(ABSENT, "absent") \
    X(UTIL_GPU, "util.gpu") \
    X(UTIL_MEMORY, "util.memory") \
    X(UTIL_ENCODER, "util.encoder") \
    X(UTIL_DECODER, "util.decoder") \
    X(UTIL_JPEG, "util.jpeg") \
    X(UTIL_OFA, "util.ofa") \
    X(MEMORY_TOTAL, "memory.total") \
    X(MEMORY_USED, "memory.used") \
    X(MEMORY_FREE, "memory.free") \
    X(MEMORY_RESERVED, "memory.reserved") \
    X(BAR1_TOTAL, "bar1.total") \
    X(BAR1_USED, "bar1.used") \
    X(BAR1_FREE, "bar1.free") \
    X(POWER_USAGE, "power.usage") \
    X(POWER_LIMIT, "power.limit") \
    X(POWER_ENFORCED, "power.enforced") \
    X(POWER_DEFAULT, "power.default") \
    X(POWER_MIN, "power.min") \
    X(POWER_MAX, "power.max") \
    X(ENERGY, "energy") \
    X(TEMP_GPU, "temp.gpu") \
    X(TEMP_MEMORY, "temp.memory") \
    X(TEMP_SLOWDOWN, "temp.slowdown") \
    X(TEMP_SHUTDOWN, "temp.shutdown") \
    X(TEMP_MARGIN, "temp.margin") \
    X(TEMP_MEMORY_MAX, "temp.memory_max") \
    X(TEMP_GPU_MAX, "temp.gpu_max") \
    X(TEMP_TLIMIT_SHUTDOWN, "temp.tlimit_shutdown") \
    X(TEMP_TLIMIT_SLOWDOWN, "temp.tlimit_slowdown") \
    X(PSTATE, "pstate") \
    X(THROTTLE_ACTIVE, "throttle.active") \
    X(THROTTLE_SUPPORTED, "throttle.supported") \
    X(VIOLATION_POWER, "violation.power") \
    X(VIOLATION_THERMAL, "violation.thermal") \
    X(VIOLATION_SYNC_BOOST, "violation.sync_boost") \
    X(VIOLATION_BOARD_LIMIT, "violation.board_limit") \
    X(VIOLATION_LOW_UTILIZATION, "violation.low_utilization") \
    X(VIOLATION_RELIABILITY, "violation.reliability") \
    X(VIOLATION_APP_CLOCKS, "violation.app_clocks") \
    X(VIOLATION_BASE_CLOCKS, "violation.base_clocks") \
    X(VIOLATION_SW_THERMAL, "violation.sw_thermal") \
    X(VIOLATION_HW_THERMAL, "violation.hw_thermal") \
    X(VIOLATION_HW_POWER_BRAKE, "violation.hw_power_brake") \
    X(RETIRED_SINGLE_BIT, "retired.single_bit") \
    X(RETIRED_DOUBLE_BIT, "retired.double_bit") \
    X(RETIRED_PENDING, "retired.pending") \
    X(REMAPPED_CORRECTABLE, "remapped.correctable") \
    X(REMAPPED_UNCORRECTABLE, "remapped.uncorrectable") \
    X(REMAPPED_PENDING, "remapped.pending") \
    X(REMAPPED_FAILURE, "remapped.failure") \
    X(BANKS_MAX, "remap_banks.max") \
    X(BANKS_HIGH, "remap_banks.high") \
    X(BANKS_PARTIAL, "remap_banks.partial") \
    X(BANKS_LOW, "remap_banks.low") \
    X(BANKS_NONE, "remap_banks.none") \
    X(PCIE_GEN, "pcie.gen") \
    X(PCIE_GEN_MAX, "pcie.gen_max") \
    X(PCIE_GEN_MAX_DEVICE, "pcie.gen_max_device") \
    X(PCIE_WIDTH, "pcie.width") \
    X(PCIE_WIDTH_MAX, "pcie.width_max") \
    X(PCIE_REPLAYS, "pcie.replays") \
    X(PCIE_TX, "pcie.tx") \
    X(PCIE_RX, "pcie.rx") \
    X(RECOVERY_ACTION, "recovery_action") \
    X(PERSISTENCE, "persistence") \
    X(ACCOUNTING, "accounting") \
    X(ECC_MODE, "ecc_mode") \
    X(ECC_PENDING, "ecc_pending") \
    X(MIG_MODE, "mig_mode") \
    X(MIG_PENDING, "mig_pending") \
    X(MIG_MAX, "mig_max") \
    X(COMPUTE_MODE, "compute_mode") \
    X(SAMPLES, "samples") \
    X(PROCESSES, "processes") \
    X(GI, "gi") \
    X(CI, "ci") \
    X(GI_SLICES, "gi_slices") \
    X(CI_SLICES, "ci_slices") \
    X(PROFILE_ID, "profile_id") \
    X(MULTIPROCESSORS, "multiprocessors") \
    X(GPM_GRAPHICS, "gpm.graphics") \
    X(GPM_SM, "gpm.sm") \
    X(GPM_OCCUPANCY, "gpm.occupancy") \
    X(GPM_TENSOR, "gpm.tensor") \
    X(GPM_DRAM, "gpm.dram") \
    X(GPM_FP64, "gpm.fp64") \
    X(GPM_FP32, "gpm.fp32") \
    X(GPM_FP16, "gpm.fp16")

#define TEXT_SLOTS(X) \
    X(UUID, "uuid") \
    X(NAME, "name") \
    X(SERIAL, "serial") \
    X(VBIOS, "vbios") \
    X(PCI_BUS_ID, "pci_bus_id") \
    X(BOARD_PART, "board_part") \
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
#define X(name, key) name,
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
