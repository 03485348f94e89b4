"""GPU Monitoring (DCGM): temperature, power, utilisation, memory and clocks under DCGM_FI_* names.

The metrics come from GPUTally with `--compat dcgm,nvidia-smi`, or from dcgm-exporter and an nvidia-smi
exporter. nvidia_smi_* series are used where DCGM has no values, as on GKE.
"""

from functools import partial

from dashboards import Json, fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import line_per_gpu, now, over_time, rows, stat, state_timeline, text
from dashboards.queries import MATCH_CLUSTER
from dashboards.tables import column, table
from dashboards.variables import Variable

_INSTANCE = f'{MATCH_CLUSTER}, instance=~"$instance"'
_DCGM = f'{_INSTANCE}, gpu=~"$gpu"'
_SMI = f'{_INSTANCE}, gpu_id=~"$gpu"'
_EITHER = '__name__=~"DCGM_FI_DEV_GPU_TEMP|nvidia_smi_temperature_celsius"'
_VARIABLES = (
    Variable("cluster", "Cluster", f"{{{_EITHER}}}"),
    Variable("instance", "Instance", f"{{{_EITHER}, {MATCH_CLUSTER}}}"),
    Variable("gpu", "GPU", f"DCGM_FI_DEV_GPU_TEMP{{{_INSTANCE}}}"),
)
_BY = "cluster, instance, Hostname, gpu"
_LEGEND = "{{Hostname}} GPU {{gpu}}"
_MIB = 1 << 20
_HIGHER_IS_BETTER = fields.thresholds((30, palette.WARNING), (60, palette.GOOD), base=palette.CRITICAL)
_TO_GPU = links.link("GPU", "node", node="${__field.labels.Hostname}", gpu="${__field.labels.gpu}")
_ROW_TO_GPU = links.by_row("GPU", "node", "gpu", node="Hostname")
_BAR: Json = {"unit": "percent", "decimals": 0, "bar_up_to": 100}


def _dcgm(field: str, how: str = "max") -> str:
    """One sample per GPU; `sum` adds up values that are per pod or GPU instance."""
    return f"{how} by ({_BY}) (DCGM_FI_DEV_{field}{{{_DCGM}}})"


def _smi(selector: str, index: str = "gpu_id") -> str:
    """The nvidia-smi series with DCGM's labels: the host is the target's address without its port."""
    named = f'label_replace({selector}, "gpu", "$1", "{index}", "(.+)")'
    placed = f'label_replace({named}, "Hostname", "$1", "instance", "([^:]+).*")'
    return f"max by ({_BY}) ({placed})"


def _or_smi(dcgm: str, metric: str) -> str:
    return f"{dcgm} or on (cluster, instance, gpu) {_smi(f'nvidia_smi_{metric}{{{_SMI}}}')}"


# dcgm-exporter repeats the value for each pod of a GPU, so the sum can exceed 100.
_UTILIZATION = f"clamp_max({_dcgm('GPU_UTIL', 'sum')}, 100)"
_TEMPERATURE = _or_smi(_dcgm("GPU_TEMP"), "temperature_celsius")
_POWER = _or_smi(_dcgm("POWER_USAGE"), "power_usage_watts")
_SMI_INDEX = f'max by (cluster, instance, uuid, index) (nvidia_smi_gpu_info{{{_INSTANCE}, index=~"$gpu"}})'
_SMI_MEMORY = _smi(
    f"max by (cluster, instance, uuid) (nvidia_smi_memory_used_bytes{{{_INSTANCE}}})"
    f" * on (cluster, instance, uuid) group_left (index) {_SMI_INDEX}",
    "index",
)
_MEMORY = f"{_dcgm('FB_USED', 'sum')} * {_MIB} or on (cluster, instance, gpu) {_SMI_MEMORY}"
_MEMORY_SHARE = (
    f"sum({_dcgm('FB_USED', 'sum')}) / (sum({_dcgm('FB_USED', 'sum')}) + sum({_dcgm('FB_FREE')})) * 100"
)
_EXPORTERS = (
    f"max by (cluster, job, instance) (up{{{_INSTANCE}}})"
    f" and on (cluster, job) max by (cluster, job) (last_over_time({{{_EITHER}, {MATCH_CLUSTER}}}[$__range]))"
)


_line_per_gpu = partial(line_per_gpu, legend=_LEGEND, link=_TO_GPU, height=9)

