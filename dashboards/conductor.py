"""Conductors, the nodes with AMD GPUs: utilisation, memory, power, and metrics that only AMD provides."""

from functools import partial

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import line_per_gpu, now, over_time, rows, stat, timeseries
from dashboards.queries import BY_GPU, MATCH_CLUSTER, MATCH_GPU, MATCH_NODE
from dashboards.tables import column, share_column, table, value_columns
from dashboards.variables import Variable

_AMD = 'vendor="amd"'
_VARIABLES = (
    Variable("cluster", "Cluster", f"gputally_gpu_info{{{_AMD}}}"),
    Variable("node", "Conductor", f"gputally_gpu_info{{{_AMD}, {MATCH_CLUSTER}}}"),
    Variable("gpu", "GPU", f"gputally_gpu_info{{{_AMD}, {MATCH_NODE}}}"),
)
_INFO = f"max by (cluster, node, uuid, model) (gputally_gpu_info{{{_AMD}, {MATCH_GPU}}})"
_LEGEND = "{{node}} GPU {{gpu}}"
_HEAT = fields.thresholds((85, palette.WARNING), (95, palette.CRITICAL))
_HOT_ONLY = fields.thresholds((85, palette.WARNING), (95, palette.CRITICAL), base=palette.CLEAR)
_NEARLY_FULL = fields.thresholds((0.95, palette.CRITICAL), base=palette.MEMORY)


def _per_gpu(metric: str, *matchers: str, more: str = "") -> str:
    """One sample per AMD GPU and per combination of the labels in `more`."""
    chosen = ", ".join((MATCH_GPU, *matchers))
    by = f"{BY_GPU}, {more}" if more else BY_GPU
    own = f"max by ({by}) (gputally_gpu_{metric}{{{chosen}}})"
    return f"({own} * on (cluster, node, uuid) group_left (model) {_INFO})"


def _rate(metric: str, more: str = "") -> str:
    """The rate per AMD GPU and per combination of the labels in `more`."""
    by = f"{BY_GPU}, {more}" if more else BY_GPU
    rate = f"sum by ({by}) (rate(gputally_gpu_{metric}{{{MATCH_GPU}}}[$__rate_interval]))"
    return f"{rate} * on (cluster, node, uuid) group_left (model) {_INFO}"


def _share(part: str, whole: str) -> str:
    return f"{_per_gpu(part)} / {_per_gpu(whole)}"


_UNCORRECTED = _per_gpu("ras_errors_total", 'type="uncorrected"', more="block")
_line_per_gpu = partial(line_per_gpu, legend=_LEGEND, link=links.SERIES_TO_GPU)

