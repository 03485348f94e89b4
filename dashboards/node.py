"""One node and its GPUs: owners, utilisation, power, temperature, links and errors."""

from dashboards import Json, fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, now, over_time, rows, stat, state_timeline, timeseries
from dashboards.queries import BY_GPU, MATCH_GPU, MATCH_NODE
from dashboards.tables import alert_list, column, hidden_columns, share_column, table, value_columns
from dashboards.variables import CLUSTER, Variable

_ONE_NODE = Variable("node", "Node", 'gputally_gpu_info{cluster=~"$cluster"}', multi=False)
_GPU = Variable("gpu", "GPU", f"gputally_gpu_info{{{MATCH_NODE}}}")


_YES_IS_BAD = fields.value_texts({0: ("no", palette.CLEAR), 1: ("yes", palette.CRITICAL)})
_STATES = {
    4: ("lost", palette.CRITICAL),
    3: ("throttled by hardware", palette.WARNING),
    2: ("held, idle", palette.IDLE),
    1: ("busy", palette.BUSY),
    0: ("free", palette.FREE),
}
_THROTTLE = {
    "hw_power_brake_slowdown": (8, "power brake", palette.CRITICAL),
    "hw_thermal_slowdown": (7, "thermal (hardware)", palette.CRITICAL),
    "hw_slowdown": (6, "slowdown (hardware)", palette.WARNING),
    "sw_thermal_slowdown": (5, "thermal (driver)", palette.IDLE),
    "sw_power_cap": (4, "power limit", palette.HELD),
}
"""Reasons for limited clocks, most severe first; an idle GPU and settings of users are left out."""
_ON_OFF = {0: ("off", palette.FREE), 1: ("on", palette.GOOD)}
_ACTIONS = {
    "none": (0, "none", palette.GOOD),
    "drain_p2p": (1, "drain peer-to-peer traffic", palette.IDLE),
    "recover_imex_domain": (2, "recover the IMEX domain", palette.IDLE),
    "drain_and_reset": (3, "drain and reset", palette.WARNING),
    "gpu_reset": (4, "reset the GPU", palette.WARNING),
    "bus_reset": (5, "reset the bus", palette.CRITICAL),
    "node_reboot": (6, "reboot the node", palette.CRITICAL),
    "system_reboot": (7, "reboot the system", palette.CRITICAL),
}


def _of(metric: str, *matchers: str, by: str = "gpu", how: str = "max") -> str:
    """One series per GPU, or per combination of the labels in `by`."""
    return f"{how} by ({by}) (gputally_gpu_{metric}{{{', '.join((MATCH_GPU, *matchers))}}})"


def _rate(metric: str, *matchers: str, by: str = "gpu") -> str:
    selected = f"gputally_gpu_{metric}{{{', '.join((MATCH_GPU, *matchers))}}}"
    return f"sum by ({by}) (rate({selected}[$__rate_interval]))"


def _increase(metric: str, *matchers: str, by: str = "gpu") -> str:
    chosen = f"gputally_gpu_{metric}{{{', '.join((MATCH_GPU, *matchers))}}}"
    return f"sum by ({by}) (increase({chosen}[$__rate_interval]))"


def _all(metric: str, how: str) -> str:
    return f"{how}(max by ({BY_GPU}) (gputally_gpu_{metric}{{{MATCH_GPU}}}))"


def _coded(metric: str, label: str, codes: dict[str, tuple[int, str, str]]) -> str:
    """One number per GPU: the highest code of its active states, 0 without any."""
    parts = (
        f'(gputally_gpu_{metric}{{{MATCH_GPU}, {label}="{value}"}} == 1) * {code}'
        for value, (code, _, _) in codes.items()
    )
    return f"max by (gpu) ({' or '.join(parts)} or gputally_gpu_{metric}{{{MATCH_GPU}}} * 0)"