DASHBOARD = dashboard(
    "dcgm",
    "GPU Monitoring (DCGM)",
    "Temperature, power, utilisation, memory and clocks of NVIDIA GPUs under the metric names of "
    "dcgm-exporter and nvidia-smi exporters.",
    row(
        "",
        stat(
            "GPUs",
            "Number of GPUs reported. After a drop, check the node or its exporter.",
            over_time(f"count({_TEMPERATURE})"),
            unit="short",
            width=4,
        ),
        stat(
            "GPU utilisation",
            "Mean of all GPUs. Above 60 % is good; below 30 %, they mostly wait.",
            over_time(f"avg({_or_smi(_UTILIZATION, 'gpu_utilization_percent')})"),
            unit="percent",
            width=4,
            decimals=0,
            steps=_HIGHER_IS_BETTER,
        ),
        stat(
            "Memory used",
            "Share of the device memory in use. From 95 % on, the next allocation can fail.",
            over_time(_MEMORY_SHARE),
            unit="percent",
            width=4,
            decimals=0,
            steps=fields.thresholds((95, palette.CRITICAL), base=palette.MEMORY),
        ),
        stat(
            "Power",
            "Power draw of all GPUs. Compare it with the available power and cooling.",
            over_time(f"sum({_POWER})"),
            unit="watt",
            width=4,
            steps=fields.POWER,
        ),
        stat(
            "Hottest GPU",
            "Highest core temperature. Most GPUs slow down between 85 and 95 degrees.",
            over_time(f"max({_TEMPERATURE})"),
            unit="celsius",
            width=4,
            decimals=0,
            steps=fields.HOT,
        ),
        stat(
            "Exporters down",
            "Targets of the GPU exporter jobs that Prometheus cannot scrape. Normal is 0.",
            now(f"count(({_EXPORTERS}) == 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
        ),
        _line_per_gpu(
            "GPU utilisation (DCGM)",
            "Share of time during which a kernel ran. GKE can report 0 here: compare it with nvidia-smi.",
            _UTILIZATION,
            "percent",
            most=100,
        ),
        _line_per_gpu(
            "GPU utilisation (nvidia-smi)",
            "The same from nvidia-smi. 0 on an allocated GPU means that it is idle.",
            _smi(f"nvidia_smi_gpu_utilization_percent{{{_SMI}}}"),
            "percent",
            most=100,
        ),
        _line_per_gpu(
            "Memory by GPU",
            "Device memory in use. A line that only grows can be a memory leak.",
            _MEMORY,
            "bytes",
        ),
        _line_per_gpu(
            "Temperature",
            "Core temperature of each GPU. Most GPUs slow down between 85 and 95 degrees.",
            _TEMPERATURE,
            "celsius",
            steps=fields.HOT,
            fill=0,
        ),
        _line_per_gpu(
            "Power by GPU",
            "Power draw of each GPU. Near the limit is normal under load; far below it at full "
            "utilisation, the job waits or hangs.",
            _POWER,
            "watt",
        ),
        _line_per_gpu(
            "Memory utilisation",
            "Share of time during which the device memory was read or written. High values at low power "
            "mean a job that waits for memory.",
            _or_smi(f"clamp_max({_dcgm('MEM_COPY_UTIL', 'sum')}, 100)", "memory_utilization_percent"),
            "percent",
            most=100,
        ),
    ),
    row(
        "Clocks and exporters",
        _line_per_gpu(
            "SM clock",
            "Clock of the compute units. It drops on an idle GPU; a drop under load is a loss caused by "
            "heat or power.",
            f"{_dcgm('SM_CLOCK')} * 1e6",
            "hertz",
        ),
        _line_per_gpu(
            "Memory clock",
            "Clock of the device memory. Normal is the full or the idle clock; values between them for a "
            "long time are unusual.",
            f"{_dcgm('MEM_CLOCK')} * 1e6",
            "hertz",
        ),
        state_timeline(
            "Exporter status",
            "Whether Prometheus could scrape each exporter. During red periods there is no data.",
            over_time(_EXPORTERS, "{{instance}}"),
            mappings=fields.UP,
            width=8,
            height=9,
        ),
    ),
    row(
        "Pods and energy",
        table(
            "Pods on GPUs",
            "Utilisation and memory of each pod on its GPU, busiest first. Memory without utilisation for "
            "a long time means an idle GPU.",
            rows(f'sum by ({_BY}, namespace, pod) (DCGM_FI_DEV_GPU_UTIL{{pod!="", {_DCGM}}})'),
            rows(f'sum by ({_BY}, namespace, pod) (DCGM_FI_DEV_FB_USED{{pod!="", {_DCGM}}}) * {_MIB}'),
            columns=(
                column("namespace", name="Namespace"),
                column("pod", name="Pod", link=links.TO_POD),
                column("Hostname", name="Host"),
                column("gpu", name="GPU", width=70, link=_ROW_TO_GPU),
                column("Value #A", name="Utilisation", width=170, **_BAR),
                column("Value #B", name="Memory", unit="bytes", width=110),
            ),
            hidden=("cluster", "instance"),
            order=("namespace", "pod", "Hostname", "gpu", "Value #A", "Value #B"),
            sort_by="Utilisation",
            no_value="No pods on GPUs",
            width=14,
        ),
        stat(
            "Energy",
            "Energy of all GPUs over the time range, from their energy counters.",
            now(f"sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_DCGM}}}[$__range])) / 3.6e9"),
            unit="kwatth",
            width=4,
            height=8,
            decimals=1,
            steps=fields.POWER,
        ),
        text(
            """**Source of these metrics**

GPUTally exports them with `--compat dcgm,nvidia-smi` in addition to its own; dcgm-exporter and nvidia-smi \
exporters export them as well.

The other GPUTally dashboards read GPUTally's own metrics; they also cover AMD GPUs, owners and cost.
""",
            width=6,
            height=8,
        ),
    ),
    variables=_VARIABLES,
    tags=("dcgm",),
    annotate=False,
)