DASHBOARD = dashboard(
    "conductor",
    "AMD conductor",
    "Conductors, the nodes with AMD GPUs: utilisation, memory, power and health of each GPU.",
    row(
        "",
        stat(
            "GPUs",
            "AMD GPUs that are up, and lost GPUs: detected, but no longer readable. Normal is 0 lost. Work "
            "on a lost GPU has failed.",
            now(f"sum({_per_gpu('up')})", "up"),
            now(f"count({_per_gpu('up')}) - sum({_per_gpu('up')})", "lost"),
            unit="short",
            width=3,
            overrides=(
                fields.override("lost", thresholds=fields.ANY_IS_CRITICAL),
                fields.override("up", thresholds=fields.thresholds(base=palette.GOOD)),
            ),
        ),
        stat(
            "Utilisation",
            "Mean share of time during which the GPUs were busy. Above 60 % is good; below 30 %, they "
            "mostly wait.",
            over_time(f"avg({_per_gpu('utilization_ratio')})"),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
        ),
        stat(
            "Memory",
            "Share of the VRAM in use. From 95 % on, the next allocation can fail.",
            over_time(f"sum({_per_gpu('memory_used_bytes')}) / sum({_per_gpu('memory_total_bytes')})"),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=_NEARLY_FULL,
        ),
        stat(
            "Power",
            "Present power draw of all GPUs. Compare it with the available power and cooling.",
            over_time(f"sum({_per_gpu('power_watts')})"),
            unit="watt",
            width=4,
            steps=fields.POWER,
        ),
        stat(
            "Hottest GPU",
            "Highest junction temperature. An Instinct slows down at about 100 degrees.",
            over_time(f"max({_per_gpu('temperature_celsius')})"),
            unit="celsius",
            width=4,
            decimals=0,
            steps=_HEAT,
        ),
        stat(
            "Uncorrected errors",
            "Uncorrected RAS errors since the driver was loaded. Normal is 0. Otherwise results can be "
            "wrong: reset the GPU.",
            now(f"sum({_UNCORRECTED}) or vector(0)"),
            unit="short",
            width=5,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
            links=(links.link("Health", "health"),),
        ),
        _line_per_gpu(
            "Utilisation by GPU",
            "Share of time during which each GPU was busy. 0 on a held GPU means that it is idle. Choose a "
            "conductor if there are too many lines.",
            _per_gpu("utilization_ratio"),
            "percentunit",
            most=1,
            height=9,
        ),
        _line_per_gpu(
            "Memory by GPU",
            "Share of the VRAM of each GPU in use. From 95 % on, the next allocation can fail; a line that "
            "only grows can be a memory leak.",
            _share("memory_used_bytes", "memory_total_bytes"),
            "percentunit",
            most=1,
            height=9,
        ),
        _line_per_gpu(
            "Power by GPU",
            "Power draw of each GPU. Near the limit is normal under load; far below it at full "
            "utilisation, the job waits or hangs.",
            _per_gpu("power_watts"),
            "watt",
            height=9,
        ),
        table(
            "GPUs now",
            "State of each GPU, busiest first.",
            rows(_per_gpu("utilization_ratio")),
            rows(_share("memory_used_bytes", "memory_total_bytes")),
            rows(_per_gpu("power_watts")),
            rows(_share("power_watts", "power_limit_watts")),
            rows(_per_gpu("temperature_celsius")),
            columns=(
                column("node", name="Conductor", link=links.TO_NODE),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("model", name="Model"),
                share_column("Value #A", "Utilisation", width=170),
                share_column("Value #B", "Memory", width=170),
                column("Value #C", name="Power", unit="watt", decimals=0, width=100),
                share_column("Value #D", "Of limit", width=170),
                column("Value #E", name="Junction", unit="celsius", width=120, steps=_HOT_ONLY),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "model", *value_columns(5)),
            sort_by="Utilisation",
            height=10,
        ),
    ),
    row(
        "XGMI",
        _line_per_gpu(
            "XGMI traffic by GPU",
            "Data over all XGMI links of each GPU, both directions. In one job the lines are alike; a GPU "
            "far below the others slows the job down.",
            _rate("xgmi_bytes_total"),
            "Bps",
        ),
        timeseries(
            "XGMI traffic by direction",
            "Mean of the chosen GPUs. In most jobs both directions are alike.",
            over_time(f"avg by (direction) ({_rate('xgmi_bytes_total', 'direction')})", "{{direction}}"),
            unit="Bps",
            width=8,
            legend="bottom",
        ),
        _line_per_gpu(
            "XGMI links up",
            "XGMI links of each GPU that are up. Normal is the same number for all; after a drop, jobs on "
            "several GPUs fail or slow down.",
            _per_gpu("xgmi_links", 'state="up"'),
            "short",
            decimals=0,
            fill=0,
            calcs=("min",),
        ),
    ),
    row(
        "RAS errors",
        table(
            "RAS errors by block",
            "Errors since the driver was loaded. Normal is empty. Deferred errors become uncorrected when "
            "the data is used: act on both. A few corrected errors are harmless.",
            rows(f"topk(50, {_per_gpu('ras_errors_total', more='block, type')} > 0)"),
            columns=(
                column("node", name="Conductor"),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("block", name="Block", width=100),
                column(
                    "type",
                    name="Type",
                    width=140,
                    mappings=fields.ERROR_TYPES,
                ),
                column("Value", name="Errors", width=90),
            ),
            hidden=("cluster", "uuid", "model"),
            order=("node", "gpu", "block", "type", "Value"),
            sort_by="Errors",
            no_value="No errors",
            width=12,
        ),
        timeseries(
            "New RAS errors",
            "New errors by type. Corrected errors at a low, constant rate are normal; a rising rate often "
            "precedes an uncorrected error.",
            over_time(
                f"sum by (type) (increase(gputally_gpu_ras_errors_total{{{MATCH_GPU}}}[$__rate_interval]))",
                "{{type}}",
            ),
            unit="short",
            width=12,
            bars=True,
            legend="bottom",
            calcs=("max",),
            overrides=fields.colors_of(
                {
                    "corrected": palette.HELD,
                    "deferred": palette.WARNING,
                    "uncorrected": palette.CRITICAL,
                }
            ),
        ),
    ),
    row(
        "Temperature and clocks",
        timeseries(
            "Temperature by sensor",
            "Hottest of the chosen GPUs, by sensor: edge of the chip, junction (its hottest point) and "
            "memory. The memory slows down at about 105 degrees, often first.",
            over_time(f"max by (sensor) ({_per_gpu('sensor_celsius', more='sensor')})", "{{sensor}}"),
            unit="celsius",
            width=8,
            steps=_HEAT,
            fill=0,
            legend="bottom",
        ),
        timeseries(
            "Thermal margin",
            "Degrees until a sensor slows one of the chosen GPUs down. Below 5, check the cooling.",
            over_time(
                f"min by (sensor) ({_per_gpu('sensor_critical_celsius', more='sensor')}"
                f" - {_per_gpu('sensor_celsius', more='sensor')})",
                "{{sensor}}",
            ),
            unit="celsius",
            width=8,
            least=None,
            fill=0,
            steps=fields.thresholds((5, palette.WARNING), (15, palette.GOOD), base=palette.CRITICAL),
            legend="bottom",
            calcs=("min", "lastNotNull"),
        ),
        timeseries(
            "Clocks by domain",
            "Clocks of compute units and memory, mean of the chosen GPUs. They drop on idle GPUs; a drop "
            "under load is a loss caused by heat or power.",
            over_time(f"avg by (domain) ({_per_gpu('clock_hertz', more='domain')})", "{{domain}}"),
            unit="hertz",
            width=8,
            legend="bottom",
        ),
    ),
    row(
        "Host-visible memory and PCIe",
        _line_per_gpu(
            "CPU-visible VRAM",
            "Share of the CPU-visible VRAM in use. Without a large BAR it is only 256 MiB; when it is "
            "full, copies become slower.",
            _share("memory_visible_used_bytes", "memory_visible_total_bytes"),
            "percentunit",
            most=1,
        ),
        _line_per_gpu(
            "GTT memory used",
            "Host memory that the GPU uses. A high value means that data does not fit into VRAM and "
            "crosses the PCIe bus.",
            _per_gpu("gtt_used_bytes"),
            "bytes",
        ),
        _line_per_gpu(
            "PCIe replays",
            "Replays per minute. A few a day are normal; more than 8 per minute mean a bad contact.",
            f"{_rate('pcie_replays_total')} * 60",
            "short",
        ),
    ),
    variables=_VARIABLES,
    tags=("amd",),
    annotate=False,
)