def _state() -> str:
    hardware = f'gputally_gpu_throttle_active{{{MATCH_GPU}, reason=~"hw_.+"}}'
    return (
        f"(max by (gpu) (gputally_gpu_up{{{MATCH_GPU}}}) == 0) + 4"
        f" or (max by (gpu) ({hardware}) == 1) * 3"
        f" or (max by (gpu) (device:gputally_utilization:ratio{{{MATCH_GPU}}}) > 0.01) * 0 + 1"
        f" or (max by (gpu) (device:gputally_held:gpus{{{MATCH_GPU}}}) > 0) * 0 + 2"
        f" or max by (gpu) (gputally_gpu_up{{{MATCH_GPU}}}) * 0"
    )


def _links_down(kind: str) -> str:
    return f'max by (gpu) (gputally_gpu_{kind}{{state="down", {MATCH_GPU}}})'


def _owners(of_pod: str, of_host: str, of_unknown: str = "") -> str:
    """The series of pods, of owners that are not pods, and of unattributed processes."""
    found = [
        f'label_replace(sum by (gpu, namespace, pod) ({of_pod}), "owner", "$1", "pod", "(.*)")',
        f"sum by (gpu, owner) ({of_host})",
    ]
    if of_unknown:
        unknown = f"sum by (gpu, reason) ({of_unknown})"
        found.append(f'label_replace({unknown}, "owner", "unattributed: $1", "reason", "(.*)")')
    return " or ".join(found)


def _line_per_gpu(
    title: str,
    description: str,
    expr: str,
    unit: str,
    *,
    width: int = 8,
    most: float | None = None,
    steps: Json | None = None,
) -> Panel:
    """A graph with one line per GPU."""
    return timeseries(
        title,
        description,
        over_time(expr, "GPU {{gpu}}"),
        unit=unit,
        width=width,
        height=7,
        most=most,
        steps=steps,
        fill=0,
        legend="bottom",
        calcs=(),
    )


_WITH_MODEL = (
    f"label_replace(max by (node, gpu, model) (gputally_gpu_info{{{MATCH_GPU}}})"
    " * on (node, gpu) group_left () "
    + _of("up", by="node, gpu")
    + ', "model", "$1", "model", "(?:NVIDIA|AMD) (.+)")'
)
_IDENTITY = (
    "gpu",
    "model",
    "serial",
    "pci_bus_id",
    "vbios_version",
    "driver_version",
    "cuda_version",
    "energy_source",
)
_NO_LINKS = "No NVLink or XGMI links"
_ONLY_THIS_GPU = links.by_row("Show only this GPU", "node", "gpu", node="node")

