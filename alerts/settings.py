"""Every setting of the rules, with its default and the source of the default."""

from alerts import xids
from alerts.model import RowSetting, Setting, Severity
from gputally.devices.vendors import READER_NAMES

SETTINGS: tuple[Setting, ...] = (
    Setting("job", "gputally", "The `job` label of the exporters."),
    Setting("scrape_interval", "15s", "Interval of the scrapes."),
    Setting("scrape_timeout", "10s", "Timeout of a scrape."),
    # availability
    Setting("gpu_count_window", "6h", "For how long GPUTallyGpusMissing reports a GPU that has disappeared."),
    Setting(
        "absence_window",
        "1d",
        "For how long a node or a cluster that has disappeared is missed.",
    ),
    Setting(
        "gpu_resources",
        "nvidia_com_.+|amd_com_.+|gpu_intel_com_.+",
        "Resources of GPUs, as kube-state-metrics writes them, by a regular expression.",
    ),
    Setting(
        "removal_taints",
        "ToBeDeletedByClusterAutoscaler|karpenter.sh/disrupt.*|aws-node-termination-handler/.+"
        "|cloud.google.com/impending-node-termination",
        "Taints of a node that is about to be removed, by a regular expression.",
        "Cluster Autoscaler, Karpenter, AWS Node Termination Handler and GKE",
    ),
    Setting("snapshot_stale_seconds", 300, "Age of a snapshot above which it is stale."),
    Setting(
        "clock_skew_seconds",
        60,
        "Allowed difference between the clocks of a node and of Prometheus, and the exporter's --interval.",
    ),
    # health
    Setting(
        "xid_critical",
        xids.codes(Severity.CRITICAL),
        "Critical XID codes: the GPU has to be reset or repaired.",
        "NVIDIA's XID catalogue requires an immediate reset or restart; DCGM fails a GPU for 48 and 74; the "
        "catalogue does not have 173 and 175 yet",
    ),
    Setting(
        "xid_warning",
        xids.codes(Severity.WARNING),
        "XID codes for working hours. 13, 31, 43 and 45 are program errors and belong in neither list; after "
        "144 to 146 GPUTallyRecoveryNeeded decides.",
        "NVIDIA's XID catalogue: contained or corrected by the GPU, and worth an investigation",
    ),
    Setting("xid_window_seconds", 3600, "For how long after an XID error its alert fires."),
    Setting("throttle_ratio", 0.5, "Share of 5 minutes in which the hardware reduced the clocks."),
    Setting("temperature_margin_celsius", 5, "Degrees below the GPU's own limit."),
    Setting(
        "memory_temperature_celsius",
        95,
        "Limit of the memory temperature of NVIDIA GPUs whose driver reports none.",
        "the limit that the driver reports for the HBM of an A100",
    ),
    Setting(
        "nvlink_crc_per_second",
        100,
        "CRC errors per second on all NVLinks of a GPU.",
        "DCGM: fewer on one link are noise",
    ),
    Setting(
        "link_recoveries",
        3,
        "Recoveries of a GPU's NVLinks within an hour or a day. Links without a fault have none.",
        "marin-community/marin#9086: 3 in 21 minutes on the link that failed after five days, 0 on others",
    ),
    Setting("link_window", "1d", "For how long an NVLink or XGMI link that went down is reported."),
    Setting("pcie_busy_ratio", 0.5, "Utilisation from which a PCIe link is expected at full speed."),
    Setting("pcie_window", "7d", "The time in which the best speed of a PCIe link is its usual one."),
    Setting(
        "pcie_replays_per_gigatransfer",
        0.06,
        "PCIe replays per minute, for each GT/s and lane.",
        "DCGM: 8 on 16 lanes of generation 3, 16 of generation 4, 31 of generation 5",
    ),
    Setting("nvlink_replays_per_minute", 60, "NVLink replays of a GPU per minute."),
    Setting("hang_utilization_ratio", 0.9, "Utilisation of a suspected hang: at least this all the time."),
    Setting(
        "hang_power_factor", 2.5, "Power of a suspected hang: below this multiple of the GPU's idle power."
    ),
    Setting(
        "hang_memory_ratio",
        0.05,
        "Memory utilisation of a suspected hang: below this all the time, where it is known.",
    ),
    Setting("ras_corrected_per_hour", 100, "Corrected errors of an AMD GPU per hour."),
    # exporter
    Setting(
        "optional_sources", "", "Sources that may fail without an alert, for example `kubernetes|relay`."
    ),
    Setting("value_errors", 10, "Failed values of one source in 15 minutes."),
    Setting("source_overruns", 3, "Samples of one source that exceeded --timeout in 15 minutes."),
    Setting(
        "ledger_tolerance_joules",
        1,
        "Allowed difference between the charges for a GPU and its energy counter.",
    ),
    Setting("scrape_slow_seconds", 5, "Allowed average duration of a scrape."),
    Setting("samples_max", 20000, "Samples in one scrape."),
    Setting("restarts_per_hour", 3, "Restarts of an exporter in an hour."),
    Setting("unobserved_ratio", 0.1, "Share of an hour's energy that was used between samples."),
    Setting(
        "unobserved_day_ratio", 0.05, "Share of a day's energy that was used while no exporter was running."
    ),
    # saturation
    Setting("memory_full_ratio", 0.95, "Share of a GPU's memory in use above which it is nearly full."),
    Setting(
        "leak_horizon_hours",
        4,
        "Growing memory is a leak if it is predicted to run out within so many hours.",
    ),
    # efficiency
    Setting(
        "exempt_namespaces",
        "",
        "Namespaces whose pods may hold idle GPUs, or use GPUs without a request, for example "
        "`kube-system|lab-.*`.",
    ),
    Setting("idle_busy_ratio", 0.01, "A pod that is busy for at most this share of the time is idle."),
    Setting(
        "idle_memory_mebibytes",
        256,
        "A pod whose GPU memory changes by more than this is not idle: it loads a model or data.",
    ),
    Setting(
        "idle_window",
        "1h",
        "For how long a pod may hold an idle GPU before its team is notified.",
        "Job Defense Shield's example: an e-mail after 60 minutes, the job is cancelled after 120",
    ),
    Setting("idle_long_window", "2h", "For how long a pod may hold an idle GPU before it is a warning."),
    Setting(
        "underused_busy_ratio",
        0.05,
        "A pod that is busy for at most this share of the time is underused.",
    ),
    Setting("underused_window", "4h", "The time over which underuse is measured."),
    Setting("unused_ratio", 0.25, "Share of a model's GPUs that were never allocated."),
    Setting("unused_window", "7d", "The time over which GPUs are regarded as never allocated."),
    # energy and cost
    Setting(
        "rate_window",
        "5m",
        "Range of the recorded rates of energy, held and busy time: at least four scrape intervals.",
    ),
    Setting(
        "currency", "USD", "Currency of all prices and budgets, as a code of ISO 4217; nothing is converted."
    ),
    Setting(
        "kwh_price",
        0.15,
        "Price of a kWh. An example: set your own; 0 if the price of a GPU-hour includes energy, as in a "
        "cloud.",
    ),
    Setting(
        "pue",
        1.0,
        "Power usage effectiveness: watts of the building per watt of a GPU; 1.0 charges no cooling.",
        "Uptime Institute's survey of 2023: the mean of data centres is 1.58; set your own",
    ),
    Setting(
        "co2_grams_per_kwh",
        445,
        "Grams of CO2 per kWh: set the value of your grid or contract.",
        "IEA, Electricity 2025: the global mean in 2024",
    ),
    Setting(
        "unknown_energy_ratio",
        0.1,
        "Allowed share of a node's energy that goes to processes without a known owner.",
    ),
    Setting(
        "energy_counter_ratio",
        0.1,
        "An energy counter that counts less than this share of the power is stuck.",
    ),
    # anomalies
    Setting("anomaly_deviations", 3, "Width of a band in usual deviations."),
    Setting(
        "anomaly_margin_ratio",
        0.5,
        "Minimum width of a band, as a share of its centre.",
        "grafana/promql-anomaly-detection",
    ),
    Setting(
        "anomaly_floor_ratio",
        0.1,
        "Minimum width of a band, as a share of the highest hour of the day, for series near 0.",
    ),
)

