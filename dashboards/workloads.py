"""GPUs of namespaces, workloads, pods, containers and processes: held, busy and idle."""

from collections.abc import Callable

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, now, over_time, rows, stat, timeseries
from dashboards.queries import (
    BY_POD,
    BY_WORKLOAD,
    MATCH_CLUSTER,
    MATCH_NAMESPACE,
    billed,
    top_over_range,
)
from dashboards.tables import column, hidden_columns, share_column, table, value_columns
from dashboards.variables import CLUSTER, NAMESPACE, POD

_POD = f'{MATCH_NAMESPACE}, pod=~"$pod"'
_BY_CONTAINER = "cluster, node, gpu, uuid, namespace, pod, container"
_BY_PROCESS = "cluster, node, gpu, uuid, namespace, pod, owner, process_name, pid"
_PROCESS_NAME = "pod, owner, process_name, pid"

_STATES = {"busy": palette.BUSY, "held, idle": palette.IDLE, "activity unknown": palette.UNKNOWN}

_ONLY_THIS_NAMESPACE = links.by_row("Show only this namespace", "workloads", "namespace")
_ONLY_THIS_POD = links.by_row("Show only this pod", "workloads", "namespace", "pod")
_SERIES_ONLY_THIS_POD = links.by_label("Show only this pod", "workloads", "namespace", "pod")


def _pods(record: str) -> str:
    return f"pod:gputally_{record}{{{_POD}}}"


def _total(record: str) -> str:
    return f"sum({_pods(record)})"


def _of_pod(record: str) -> str:
    return f"sum by ({BY_POD}) ({_pods(record)})"


def _of_namespace(record: str) -> str:
    return f"sum by (cluster, namespace) (namespace:gputally_{record}{{{MATCH_NAMESPACE}}})"


def _of_workload(record: str) -> str:
    return f"workload:gputally_{record}{{{MATCH_NAMESPACE}}}"


def _of_host(record: str) -> str:
    return f"sum by (cluster, node, owner) (host:gputally_{record}{{{MATCH_CLUSTER}}})"


def _busy_share(busy: str, idle: str) -> str:
    """The busy share of GPU time; GPUs with unknown activity do not count."""
    return f"{busy} / ({busy} + {idle} > 0)"


def _busy_share_now(of: Callable[[str], str]) -> str:
    return _busy_share(of("busy:gpus"), of("idle:gpus"))


def _busy_share_billed(of: Callable[[str], str]) -> str:
    return _busy_share(of("bill_busy:seconds"), of("bill_idle:seconds"))


def _workload_hours(record: str) -> str:
    return billed(_of_workload(record), BY_WORKLOAD)


def _pod_hours(record: str) -> str:
    return billed(_pods(record), BY_POD)


def _of_container(metric: str, how: str = "max") -> str:
    return f"{how} by ({_BY_CONTAINER}) ({metric})"


def _of_process(metric: str, how: str = "max") -> str:
    """Per process; an owner that is not a pod is put into the label `pod`."""
    return f'label_replace({how} by ({_BY_PROCESS}) ({metric}), "pod", "$1", "owner", "(.+)")'


def _container(metric: str) -> str:
    return f"gputally_pod_{metric}{{{_POD}}}"


def _process(metric: str) -> str:
    return f"gputally_process_{metric}{{{_POD}}}"


def _by_pod(
    title: str, description: str, record: str, *, unit: str, decimals: int | None = None, stack: bool = False
) -> Panel:
    """A graph of the ten pods with the largest sums over the range."""
    return timeseries(
        title,
        description,
        over_time(top_over_range(_pods(record), BY_POD), "{{namespace}}/{{pod}}"),
        unit=unit,
        height=9,
        decimals=decimals,
        stack=stack,
        links=(_SERIES_ONLY_THIS_POD,),
        legend="bottom",
        calcs=("mean",),
    )


_PROCESSES_NEED = "Needs the exporter flag --process-metrics."