DASHBOARD = dashboard(
    "node",
    "Node and GPU",
    "One node and its GPUs: owners, utilisation, power, temperature, links and errors.",
    row(
        "",
        stat(
            "GPUs",
            "GPUs of this node that are up, and lost GPUs: detected, but no longer readable. Normal is 0 "
            "lost. Work on a lost GPU has failed: drain the node.",
            now(_all("up", "sum"), "up"),
            now(f"{_all('up', 'count')} - {_all('up', 'sum')}", "lost"),
            unit="short",
            width=3,
            steps=fields.NO_COLOUR,
            overrides=(fields.override("lost", thresholds=fields.CELL_ANY_IS_CRITICAL),),
            background=True,
        ),
        stat(
            "Utilisation",
            "Mean share of time during which the GPUs ran a kernel. Above 60 % is good; below 30 %, they "
            "mostly wait.",
            over_time(_all("utilization_ratio", "avg")),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
            sparkline=True,
        ),
        stat(
            "Memory",
            "Share of the device memory in use. From 95 % on, the next allocation can fail.",
            over_time(f"{_all('memory_used_bytes', 'sum')} / {_all('memory_total_bytes', 'sum')}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.thresholds((0.95, palette.CRITICAL), base=palette.MEMORY),
            sparkline=True,
        ),
        stat(
            "Power",
            "Present power draw of all GPUs of the node. Compare it with its power supply and cooling.",
            over_time(_all("power_watts", "sum")),
            unit="watt",
            width=3,
            steps=fields.POWER,
            sparkline=True,
        ),
        stat(
            "Max temp.",
            "Highest core temperature. Most GPUs slow down between 85 and 95 degrees. Check fans and air "
            "flow if it stays above 85.",
            over_time(_all("temperature_celsius", "max")),
            unit="celsius",
            width=3,
            decimals=0,
            steps=fields.HOT,
            sparkline=True,
        ),
        stat(
            "Idle GPUs",
            "Held GPUs without activity, averaged over time. Near 0 is good; the dashboard Idle GPUs lists "
            "the pods that hold them.",
            over_time(
                f"sum(clamp_min(device:gputally_held:gpus{{{MATCH_GPU}}}"
                f" - device:gputally_busy:gpus{{{MATCH_GPU}}}, 0))"
            ),
            unit="short",
            width=3,
            decimals=1,
            steps=fields.ANY_IS_IDLE,
            sparkline=True,
            links=(links.link("Idle GPUs", "idle"),),
        ),
        stat(
            "Cost/hour",
            "Present cost per hour of the node, GPU time and energy, at the prices set in the rules.",
            over_time(f"sum(node:gputally_cost:per_hour{{{MATCH_NODE}}})"),
            unit="short",
            width=3,
            decimals=2,
            sparkline=True,
        ),
        stat(
            "Data age",
            "Time since the last sample of the exporter on this node. Above one minute, this page shows "
            "old data: see the dashboard Exporter.",
            now(f"time() - max(gputally_snapshot_timestamp_seconds{{{MATCH_NODE}}})"),
            unit="s",
            width=3,
            decimals=0,
            steps=fields.thresholds((60, palette.WARNING), (300, palette.CRITICAL)),
            links=(links.link("Exporter", "exporter", node="$node"),),
        ),
        table(
            "GPUs now",
            "State of each GPU. High utilisation at low power can be a hung job; a hot GPU slows down.",
            rows(_WITH_MODEL),
            rows(f"max by (node, gpu) (device:gputally_utilization:ratio{{{MATCH_GPU}}})"),
            rows(f"{_of('memory_used_bytes', by='node, gpu')} / {_of('memory_total_bytes', by='node, gpu')}"),
            rows(_of("power_watts", by="node, gpu")),
            rows(f"{_of('power_watts', by='node, gpu')} / {_of('power_limit_watts', by='node, gpu')}"),
            rows(_of("temperature_celsius", by="node, gpu")),
            columns=(
                column("gpu", name="GPU", width=45, link=_ONLY_THIS_GPU),
                column("model", name="Model", width=120),
                column(
                    "Value #A",
                    name="State",
                    width=55,
                    mappings=fields.value_texts({0: ("lost", palette.CRITICAL), 1: ("up", palette.CLEAR)}),
                ),
                share_column("Value #B", "Utilisation"),
                share_column("Value #C", "Memory"),
                column("Value #D", name="Power", unit="watt", decimals=0, width=65),
                share_column("Value #E", "Of limit"),
                column("Value #F", name="Core", unit="celsius", decimals=0, width=60, steps=fields.CELL_HOT),
                *hidden_columns("node"),
            ),
            order=("gpu", "model", *value_columns(6)),
            width=12,
            height=10,
        ),
        table(
            "GPU owners",
            "Pods, host processes and unattributed processes on each GPU. Check unattributed owners, and "
            "memory that stays allocated without SM time.",
            rows(
                _owners(
                    f"gputally_pod_processes{{{MATCH_GPU}}}",
                    f"gputally_host_processes{{{MATCH_GPU}}}",
                    f"gputally_gpu_unattributed_processes{{{MATCH_GPU}}}",
                )
            ),
            rows(
                _owners(
                    f"gputally_pod_sm_utilization_ratio{{{MATCH_GPU}}}",
                    f"gputally_host_sm_utilization_ratio{{{MATCH_GPU}}}",
                    f"gputally_gpu_unattributed_sm_utilization_ratio{{{MATCH_GPU}}}",
                )
            ),
            rows(
                _owners(
                    f"gputally_pod_memory_used_bytes{{{MATCH_GPU}}}",
                    f"gputally_host_memory_used_bytes{{{MATCH_GPU}}}",
                    f"gputally_gpu_unattributed_memory_used_bytes{{{MATCH_GPU}}}",
                )
            ),
            rows(
                _owners(
                    f"rate(gputally_pod_energy_joules_total{{{MATCH_GPU}}}[$__rate_interval])",
                    f"rate(gputally_host_energy_joules_total{{{MATCH_GPU}}}[$__rate_interval])",
                )
            ),
            columns=(
                column("gpu", name="GPU", width=50),
                column("namespace", name="Namespace", width=100, link=links.TO_POD),
                column("owner", name="Pod or owner"),
                column("Value #A", name="Processes", width=92),
                share_column("Value #B", "SM time", width=90),
                column("Value #C", name="Memory", unit="bytes", width=80),
                column("Value #D", name="Power", unit="watt", decimals=0, width=65),
                *hidden_columns("pod"),
            ),
            hidden=("reason",),
            sort_by="GPU",
            ascending=True,
            order=("gpu", "namespace", "owner", *value_columns(4)),
            width=12,
            height=10,
        ),
        state_timeline(
            "GPU state",
            "State of each GPU over time. Blue: busy. Yellow: held and idle. Grey: free. Check orange "
            "(slowed down by the hardware) and red (lost).",
            over_time(_state(), "GPU {{gpu}}"),
            mappings=fields.value_texts(_STATES),
            width=12,
            height=8,
        ),
        state_timeline(
            "Clock limits",
            "The most severe reason why the clocks of each GPU are limited. The power limit is normal "
            "under load; a thermal slowdown or a power brake needs a check of cooling or power supply.",
            over_time(_coded("throttle_active", "reason", _THROTTLE), "GPU {{gpu}}"),
            mappings=fields.value_texts(
                {0: ("none", palette.GOOD)}
                | {code: (word, color) for code, word, color in _THROTTLE.values()}
            ),
            width=12,
            height=8,
        ),
    ),
    row(
        "Utilisation",
        _line_per_gpu(
            "Utilisation",
            "Share of time during which a kernel ran. It does not show how much of the GPU the kernel "
            "used: compare it with the active units and with the power.",
            _of("utilization_ratio"),
            "percentunit",
            most=1,
        ),
        _line_per_gpu(
            "Memory used",
            "Device memory allocated by processes. A line that only grows can be a memory leak.",
            _of("memory_used_bytes"),
            "bytes",
        ),
        timeseries(
            "Active units",
            "Share of time during which each unit of the chip was active, mean of the chosen GPUs (NVIDIA "
            "Hopper and newer). Training that rarely uses the tensor cores often runs faster with "
            "mixed precision.",
            *(
                over_time(f"avg({_of(f'{metric}_active_ratio')})", name)
                for metric, name in (
                    ("sm", "multiprocessors"),
                    ("tensor", "tensor cores"),
                    ("dram", "memory interface"),
                )
            ),
            unit="percentunit",
            most=1,
            width=8,
            height=7,
            legend="bottom",
            calcs=(),
            no_value="Not supported by these GPUs",
            fill=0,
        ),
    ),
    row(
        "Power and temperature",
        _line_per_gpu(
            "Power",
            "Power draw of each GPU. Near the limit is normal under load; far below it at full "
            "utilisation, the job waits or hangs.",
            _of("power_watts"),
            "watt",
        ),
        _line_per_gpu(
            "Temperature",
            "Core temperature of each GPU. Most GPUs slow down between 85 and 95 degrees.",
            _of("temperature_celsius"),
            "celsius",
            steps=fields.HOT,
        ),
        _line_per_gpu(
            "Memory temperature",
            "Temperature of the device memory. It slows down between 95 and 105 degrees, often before the "
            "core does.",
            _of("memory_temperature_celsius"),
            "celsius",
            steps=fields.thresholds((90, palette.WARNING), (100, palette.CRITICAL)),
        ),
        _line_per_gpu(
            "Core clock",
            "Clock of the compute units. It drops when a GPU is idle; a drop under load costs performance: "
            "Clock limits shows the reason.",
            _of("clock_hertz", 'domain="graphics"'),
            "hertz",
        ),
        _line_per_gpu(
            "Memory clock",
            "Clock of the device memory. Normal is the full or the idle clock; values between them for a "
            "long time are unusual.",
            _of("clock_hertz", 'domain="memory"'),
            "hertz",
        ),
        timeseries(
            "Throttled time",
            "Share of time during which the clocks were limited, by reason. The power limit is normal "
            "under load; other reasons need a check.",
            over_time(
                "max by (gpu, reason) (avg_over_time("
                f"gputally_gpu_throttle_active{{{MATCH_GPU}}}[$__rate_interval])) > 0",
                "GPU {{gpu}} {{reason}}",
            ),
            unit="percentunit",
            most=1,
            width=8,
            height=7,
            legend="bottom",
            calcs=(),
            no_value="No throttling",
            fill=0,
        ),
    ),
    row(
        "Links",
        timeseries(
            "NVLink and XGMI traffic",
            "Data over all links between GPUs, both directions. In one job the lines are alike; a GPU far "
            "below the others slows the job down.",
            over_time(_rate("nvlink_bytes_total"), "GPU {{gpu}}"),
            over_time(_rate("xgmi_bytes_total"), "GPU {{gpu}}"),
            unit="Bps",
            width=8,
            height=7,
            fill=0,
            legend="bottom",
            calcs=(),
            no_value=_NO_LINKS,
        ),
        timeseries(
            "Links down",
            "NVLink and XGMI links that are not up. Normal is 0, unless the server connects the GPU "
            "without them.",
            over_time(_links_down("nvlinks"), "GPU {{gpu}}"),
            over_time(_links_down("xgmi_links"), "GPU {{gpu}}"),
            unit="short",
            width=8,
            height=7,
            fill=0,
            legend="bottom",
            calcs=(),
            no_value=_NO_LINKS,
        ),
        timeseries(
            "NVLink errors",
            "New errors by type. Occasional CRC errors are harmless; replays and recoveries mean a failing "
            "link.",
            over_time(_increase("nvlink_errors_total", by="gpu, type") + " > 0", "GPU {{gpu}} {{type}}"),
            unit="short",
            width=8,
            height=7,
            bars=True,
            legend="bottom",
            calcs=("max",),
            no_value="No errors",
        ),
        _line_per_gpu(
            "PCIe traffic",
            "Data over the PCIe bus, both directions. NVIDIA GPUs before Hopper and AMD GPUs: only with the "
            "exporter flag --pcie-throughput.",
            _of("pcie_throughput_bytes_per_second", how="sum"),
            "Bps",
            width=6,
        ),
        _line_per_gpu(
            "PCIe width",
            "Lanes in use as a share of the lanes that GPU and slot support. Below 100 %, reseat the GPU "
            "or check whether the slot is shared.",
            f"{_of('pcie_width')} / {_of('pcie_width_max')}",
            "percentunit",
            width=6,
            most=1,
        ),
        _line_per_gpu(
            "PCIe generation",
            "Present generation of the PCIe link. It drops on an idle GPU to save power; on a busy one it "
            "should be the highest.",
            _of("pcie_generation"),
            "short",
            width=6,
        ),
        _line_per_gpu(
            "PCIe replays",
            "Packets that were sent again. A few a day are normal; a steady rate means a bad contact or "
            "cable.",
            _increase("pcie_replays_total"),
            "short",
            width=6,
        ),
    ),
    row(
        "Errors",
        table(
            "XID errors",
            "Driver errors by code, with the time of the last one. Applications mostly cause 13, 31, 43 "
            "and 45; the hardware causes 48, 79, 94, 95 and 119.",
            rows(_of("xid_last_timestamp_seconds", by="gpu, xid") + " * 1000"),
            rows(f"max by (gpu, xid) (gputally_gpu_xid_code_errors{{{MATCH_GPU}}})"),
            columns=(
                column("gpu", name="GPU", width=45),
                column("xid", name="XID", width=50),
                column("Value #A", name="Last", unit="dateTimeFromNow"),
                column("Value #B", name="Errors", width=60),
            ),
            order=("gpu", "xid", "Value #A", "Value #B"),
            sort_by="Last",
            width=5,
            height=8,
            no_value="No XID errors",
        ),
        timeseries(
            "Memory errors",
            "New ECC and RAS errors. A few corrected errors are harmless. An uncorrected error has ended "
            "work, and the GPU needs a reset.",
            over_time(
                _increase("ecc_errors_total", 'lifetime="volatile"', by="gpu, type") + " > 0",
                "GPU {{gpu}} ECC {{type}}",
            ),
            over_time(
                _increase("ras_errors_total", by="gpu, block, type") + " > 0",
                "GPU {{gpu}} {{block}} {{type}}",
            ),
            unit="short",
            width=5,
            height=8,
            bars=True,
            legend="bottom",
            calcs=("max",),
            no_value="No errors",
        ),
        table(
            "Memory health",
            "Errors over the lifetime of the GPU, remapped rows, and repairs that are pending until a "
            "reset. Normal is 0 uncorrected and no failure; replace a GPU whose remapping failed.",
            rows(_of("ecc_errors_total", 'type="corrected"')),
            rows(_of("ecc_errors_total", 'type="uncorrected"')),
            rows(_of("remapped_rows", how="sum")),
            rows(f"{_of('remapped_rows_pending')} or {_of('retired_pages_pending')}"),
            rows(_of("remapped_rows_failure")),
            columns=(
                column("gpu", name="GPU", width=45),
                column("Value #A", name="Corrected", width=85),
                column("Value #B", name="Uncorrected", width=108, steps=fields.CELL_ANY_IS_CRITICAL),
                column("Value #C", name="Remaps", width=76),
                column("Value #D", name="Pending", width=74, mappings=_YES_IS_BAD),
                column("Value #E", name="Failed", width=60, mappings=_YES_IS_BAD),
            ),
            order=("gpu", *value_columns(5)),
            width=9,
            height=8,
        ),
        state_timeline(
            "Recovery action",
            "Action that the driver requests to recover each GPU. Normal is none.",
            over_time(
                f"{_coded('recovery_action', 'action', _ACTIONS)} or {_of('up')} * 0 - 1", "GPU {{gpu}}"
            ),
            mappings=fields.value_texts(
                {-1: ("not supported", palette.FREE)}
                | {code: (word, color) for code, word, color in _ACTIONS.values()}
            ),
            width=5,
            height=8,
        ),
        alert_list(
            "Firing alerts",
            "GPUTally alerts that are firing for this node, its GPUs and their pods. Normal is empty. The "
            "name of an alert links to its runbook.",
            width=24,
            height=7,
            chosen=MATCH_NODE,
        ),
    ),
    row(
        "Hardware",
        table(
            "GPU identity",
            "Serial number, PCI address, firmware and driver of each GPU, to find it in the server and to "
            "compare versions.",
            rows(f"max by ({', '.join(_IDENTITY)}) (gputally_gpu_info{{{MATCH_GPU}}})"),
            columns=(
                column("gpu", name="GPU", width=60),
                column("model", name="Model"),
                column("serial", name="Serial"),
                column("pci_bus_id", name="PCI bus"),
                column("vbios_version", name="VBIOS"),
                column("driver_version", name="Driver"),
                column("cuda_version", name="CUDA", width=80),
                column("energy_source", name="Energy from", width=100),
            ),
            hidden=("Value",),
            order=_IDENTITY,
            width=24,
            height=8,
        ),
        table(
            "Limits and modes",
            "Configured limits and modes of each GPU. Without persistence mode, each start takes a second "
            "longer; without ECC, memory errors stay undetected.",
            rows(_of("power_limit_watts")),
            rows(_of("temperature_slowdown_celsius")),
            rows(_of("ecc_mode")),
            rows(_of("persistence_mode")),
            rows(_of("mig_mode")),
            columns=(
                column("gpu", name="GPU", width=60),
                column("Value #A", name="Power limit", unit="watt"),
                column("Value #B", name="Slowdown at", unit="celsius"),
                *(
                    fields.override(
                        f"Value #{letter}", displayName=name, mappings=fields.value_texts(_ON_OFF)
                    )
                    for letter, name in (("C", "ECC"), ("D", "Persistence"), ("E", "MIG"))
                ),
            ),
            order=("gpu", *value_columns(5)),
            width=24,
            height=8,
        ),
        collapsed=True,
    ),
    variables=(CLUSTER, _ONE_NODE, _GPU),
)
