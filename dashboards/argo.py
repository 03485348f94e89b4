"""Argo Workflows: GPUs, energy and cost of each workflow.

A workflow is the workload `Workflow/name` of its pods. The dashboard reads records, because the pods of a
workflow end long before its cost is reviewed.
"""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, now, over_time, rows, stat, text, timeseries
from dashboards.queries import (
    BY_WORKLOAD,
    MATCH_CLUSTER,
    MATCH_NAMESPACE,
    billed,
    top_over_range,
)
from dashboards.tables import column, hidden_columns, share_column, table, value_columns
from dashboards.variables import CLUSTER, Variable

_ONLY_WORKFLOWS = 'workload=~"Workflow/.+"'
_WORKFLOW = f'{MATCH_NAMESPACE}, workload=~"$workflow", {_ONLY_WORKFLOWS}'
_BY_POD = "cluster, namespace, workload, pod"
_NAMESPACES = Variable(
    "namespace", "Namespace", f"workload:gputally_held:gpus{{{MATCH_CLUSTER}, {_ONLY_WORKFLOWS}}}"
)
_WORKFLOWS = Variable(
    "workflow",
    "Workflow",
    f"workload:gputally_held:gpus{{{MATCH_NAMESPACE}, {_ONLY_WORKFLOWS}}}",
    of="workload",
)


def _of(record: str) -> str:
    return f"workload:gputally_{record}{{{_WORKFLOW}}}"


def _of_pods(record: str) -> str:
    return f"pod:gputally_{record}{{{_WORKFLOW}}}"


def _busy_share(busy: str, held: str) -> str:
    """At most 1: a pod can keep a shared GPU busy for longer than its fraction."""
    return f"clamp_max({busy} / ({held} > 0), 1)"


def _with_workflow(expression: str) -> str:
    """Adds the label `workflow` with the bare name; links need the label `workload`."""
    return f'label_replace({expression}, "workflow", "$1", "workload", "Workflow/(.+)")'


_RECORDED_AT = f"timestamp({_of('held:gpus')})"
_ONLY_THIS_WORKFLOW = links.by_row("Show only this workflow", "argo", "namespace", workflow="workload")
_SERIES_ONLY_THIS_WORKFLOW = links.link(
    "Show only this workflow",
    "argo",
    namespace="${__field.labels.namespace}",
    workflow="${__field.labels.workload}",
)
_TOTALS = (
    column("Value #A", name="Cost", decimals=2, width=90),
    column("Value #B", name="Idle cost", decimals=2, width=90),
    column("Value #C", name="GPU hours", decimals=2, width=100),
    share_column("Value #D", "Busy share", width=140),
    column("Value #E", name="Energy", unit="kwatth", decimals=2, width=110),
)


def _by_workflow(
    title: str,
    description: str,
    record: str,
    *,
    unit: str,
    width: int,
    height: int = 8,
    decimals: int | None = None,
) -> Panel:
    """A stacked graph of the ten workflows with the largest sums over the range."""
    return timeseries(
        title,
        description,
        over_time(top_over_range(_of(record), BY_WORKLOAD), "{{namespace}} {{workload}}"),
        unit=unit,
        width=width,
        height=height,
        decimals=decimals,
        stack=True,
        legend="bottom",
        calcs=("mean", "max"),
        links=(_SERIES_ONLY_THIS_WORKFLOW,),
    )