DASHBOARD = dashboard(
    "workloads",
    "Workloads",
    "GPUs of each namespace, workload, pod, container and process: held, busy and idle, with memory, power "
    "and cost.",
    row(
        "",
        stat(
            "Pods",
            "Pods that hold a GPU now, within the chosen namespaces and pods.",
            now(f"count({_of_pod('held:gpus')} > 0) or vector(0)"),
            unit="short",
            width=3,
        ),
        stat(
            "GPUs held",
            "GPUs that these pods hold: allocated or in use. A MIG device counts as its fraction; a shared "
            "GPU is divided among its pods.",
            over_time(_total("held:gpus")),
            unit="short",
            width=3,
            decimals=1,
            steps=fields.thresholds(base=palette.HELD),
            sparkline=True,
        ),
        stat(
            "Busy",
            "Share of the held GPU time during which the GPUs were busy, now. Above 60 % is good; below 30 "
            "%, fewer GPUs would do.",
            over_time(_busy_share_now(_total)),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
            sparkline=True,
        ),
        stat(
            "Idle GPUs",
            "Held GPUs without activity. Near 0 is good, because idle GPUs are charged as well.",
            over_time(_total("idle:gpus")),
            unit="short",
            width=3,
            decimals=1,
            steps=fields.ANY_IS_IDLE,
            sparkline=True,
            links=(links.link("Idle GPUs", "idle", "namespace"),),
        ),
        stat(
            "Memory",
            "Device memory that these pods use. Compare the pods below.",
            over_time(_total("memory_used:bytes")),
            unit="bytes",
            width=3,
            sparkline=True,
        ),
        stat(
            "Power",
            "Power draw charged to these pods, from the energy counters of the GPUs.",
            over_time(_total("energy:watts")),
            unit="watt",
            width=3,
            steps=fields.POWER,
            sparkline=True,
        ),
        stat(
            "Energy",
            "Energy charged to these pods over the time range, including pods that have ended.",
            now(billed(_pods("bill_energy:joules"))),
            unit="kwatth",
            width=3,
            decimals=1,
            steps=fields.POWER,
            links=(links.link("Energy and chargeback", "energy", "namespace"),),
        ),
        stat(
            "Cost",
            "Cost of these pods over the time range, GPU hours and energy, at the prices set in the rules.",
            now(billed(_pods("bill_cost:money"))),
            unit="none",
            width=3,
            decimals=2,
            links=(links.link("Energy and chargeback", "energy", "namespace"),),
        ),
        timeseries(
            "Busy and idle GPUs",
            "GPUs that these pods hold. Blue: busy. Yellow: idle. Pink: activity unknown. Much yellow "
            "means that fewer GPUs would do, or that jobs wait for data.",
            over_time(_total("busy:gpus"), "busy"),
            over_time(_total("idle:gpus"), "held, idle"),
            over_time(
                f"clamp_min({_total('held:gpus')} - {_total('busy:gpus')} - {_total('idle:gpus')}, 0)",
                "activity unknown",
            ),
            unit="short",
            width=10,
            height=9,
            decimals=1,
            stack=True,
            overrides=fields.colors_of(_STATES),
            legend="bottom",
            calcs=("mean", "lastNotNull"),
        ),
        table(
            "Namespaces",
            "GPUs held and idle, memory, power and cost of each namespace now. Start with the namespaces "
            "that have many idle GPUs; a name links to its pods.",
            rows(_of_namespace("held:gpus")),
            rows(_of_namespace("idle:gpus")),
            rows(_busy_share_now(_of_namespace)),
            rows(_of_namespace("memory_used:bytes")),
            rows(_of_namespace("energy:watts")),
            rows(_of_namespace("cost:per_hour")),
            columns=(
                column("namespace", name="Namespace", link=_ONLY_THIS_NAMESPACE),
                column("Value #A", name="GPUs held", decimals=1, width=90),
                column("Value #B", name="Idle", decimals=1, width=60, steps=fields.CELL_ANY_IS_IDLE),
                share_column("Value #C", "Busy share", width=125),
                column("Value #D", name="Memory", unit="bytes", width=85),
                column("Value #E", name="Power", unit="watt", width=80),
                column("Value #F", name="Cost per hour", decimals=2, width=110),
            ),
            hidden=("cluster",),
            order=("namespace", *value_columns(6)),
            sort_by="GPUs held",
            width=14,
            height=9,
        ),
        table(
            "Current pods",
            "Pods that hold GPUs now; the 200 that hold the most. A pod with low utilisation and idle GPUs "
            "has finished, hangs or waits.",
            rows(f"topk(200, {_of_pod('held:gpus')} > 0)"),
            rows(_of_pod("idle:gpus")),
            rows(
                f"sum by ({BY_POD}) ({_of_pod('held:gpus')} > bool 0)"
                " * on (cluster, namespace, pod) group_left () "
                f"max by (cluster, namespace, pod) ({_pods('utilization:ratio')})"
            ),
            rows(_of_pod("memory_used:bytes")),
            rows(_of_pod("energy:watts")),
            columns=(
                column("namespace", name="Namespace", link=_ONLY_THIS_NAMESPACE),
                column("pod", name="Pod", link=_ONLY_THIS_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="GPUs held", decimals=2, width=110),
                column("Value #B", name="Idle", decimals=2, width=90, steps=fields.CELL_ANY_IS_IDLE),
                share_column("Value #C", "Utilisation", width=260),
                column("Value #D", name="Memory", unit="bytes", width=120),
                column("Value #E", name="Power", unit="watt", width=110),
            ),
            hidden=("cluster",),
            order=("namespace", "pod", "node", *value_columns(5)),
            sort_by="GPUs held",
            only_with="Value #A",
            height=9,
        ),
    ),
    row(
        "Pods over time",
        _by_pod(
            "Busy GPUs by pod",
            "Busy GPUs of the ten busiest pods of the time range. A drop to 0 while the pod runs means a "
            "job that waits or hangs.",
            "busy:gpus",
            unit="short",
            decimals=1,
        ),
        _by_pod(
            "Idle GPUs by pod",
            "Idle GPUs of the ten pods with the most idle GPU time in the time range. If a line stays high "
            "for hours, stop the pod or request fewer GPUs.",
            "idle:gpus",
            unit="short",
            decimals=1,
        ),
        _by_pod(
            "Memory by pod",
            "Device memory of the ten pods that use the most. A line that only grows can be a memory leak.",
            "memory_used:bytes",
            unit="bytes",
        ),
        _by_pod(
            "Power by pod",
            "Power draw charged to the ten pods that use the most energy. A drop at full utilisation can "
            "be a hung job.",
            "energy:watts",
            unit="watt",
            stack=True,
        ),
    ),
    row(
        "Time range totals, including ended pods",
        table(
            "Cost by workload",
            "Deployments, jobs and other workloads with all their pods; the 100 most expensive. Start with "
            "high costs at a low busy share. Workload names need the exporter flag --kubernetes.",
            rows(f"topk(100, {_workload_hours('bill_cost:money')})"),
            rows(_workload_hours("bill_allocated:seconds")),
            rows(_busy_share_billed(_workload_hours)),
            rows(billed(_of_workload("bill_energy:joules"), BY_WORKLOAD)),
            rows(_workload_hours("bill_idle_cost:money")),
            columns=(
                column("namespace", name="Namespace", link=_ONLY_THIS_NAMESPACE),
                column("workload", name="Workload"),
                column("Value #A", name="Cost", unit="none", decimals=2, width=90),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=95),
                share_column("Value #C", "Busy share", width=140),
                column("Value #D", name="Energy", unit="kwatth", decimals=2, width=100),
                column("Value #E", name="Idle cost", unit="none", decimals=2, width=105),
            ),
            hidden=("cluster",),
            order=("namespace", "workload", *value_columns(5)),
            sort_by="Cost",
            only_with="Value #A",
        ),
        table(
            "Cost by pod",
            "All pods of the time range, including pods that have ended; the 100 most expensive. Idle cost "
            "is the cost of the time during which held GPUs were idle.",
            rows(f"topk(100, {_pod_hours('bill_cost:money')})"),
            rows(_pod_hours("bill_allocated:seconds")),
            rows(_busy_share_billed(_pod_hours)),
            rows(billed(_pods("bill_energy:joules"), BY_POD)),
            rows(_pod_hours("bill_idle_cost:money")),
            columns=(
                column("namespace", name="Namespace", link=_ONLY_THIS_NAMESPACE),
                column("pod", name="Pod", link=_ONLY_THIS_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="Cost", unit="none", decimals=2, width=90),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=95),
                share_column("Value #C", "Busy share", width=140),
                column("Value #D", name="Energy", unit="kwatth", decimals=2, width=100),
                column("Value #E", name="Idle cost", unit="none", decimals=2, width=105),
            ),
            hidden=("cluster",),
            order=("namespace", "pod", "node", *value_columns(5)),
            sort_by="Cost",
            only_with="Value #A",
        ),
    ),
    row(
        "Containers",
        table(
            "Containers by GPU",
            "Each container and its GPU or MIG device; the 200 with the most memory. A container without "
            "processes holds an idle GPU. SM use is empty where the driver does not support it.",
            rows(f"topk(200, {_of_container(_container('memory_used_bytes'))})"),
            rows(_of_container(_container("processes"))),
            rows(_of_container(_container("sm_utilization_ratio"))),
            rows(_of_container(f"rate({_container('energy_joules_total')}[$__rate_interval])", "sum")),
            columns=(
                column("pod", name="Pod", link=_ONLY_THIS_POD),
                column("container", name="Container"),
                column("node", name="Node", link=links.TO_NODE),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("Value #A", name="Memory", unit="bytes", width=120),
                column("Value #B", name="Processes", width=100),
                share_column("Value #C", "SM use", width=240),
                column("Value #D", name="Power", unit="watt", width=110),
                *hidden_columns("namespace"),
            ),
            hidden=("cluster", "uuid"),
            order=("namespace", "pod", "container", "node", "gpu", *value_columns(4)),
            sort_by="Memory",
            only_with="Value #A",
            height=10,
        ),
    ),
    row(
        "Outside Kubernetes",
        table(
            "Owners outside Kubernetes",
            "Slurm jobs, containers, services and sessions that are not pods; the 100 that hold the most. "
            "On a host without Kubernetes these are all owners.",
            rows(f"topk(100, {_of_host('held:gpus')})"),
            rows(_of_host("idle:gpus")),
            rows(_busy_share_now(_of_host)),
            rows(_of_host("memory_used:bytes")),
            rows(_of_host("energy:watts")),
            rows(_of_host("cost:per_hour")),
            columns=(
                column("owner", name="Owner"),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="GPUs held", decimals=2, width=110),
                column("Value #B", name="Idle", decimals=2, width=90, steps=fields.CELL_ANY_IS_IDLE),
                share_column("Value #C", "Busy share", width=260),
                column("Value #D", name="Memory", unit="bytes", width=120),
                column("Value #E", name="Power", unit="watt", width=110),
                column("Value #F", name="Cost per hour", decimals=2, width=120),
            ),
            hidden=("cluster",),
            order=("owner", "node", *value_columns(6)),
            sort_by="GPUs held",
            only_with="Value #A",
            height=7,
        ),
    ),
    row(
        "Processes",
        table(
            "Processes",
            f"Processes on the GPUs; the 200 with the most memory. {_PROCESSES_NEED} Unexpected extra "
            "processes are often left over from a crash.",
            rows(f"topk(200, {_of_process(_process('memory_used_bytes'))})"),
            rows(_of_process(_process("sm_utilization_ratio"))),
            rows(_of_process(f"rate({_process('energy_joules_total')}[$__rate_interval])", "sum")),
            rows(f"time() - {_of_process(_process('start_time_seconds'))}"),
            columns=(
                column("pod", name="Pod or owner"),
                column("process_name", name="Process"),
                column("pid", name="PID", unit="string", width=90),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="Memory", unit="bytes", width=120),
                share_column("Value #B", "SM use", width=240),
                column("Value #C", name="Power", unit="watt", width=110),
                column("Value #D", name="Running for", unit="dtdurations", width=150),
            ),
            hidden=("cluster", "uuid", "gpu", "namespace", "owner"),
            order=("pod", "process_name", "pid", "node", *value_columns(4)),
            sort_by="Memory",
            only_with="Value #A",
            height=10,
        ),
        timeseries(
            "Memory by process",
            f"Device memory of the ten largest processes. {_PROCESSES_NEED} A line that only grows can be "
            "a memory leak.",
            over_time(
                top_over_range(_process("memory_used_bytes"), _PROCESS_NAME),
                "{{pod}}{{owner}} {{process_name}} {{pid}}",
            ),
            unit="bytes",
            legend="bottom",
        ),
        timeseries(
            "SM use by process",
            f"SM time of the ten busiest processes as a share of the GPU. {_PROCESSES_NEED} Two busy "
            "processes on one GPU slow each other down.",
            over_time(
                top_over_range(_process("sm_utilization_ratio"), _PROCESS_NAME),
                "{{pod}}{{owner}} {{process_name}} {{pid}}",
            ),
            unit="percentunit",
            legend="bottom",
        ),
        collapsed=True,
    ),
    variables=(CLUSTER, NAMESPACE, POD),
)