GPU_HOUR_PRICES = {
    "GB300": 1.60,
    "B300": 1.55,
    "GB200": 1.40,
    "B200": 1.30,
    "H200": 1.10,
    "GH200": 1.00,
    "H100": 0.90,
    "H800": 0.90,
    "A100": 0.45,
    "A800": 0.45,
    "H20": 0.40,
    "L40S": 0.30,
    "RTX PRO 6000 Blackwell": 0.30,
    "L40": 0.25,
    "RTX 6000 Ada Generation": 0.22,
    "A40": 0.16,
    "RTX A6000": 0.15,
    "V100": 0.12,
    "A30": 0.12,
    "A10": 0.10,
    "A10G": 0.10,
    "L4": 0.10,
    "A16": 0.10,
    "T4": 0.05,
    "MI355X": 1.00,
    "MI350X": 0.90,
    "MI325X": 0.70,
    "MI300X": 0.60,
    "MI300A": 0.60,
    "MI250X?": 0.20,
    "MI210": 0.20,
}
"""Roughly the price of the hardware over four years, without energy; of an MI250 for each of its two dies."""

TABLES: tuple[RowSetting, ...] = (
    RowSetting(
        "gpu_hour_prices",
        GPU_HOUR_PRICES,
        "Price of a GPU-hour by product, as in `H100` or `RTX A6000`: a regular expression on the whole "
        "name, without the vendor before it and the memory or form factor after it; of several matches the "
        "highest applies. A GPU without a row has no price. Examples: set your own.",
    ),
    RowSetting(
        "namespace_budgets",
        {},
        "Budget of a namespace for any 24 hours, per cluster, GPUs and energy together.",
    ),
    RowSetting(
        "node_power_budgets",
        {},
        "Power budget in watts for all GPUs of a node, by a regular expression on the node's name; of "
        "several matches the lowest applies.",
    ),
)

FIXED = {"device_sources": "|".join((*READER_NAMES, "simulated"))}
"""Placeholders of the rules that users do not change."""