DASHBOARD = dashboard(
    "argo",
    "Argo Workflows",
    "GPUs of each workflow: held, busy and idle, with energy and cost.",
    row(
        "",
        stat(
            "Active workflows",
            "Workflows that hold a GPU now. If it is 0 while some should run, they wait for GPUs or are "
            "not detected: see the bottom of the page.",
            now(f"count(sum by ({BY_WORKLOAD}) ({_of('held:gpus')}) > 0) or vector(0)"),
            unit="short",
            width=4,
        ),
        stat(
            "GPUs held",
            "GPUs that workflows hold now; shared GPUs count as fractions. Compare it with the quota.",
            now(f"sum({_of('held:gpus')}) or vector(0)"),
            unit="short",
            width=4,
            decimals=1,
            steps=fields.thresholds(base=palette.HELD),
        ),
        stat(
            "Busy share",
            "Share of the held GPU time over the time range during which the GPUs were busy. Above 60 % is "
            "good; below 30 %, steps hold GPUs while they load or wait.",
            now(_busy_share(billed(_of("bill_busy:seconds")), billed(_of("bill_allocated:seconds")))),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
            no_value="-",
        ),
        stat(
            "Energy",
            "Energy charged to workflows over the time range.",
            now(f"{billed(_of('bill_energy:joules'))} or vector(0)"),
            unit="kwatth",
            width=4,
            decimals=1,
            steps=fields.POWER,
        ),
        stat(
            "Cost",
            "Cost of workflows over the time range, GPU hours and energy, at the prices set in the rules.",
            now(f"{billed(_of('bill_cost:money'))} or vector(0)"),
            unit="short",
            width=4,
            decimals=2,
        ),
        stat(
            "Idle cost",
            "Cost of GPUs that steps held without activity. Near 0 is good. Move steps without GPU work to "
            "templates without a GPU request.",
            now(f"{billed(_of('bill_idle_cost:money'))} or vector(0)"),
            unit="short",
            width=4,
            decimals=2,
            steps=fields.thresholds((0.01, palette.IDLE)),
        ),
        table(
            "Workflows",
            "Workflows over the time range, most expensive first. Start with many GPU hours at a low busy "
            "share.",
            rows(_with_workflow(f"topk(200, {billed(_of('bill_cost:money'), BY_WORKLOAD)})")),
            rows(_with_workflow(billed(_of("bill_idle_cost:money"), BY_WORKLOAD))),
            rows(_with_workflow(billed(_of("bill_allocated:seconds"), BY_WORKLOAD))),
            rows(
                _with_workflow(
                    _busy_share(
                        billed(_of("bill_busy:seconds"), BY_WORKLOAD),
                        billed(_of("bill_allocated:seconds"), BY_WORKLOAD),
                    )
                )
            ),
            rows(_with_workflow(billed(_of("bill_energy:joules"), BY_WORKLOAD))),
            rows(
                _with_workflow(
                    f"min by ({BY_WORKLOAD}) (min_over_time({_RECORDED_AT}[$__range:$__interval])) * 1000"
                )
            ),
            columns=(
                column("namespace", name="Namespace", width=140, link=links.TO_NAMESPACE),
                column("workflow", name="Workflow", link=_ONLY_THIS_WORKFLOW),
                *_TOTALS,
                column("Value #F", name="First seen", unit="dateTimeFromNow", width=140),
                *hidden_columns("workload"),
            ),
            hidden=("cluster",),
            order=("namespace", "workflow", *value_columns(6)),
            sort_by="Cost",
            only_with="Value #A",
            no_value="No workflow held a GPU",
            width=24,
            height=9,
        ),
        _by_workflow(
            "GPUs held by workflow",
            "The ten workflows that held the most. Flat blocks are steps; in the gaps the workflow held no "
            "GPU.",
            "held:gpus",
            unit="short",
            width=12,
            height=9,
        ),
        _by_workflow(
            "Busy GPUs by workflow",
            "Busy GPUs of the ten busiest workflows. Far below the held GPUs, they are idle.",
            "busy:gpus",
            unit="short",
            width=12,
            height=9,
        ),
    ),
    row(
        "Steps",
        table(
            "Steps (pods)",
            "Pods of the chosen workflows, most expensive first. Run steps with a low busy share without a "
            "GPU.",
            rows(_with_workflow(f"topk(200, {billed(_of_pods('bill_cost:money'), _BY_POD)})")),
            rows(_with_workflow(billed(_of_pods("bill_idle_cost:money"), _BY_POD))),
            rows(_with_workflow(billed(_of_pods("bill_allocated:seconds"), _BY_POD))),
            rows(
                _with_workflow(
                    _busy_share(
                        billed(_of_pods("bill_busy:seconds"), _BY_POD),
                        billed(_of_pods("bill_allocated:seconds"), _BY_POD),
                    )
                )
            ),
            rows(_with_workflow(billed(_of_pods("bill_energy:joules"), _BY_POD))),
            columns=(
                column("namespace", name="Namespace", width=140),
                column("workflow", name="Workflow", width=260, link=_ONLY_THIS_WORKFLOW),
                column("pod", name="Pod", link=links.TO_POD),
                *_TOTALS,
                *hidden_columns("workload"),
            ),
            hidden=("cluster",),
            order=("namespace", "workflow", "pod", *value_columns(5)),
            sort_by="Cost",
            only_with="Value #A",
            no_value="No workflow held a GPU",
            width=24,
            height=9,
        ),
        _by_workflow(
            "Power by workflow",
            "Power charged to the ten workflows that use the most energy. A step that drops to idle power "
            "can hang.",
            "energy:watts",
            unit="watt",
            width=8,
        ),
        _by_workflow(
            "Cost per hour by workflow",
            "Cost per hour of the ten most expensive workflows, GPU hours and energy.",
            "cost:per_hour",
            unit="short",
            width=8,
            decimals=2,
        ),
        _by_workflow(
            "Memory by workflow",
            "Device memory of the ten workflows that use the most. Far below the memory of the GPU, a "
            "smaller GPU or a MIG device would do.",
            "memory_used:bytes",
            unit="bytes",
            width=8,
        ),
    ),
    row(
        "Missing workflows",
        stat(
            "Known workloads",
            "Share of the pods on GPUs with a known workload. Below 100 %, workflows are missing above: "
            "enable the flags in the text beside.",
            now(
                'count(max by (cluster, namespace, pod) (gputally_pod_info{workload!="", '
                f"{MATCH_NAMESPACE}}}))"
                f" / count(max by (cluster, namespace, pod) (gputally_pod_info{{{MATCH_NAMESPACE}}}))"
            ),
            unit="percentunit",
            width=4,
            height=7,
            decimals=0,
            steps=fields.thresholds((0.5, palette.WARNING), (1, palette.GOOD), base=palette.CRITICAL),
        ),
        table(
            "Workflows by pod label",
            "Workflows found by the label of their pods, now. Needs the exporter flag --pod-labels; also "
            "works for an exporter in a sidecar of a step.",
            rows(
                "max by (namespace, label_workflows_argoproj_io_workflow, pod, workload)"
                f' (gputally_pod_info{{label_workflows_argoproj_io_workflow!="", {MATCH_NAMESPACE}}})'
            ),
            columns=(
                column("namespace", name="Namespace", width=120),
                column("label_workflows_argoproj_io_workflow", name="Workflow"),
                column("pod", name="Pod", link=links.TO_POD),
                column("workload", name="Workload"),
            ),
            hidden=("Value",),
            order=("namespace", "label_workflows_argoproj_io_workflow", "pod", "workload"),
            no_value="No pod has the label: set --pod-labels",
            width=10,
            height=7,
        ),
        text(
            """**Flags to enable**

- `--kubernetes`: the exporter reads the pods of its node. Argo's label \
`workflows.argoproj.io/workflow` sets the workload of a pod to `Workflow/name`, which this page reads.
- `--pod-labels workflows.argoproj.io/workflow` adds that label to `gputally_pod_info`; \
`workflows.argoproj.io/*` also adds labels set with `podMetadata`.
- Install the recording rules of GPUTally: all panels over time read them.
""",
            width=10,
            height=7,
        ),
    ),
    variables=(CLUSTER, _NAMESPACES, _WORKFLOWS),
    since="now-24h",
    annotate=False,
)
