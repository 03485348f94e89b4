"""Conductors, machines with AMD GPUs: utilisation, memory and power of each, and what only AMD tells."""

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
    """One sample for each AMD GPU, and for each of what `more` names."""
    chosen = ", ".join((MATCH_GPU, *matchers))
    by = f"{BY_GPU}, {more}" if more else BY_GPU
    own = f"max by ({by}) (gputally_gpu_{metric}{{{chosen}}})"
    return f"({own} * on (cluster, node, uuid) group_left (model) {_INFO})"


def _rate(metric: str, more: str = "") -> str:
    """A second, of each AMD GPU and of what `more` names, summed over the rest."""
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
    "Conductors, the machines with AMD GPUs: how busy, how full and how hungry each GPU is, and its health.",
    row(
        "",
        stat(
            "GPUs that answer",
            "AMD GPUs that answer, and those that do not. A lost one has failed its work.",
            now(f"sum({_per_gpu('up')})", "answer"),
            now(f"count({_per_gpu('up')}) - sum({_per_gpu('up')})", "lost"),
            unit="short",
            width=4,
            overrides=(
                fields.override("lost", thresholds=fields.ANY_IS_CRITICAL),
                fields.override("answer", thresholds=fields.thresholds(base=palette.GOOD)),
            ),
        ),
        stat(
            "Utilisation",
            "Mean share of the time in which the GPUs ran something. Above 60 % is good; under 30 % they "
            "mostly wait.",
            over_time(f"avg({_per_gpu('utilization_ratio')})"),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
        ),
        stat(
            "Memory",
            "Share of all VRAM that is taken. From 95 % on the next allocation may fail.",
            over_time(f"sum({_per_gpu('memory_used_bytes')}) / sum({_per_gpu('memory_total_bytes')})"),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=_NEARLY_FULL,
        ),
        stat(
            "Power",
            "What the GPUs draw together. Compare it with what supplies and cooling can do.",
            over_time(f"sum({_per_gpu('power_watts')})"),
            unit="watt",
            width=4,
            steps=fields.POWER,
        ),
        stat(
            "Hottest spot",
            "The highest temperature at any junction. An Instinct slows down at about 100 degrees.",
            over_time(f"max({_per_gpu('temperature_celsius')})"),
            unit="celsius",
            width=4,
            decimals=0,
            steps=_HEAT,
        ),
        stat(
            "Uncorrected",
            "RAS errors since the driver was loaded that could not be corrected. 0 is good; else results "
            "may be wrong, and the GPU wants a reset.",
            now(f"sum({_UNCORRECTED}) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
            links=(links.link("Health", "health"),),
        ),
        _line_per_gpu(
            "Utilisation",
            "Share of the time in which each GPU ran something. Flat at 0 while somebody holds it is waste; "
            "choose a conductor above when there are too many lines.",
            _per_gpu("utilization_ratio"),
            "percentunit",
            most=1,
            height=9,
        ),
        _line_per_gpu(
            "Memory used",
            "Share of each GPU's VRAM that is taken. From 95 % on the next allocation may fail; a line that "
            "only ever grows may be a leak.",
            _share("memory_used_bytes", "memory_total_bytes"),
            "percentunit",
            most=1,
            height=9,
        ),
        _line_per_gpu(
            "Power",
            "What each GPU draws. Flat at its limit is full work; far below it at full utilisation is a job "
            "that waits or hangs.",
            _per_gpu("power_watts"),
            "watt",
            height=9,
        ),
        table(
            "GPUs",
            "Each GPU now, the busiest first.",
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
                share_column("Value #D", "Of its limit", width=170),
                column("Value #E", name="Hottest spot", unit="celsius", width=120, steps=_HOT_ONLY),
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
            "Traffic of each GPU",
            "Data over all XGMI links, both directions. In one job over several GPUs the lines are alike; "
            "the one far below is the slow one.",
            _rate("xgmi_bytes_total"),
            "Bps",
        ),
        timeseries(
            "Traffic of each link",
            "Mean over the chosen GPUs. A link that carries less than its peers is slow, or down.",
            over_time(f"avg by (link) ({_rate('xgmi_bytes_total', 'link')})", "link {{link}}"),
            unit="Bps",
            width=8,
            legend="bottom",
        ),
        _line_per_gpu(
            "Links up",
            "XGMI links of each GPU that are up. All the same is good; a fall makes jobs over several GPUs "
            "fail or crawl.",
            f"sum by (node, gpu) ({_per_gpu('xgmi_up', more='link')})",
            "short",
            decimals=0,
            fill=0,
            calcs=("min",),
        ),
    ),
    row(
        "Errors (RAS)",
        table(
            "By block of the chip",
            "Errors since the driver was loaded. Deferred ones become uncorrected when the data is used: "
            "both are bad; corrected ones are harmless while few. Empty is good.",
            rows(f"topk(50, {_per_gpu('ras_errors_total', more='block, type')} > 0)"),
            columns=(
                column("node", name="Conductor"),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("block", name="Block", width=100),
                column(
                    "type",
                    name="Errors that were",
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
            "As they come",
            "New errors. Corrected ones at a steady, slow rate are normal; more and more of them announce "
            "one that cannot be corrected.",
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
        "Heat and clocks",
        timeseries(
            "Sensors",
            "The hottest of the chosen GPUs, by sensor: edge is the chip's rim, junction its hottest spot, "
            "mem the memory. Memory slows down at about 105 degrees, often first.",
            over_time(f"max by (sensor) ({_per_gpu('sensor_celsius', more='sensor')})", "{{sensor}}"),
            unit="celsius",
            width=8,
            steps=_HEAT,
            fill=0,
            legend="bottom",
        ),
        timeseries(
            "Degrees left",
            "How far the nearest of the chosen GPUs is from where a sensor makes it slow down. Under 5 is "
            "bad.",
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
            "Clocks",
            "Mean over the chosen GPUs, by part of the chip. They fall when a GPU is idle; a fall of the "
            "busy ones is work lost to heat or power.",
            over_time(f"avg by (domain) ({_per_gpu('clock_hertz', more='domain')})", "{{domain}}"),
            unit="hertz",
            width=8,
            legend="bottom",
        ),
    ),
    row(
        "Memory that only AMD tells",
        _line_per_gpu(
            "VRAM that the CPU can reach",
            "Share that is taken of the VRAM the CPU can reach directly. Without a large BAR it is only 256 "
            "MiB: full, copies take a detour.",
            _share("memory_visible_used_bytes", "memory_visible_total_bytes"),
            "percentunit",
            most=1,
        ),
        _line_per_gpu(
            "Host memory used by the GPU (GTT)",
            "Memory of the machine that the GPU uses. Much of it means that data does not fit into VRAM, "
            "and comes over PCIe instead.",
            _per_gpu("gtt_used_bytes"),
            "bytes",
        ),
        _line_per_gpu(
            "PCIe packets sent again",
            "Replays in a minute. A few in a day are normal; more than 8 a minute are a bad contact.",
            f"{_rate('pcie_replays_total')} * 60",
            "short",
        ),
    ),
    variables=_VARIABLES,
    tags=("amd",),
    annotate=False,
)
