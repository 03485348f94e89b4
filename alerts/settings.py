"""Every threshold and setting of the rules, once, with its default and where that comes from."""

from alerts.model import Setting, Table
from gputally.config import READERS

SETTINGS: tuple[Setting, ...] = (
    Setting("job", "gputally", "The `job` label under which the exporters are scraped."),
    Setting("scrape_interval", "15s", "How often the exporters are scraped."),
    Setting("scrape_timeout", "10s", "How long a scrape may take."),
    # availability
    Setting("gpu_count_window", "6h", "How long a GPU that is no longer there is missed."),
    Setting("snapshot_stale_seconds", 300, "Age, or error of the clock, at which values are called stale."),
    # health
    Setting(
        "xid_critical",
        (46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 158),
        "XID codes that wake somebody: the GPU has to be reset or repaired.",
        "DCGM fails a GPU for 48, 64, 74, 79, 95, 119, 120 and 140; after the others, too, NVIDIA's XID "
        "catalog asks for a reset at once",
    ),
    Setting(
        "xid_warning",
        (54, 92, 94, 109, 144, 145, 146, 147, 148, 149, 150, 156, 157),
        "XID codes for working hours. 13, 31, 43 and 45 are errors of programs and belong in neither list.",
        "NVIDIA's XID catalog: contained, retired or corrected by the GPU, and to be looked into; it asks "
        "for a reset after 109, but one job that stalls can cause that",
    ),
    Setting("xid_window_seconds", 3600, "How long after an XID error its alert stays."),
    Setting("throttle_ratio", 0.5, "Share of 5 minutes for which hardware held the clocks down."),
    Setting("temperature_margin_celsius", 5, "Degrees left to the card's own limit."),
    Setting(
        "nvlink_crc_per_second",
        100,
        "CRC errors a second on one NVLink.",
        "DCGM: fewer do not matter",
    ),
    Setting("link_window", "1d", "How long an NVLink or XGMI link that went down is missed."),
    Setting("pcie_busy_ratio", 0.5, "Utilisation above which a PCIe link has no reason to be slow."),
    Setting("pcie_replays_per_minute", 8, "PCIe replays a minute.", "DCGM: the most that NVIDIA recommends"),
    Setting("hang_utilization_ratio", 0.9, "A GPU that hangs is never less busy than this..."),
    Setting("hang_power_ratio", 0.25, "... and never draws more than this share of its power limit."),
    Setting("ras_corrected_per_hour", 100, "Corrected errors of an AMD GPU in an hour."),
    # exporter
    Setting("optional_sources", "", "Sources that may fail without an alert, as in `kubernetes|relay`."),
    Setting("value_errors", 10, "Values of one source that failed in 15 minutes."),
    Setting("source_overruns", 3, "Looks at one source that were too slow in 15 minutes."),
    Setting("ledger_tolerance_joules", 1, "What the charges for a GPU may differ from its meter."),
    Setting("scrape_slow_seconds", 5, "How long a scrape may take on average."),
    Setting("samples_max", 20000, "Samples in one scrape."),
    Setting("restarts_per_hour", 3, "Restarts of an exporter in an hour."),
    Setting("unobserved_ratio", 0.1, "Share of an hour's energy, used while the exporter did not look."),
    # saturation
    Setting("memory_full_ratio", 0.95, "Share of a GPU's memory that is taken when it is nearly full."),
    Setting(
        "leak_horizon_hours", 4, "Within how many hours memory that grows must run out to be called a leak."
    ),
    # efficiency
    Setting(
        "exempt_namespaces",
        "",
        "Namespaces whose pods may hold GPUs idle, or use them without asking, as in `kube-system|lab-.*`.",
    ),
    Setting("idle_busy_ratio", 0.01, "A pod that is busy for no more than this part of the time is idle."),
    Setting(
        "idle_window",
        "1h",
        "How long a pod may hold a GPU idle before its team is told.",
        "Job Defense Shield's example: a first mail after 60 minutes, the job is cancelled after 120",
    ),
    Setting("idle_long_window", "2h", "How long a pod may hold a GPU idle before that is a warning."),
    Setting(
        "underused_busy_ratio",
        0.05,
        "A pod that is busy for no more than this part of the time is underused...",
    ),
    Setting("underused_window", "4h", "... over this long, even if it runs something now and then."),
    Setting("unused_ratio", 0.25, "Share of a model's GPUs that were free all the time..."),
    Setting("unused_window", "7d", "... for this long, before somebody is told."),
    # energy and cost
    Setting(
        "rate_window",
        "5m",
        "Over how long the recorded rates of energy, held and busy time are: at least four scrape intervals.",
    ),
    Setting(
        "gpu_hour_price",
        0.20,
        "Price of an hour of a GPU that no row of gpu_hour_prices is about. An example: set your own.",
    ),
    Setting(
        "kwh_price",
        0.15,
        "Price of a kWh. An example: set your own; 0 where the price of an hour has the energy in it, as a "
        "cloud's has.",
    ),
    Setting(
        "pue",
        1.0,
        "What the building draws for each watt of a GPU; 1.0 charges what the cards use, and no cooling.",
        "Uptime Institute's survey of 2023 has 1.58 as the mean of data centres: set your own",
    ),
    Setting(
        "co2_grams_per_kwh",
        445,
        "Grams of CO2 for each kWh: set that of your grid or contract.",
        "IEA, Electricity 2025: the world's mean in 2024",
    ),
    Setting(
        "unknown_energy_ratio", 0.1, "Share of a node's energy that may go to processes that cannot be named."
    ),
    Setting(
        "energy_counter_ratio",
        0.1,
        "An energy counter that counts less than this part of the power is stuck.",
    ),
    # anomalies
    Setting("anomaly_deviations", 3, "How many usual deviations from its past are no anomaly."),
    Setting(
        "anomaly_margin_ratio",
        0.5,
        "How much more or less than usual, as a share of it, is no anomaly.",
        "grafana/promql-anomaly-detection",
    ),
    Setting(
        "anomaly_floor_ratio", 0.1, "The same as a share of the highest hour of the day: for what is near 0."
    ),
)

TABLES: tuple[Table, ...] = (
    Table(
        "gpu_hour_prices",
        {
            ".*B200.*": 1.30,
            ".*H200.*": 1.10,
            ".*H100.*": 0.90,
            ".*A100.*": 0.45,
            ".*L40S.*": 0.30,
            ".*L4": 0.10,
            ".*T4": 0.05,
            ".*MI300X.*": 0.60,
        },
        "Price of an hour of a GPU, by a regular expression on its model; of several that match, the "
        "highest. Examples: roughly what a card costs, spread over four years, without energy. Set your own.",
    ),
    Table(
        "namespace_budgets",
        {},
        "What a namespace may cost in any 24 hours, in each cluster, GPUs and energy together.",
    ),
    Table(
        "node_power_budgets",
        {},
        "Watts that all GPUs of a node may draw together, by a regular expression on its name; of several "
        "that match, the lowest.",
    ),
)

FIXED = {"device_sources": "|".join(reader for reader in READERS if reader != "auto")}
"""Placeholders of the rules that users do not change."""
