"""The overview: health, utilisation and cost of all GPUs.

It reads records per model, node and namespace, so that ten thousand GPUs load as fast as ten. Only the table
of nodes reads series per GPU, and only their latest values.
"""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, heatmap, now, over_time, rows, stat, timed, timeseries
from dashboards.queries import MATCH_CLUSTER, MATCH_MODEL, billed, top_over_range
from dashboards.tables import alert_list, column, share_column, table, value_columns
from dashboards.variables import CLUSTER, MODEL

_ANY_IS_WARNING = fields.thresholds((1, palette.WARNING), base=palette.CLEAR)
_STATES = {
    "busy": palette.BUSY,
    "held, idle": palette.IDLE,
    "held, activity unknown": palette.UNKNOWN,
    "free": palette.FREE,
    "lost": palette.CRITICAL,
}


def _total(record: str) -> str:
    return f"sum(model:gputally_{record}{{{MATCH_MODEL}}})"


def _by_model(record: str) -> str:
    return f"sum by (model) (model:gputally_{record}{{{MATCH_MODEL}}})"


def _by_namespace(record: str) -> str:
    return f"sum by (namespace) (namespace:gputally_{record}{{{MATCH_CLUSTER}}})"


def _of_nodes(expr: str) -> str:
    """Restricts the expression to nodes that have a GPU of the chosen models."""
    return f"{expr} and on (cluster, node) max by (cluster, node) (gputally_gpu_info{{{MATCH_MODEL}}})"


def _by_node(record: str) -> str:
    return f"sum by (cluster, node) (node:gputally_{record}{{{MATCH_CLUSTER}}})"


def _utilization(by: str = "") -> str:
    """Mean over models, weighted by their number of GPUs."""
    busy = (
        f"model:gputally_utilization:ratio{{{MATCH_MODEL}}} * model:gputally_gpus_up:count{{{MATCH_MODEL}}}"
    )
    return f"sum{by} ({busy}) / sum{by} (model:gputally_gpus_up:count{{{MATCH_MODEL}}})"


def _share_by_model(title: str, description: str, expr: str) -> Panel:
    return timeseries(
        title,
        description,
        over_time(expr, "{{model}}"),
        unit="percentunit",
        most=1,
        width=8,
        fill=0,
        legend="bottom",
        calcs=(),
    )


def _alerts(severity: str) -> str:
    chosen = f'alertname=~"GPUTally.+", alertstate="firing", severity="{severity}", {MATCH_CLUSTER}'
    return f"count(ALERTS{{{chosen}}}) or vector(0)"


_TO_MODEL = links.by_row("Show only this model", "fleet", "model")

DASHBOARD = dashboard(
    "fleet",
    "Fleet",
    "All GPUs at a glance: health, utilisation, allocation and cost.",
    row(
        "",
        stat(
            "GPUs",
            "GPUs that the exporters report, and lost GPUs: detected, but no longer readable. Normal is 0 "
            "lost; GPU problems lists them.",
            now(_total("gpus:count"), "total"),
            now(f"{_total('gpus:count')} - {_total('gpus_up:count')}", "lost"),
            unit="short",
            width=4,
            steps=fields.NO_COLOUR,
            overrides=(fields.override("lost", thresholds=fields.CELL_ANY_IS_CRITICAL),),
            background=True,
            links=(links.link("Health", "health"),),
        ),
        stat(
            "Alerts",
            "Number of firing alerts by severity. Normal is 0. Act on critical alerts at once.",
            now(_alerts("critical"), "critical"),
            now(_alerts("warning"), "warning"),
            unit="short",
            width=4,
            steps=fields.NO_COLOUR,
            overrides=(
                fields.override("critical", thresholds=fields.CELL_ANY_IS_CRITICAL),
                fields.override("warning", thresholds=_ANY_IS_WARNING),
            ),
            background=True,
            links=(links.link("Health", "health"),),
        ),
        stat(
            "Held",
            "Share of GPUs that are held: allocated to a container or in use by a process. Near 100 %, new "
            "work has to wait; below 30 %, there are more GPUs than needed.",
            over_time(f"{_total('gpus_allocated:count')} / {_total('gpus_up:count')}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.thresholds((0.3, palette.GOOD), (0.95, palette.WARNING), base=palette.WARNING),
            sparkline=True,
        ),
        stat(
            "Utilisation",
            "Mean share of time during which the GPUs ran a kernel. Above 60 % is good; below 30 %, most "
            "of the capacity is unused.",
            over_time(_utilization()),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.HIGHER_IS_BETTER,
            sparkline=True,
        ),
        stat(
            "Idle GPUs",
            "Held GPUs without activity, averaged over time. Near 0 is good; the dashboard Idle GPUs lists "
            "the pods that hold them.",
            over_time(_total("idle:gpus")),
            unit="short",
            width=3,
            decimals=1,
            steps=fields.ANY_IS_IDLE,
            sparkline=True,
            links=(links.link("Idle GPUs", "idle"),),
        ),
        stat(
            "Power",
            "Present power draw of all GPUs. Compare it with the available power and cooling.",
            over_time(_total("power:watts")),
            unit="watt",
            width=3,
            steps=fields.POWER,
            sparkline=True,
        ),
        timed(
            stat(
                "Cost today",
                "Cost and energy of all GPUs since midnight, at the prices set in the rules. Compare it "
                "with the daily budget.",
                now(billed(f"node:gputally_bill_cost:money{{{MATCH_MODEL}}}"), "cost"),
                now(billed(f"node:gputally_bill_meter:joules{{{MATCH_MODEL}}}"), "energy"),
                unit="short",
                width=4,
                decimals=0,
                overrides=(fields.override("energy", unit="kwatth", thresholds=fields.POWER),),
                links=(links.link("Energy and chargeback", "energy"),),
            ),
            since="now/d",
        ),
        timeseries(
            "GPUs by state",
            "Number of GPUs in each state. Blue: busy. Yellow: held and idle. Pink: held, activity "
            "unknown. Grey: free. Red: lost. Much yellow means that GPUs can be reclaimed.",
            over_time(_total("busy:gpus"), "busy"),
            over_time(_total("idle:gpus"), "held, idle"),
            over_time(
                f"{_total('held:gpus')} - ({_total('busy:gpus')} or vector(0))"
                f" - ({_total('idle:gpus')} or vector(0)) > 0.01",
                "held, activity unknown",
            ),
            over_time(f"clamp_min({_total('gpus_up:count')} - {_total('held:gpus')}, 0)", "free"),
            over_time(f"{_total('gpus:count')} - {_total('gpus_up:count')}", "lost"),
            unit="short",
            width=10,
            height=9,
            stack=True,
            overrides=fields.colors_of(_STATES),
            legend="bottom",
            calcs=("mean",),
        ),
        table(
            "Models",
            "Number, state, utilisation, memory, power and cost of the GPUs of each model. A high share "
            "held at a low utilisation means idle GPUs.",
            rows(_by_model("gpus:count")),
            rows(f"{_by_model('gpus:count')} - {_by_model('gpus_up:count')}"),
            rows(f"{_by_model('gpus_allocated:count')} / {_by_model('gpus:count')}"),
            rows(_utilization(" by (model)")),
            rows(f"{_by_model('memory_used:bytes')} / {_by_model('memory_total:bytes')}"),
            rows(_by_model("power:watts")),
            rows(_by_model("cost:per_hour")),
            columns=(
                column("model", name="Model", width=180, link=_TO_MODEL),
                column("Value #A", name="GPUs", width=60),
                column("Value #B", name="Lost", width=50, steps=fields.CELL_ANY_IS_CRITICAL),
                share_column("Value #C", "Held"),
                share_column("Value #D", "Utilisation"),
                share_column("Value #E", "Memory"),
                column("Value #F", name="Power", unit="watt", width=70),
                column("Value #G", name="Cost/hour", unit="short", decimals=2, width=85),
            ),
            order=("model", *value_columns(7)),
            sort_by="GPUs",
            width=14,
            height=9,
        ),
        table(
            "GPU problems",
            "GPUs with a problem, most severe first, at most 50. Normal is empty. Open the GPU, and follow "
            "the runbook of its alert.",
            rows(
                "topk(50, max by (cluster, node, gpu, uuid, model, problem) "
                f"(gpu:gputally_problem:severity{{{MATCH_MODEL}}}))"
            ),
            columns=(
                column(
                    "Value",
                    name="Severity",
                    width=95,
                    mappings=fields.value_texts(
                        {
                            3: ("critical", palette.CRITICAL),
                            2: ("warning", palette.WARNING),
                            1: ("suspected", palette.HELD),
                        }
                    ),
                ),
                column("problem", name="Problem", width=230),
                column("node", name="Node", link=links.TO_NODE),
                column("gpu", name="GPU", width=50, link=links.TO_GPU),
                column("model", name="Model"),
            ),
            hidden=("cluster", "uuid"),
            order=("Value", "problem", "node", "gpu", "model"),
            sort_by="Severity",
            no_value="No GPU problems",
            width=12,
            height=9,
        ),
        alert_list(
            "Firing alerts",
            "GPUTally alerts that are firing, most severe first. Normal is empty. The name of an alert "
            "links to its runbook.",
            width=12,
            height=9,
        ),
    ),
    row(
        "Utilisation and namespaces",
        timed(
            heatmap(
                "Utilisation distribution",
                "Number of GPUs in each utilisation range over time. A bright band at the top is a busy "
                "fleet, one at the bottom an idle fleet.",
                over_time(
                    f"sum by (utilization) (model:gputally_gpus_by_utilization:count{{{MATCH_MODEL}}})"
                    # Grafana 10 cannot draw fewer than two buckets, so one with 0 GPUs is always added.
                    ' or count_values("utilization", vector(0)) * 0',
                    "{{utilization}}",
                ),
                unit="percentunit",
                width=12,
                height=9,
                counted=True,
            ),
            step="2m",
        ),
        table(
            "Namespaces",
            "GPUs held, busy and idle, power and cost of each namespace; the 50 that hold the most. Start "
            "with the namespaces that have many idle GPUs.",
            rows(f"topk(50, {_by_namespace('held:gpus')})"),
            rows(_by_namespace("busy:gpus")),
            rows(_by_namespace("idle:gpus")),
            # A namespace that shares a GPU can keep it busy for longer than its fraction.
            rows(f"clamp_max({_by_namespace('busy:gpus')} / ({_by_namespace('held:gpus')} > 0), 1)"),
            rows(_by_namespace("energy:watts")),
            rows(_by_namespace("cost:per_hour")),
            columns=(
                column("namespace", name="Namespace", width=120, link=links.TO_NAMESPACE),
                column("Value #A", name="GPUs held", decimals=1, width=90),
                column("Value #B", name="Busy", decimals=1, width=60),
                column("Value #C", name="Idle", decimals=1, width=60, steps=fields.CELL_ANY_IS_IDLE),
                share_column("Value #D", "Busy share"),
                column("Value #E", name="Power", unit="watt", width=80),
                column("Value #F", name="Cost/hour", unit="short", decimals=2, width=85),
            ),
            order=("namespace", *value_columns(6)),
            sort_by="GPUs held",
            width=12,
            height=9,
        ),
    ),
    row(
        "Over time",
        _share_by_model(
            "Utilisation by model",
            "Mean utilisation of the GPUs of each model. Above 60 % is good. If a model stays low, move "
            "work to it or run fewer GPUs of it.",
            _utilization(" by (model)"),
        ),
        _share_by_model(
            "Held by model",
            "Share of the GPUs of each model that is held. At 100 %, new work for that model has to wait.",
            f"{_by_model('gpus_allocated:count')} / {_by_model('gpus:count')}",
        ),
        _share_by_model(
            "Memory by model",
            "Share of the device memory of each model that is in use. High memory use at a low utilisation "
            "means loaded but idle applications.",
            f"{_by_model('memory_used:bytes')} / {_by_model('memory_total:bytes')}",
        ),
        timeseries(
            "Power by model",
            "Power draw of the GPUs of each model, from their energy counters. Compare the peak with the "
            "available power and cooling.",
            over_time(_by_model("energy:watts"), "{{model}}"),
            unit="watt",
            width=12,
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Cost per hour by namespace",
            "Cost per hour of the ten most expensive namespaces, of owners outside Kubernetes and of "
            "unallocated GPUs. A large unallocated part means too many free GPUs.",
            over_time(
                top_over_range(f"namespace:gputally_cost:per_hour{{{MATCH_CLUSTER}}}", "namespace"),
                "{{namespace}}",
            ),
            over_time(f"sum(host:gputally_cost:per_hour{{{MATCH_CLUSTER}}})", "outside Kubernetes"),
            over_time(f"sum(cluster:gputally_unallocated_cost:per_hour{{{MATCH_CLUSTER}}})", "unallocated"),
            unit="short",
            width=12,
            stack=True,
            decimals=2,
            overrides=fields.colors_of({"unallocated": palette.FREE, "outside Kubernetes": palette.UNKNOWN}),
        ),
    ),
    row(
        "Nodes",
        table(
            "Nodes",
            "All nodes with GPUs, most idle GPUs first. Check a node that has a lost GPU or a high "
            "temperature.",
            rows(_of_nodes(_by_node("gpus:count"))),
            rows(_of_nodes(f"{_by_node('gpus:count')} - {_by_node('gpus_up:count')}")),
            rows(_of_nodes(_by_node("gpus_allocated:count"))),
            rows(_of_nodes(_by_node("idle:gpus"))),
            rows(_of_nodes(_by_node("utilization:ratio"))),
            rows(_of_nodes(_by_node("power:watts"))),
            rows(_of_nodes(f"max by (cluster, node) (gputally_gpu_temperature_celsius{{{MATCH_CLUSTER}}})")),
            columns=(
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="GPUs", width=80),
                column("Value #B", name="Lost", width=80, steps=fields.CELL_ANY_IS_CRITICAL),
                column("Value #C", name="Held", decimals=1, width=80),
                column("Value #D", name="Idle", decimals=1, width=100, steps=fields.CELL_ANY_IS_IDLE),
                share_column("Value #E", "Utilisation", width=300),
                column("Value #F", name="Power", unit="watt", width=120),
                column("Value #G", name="Hottest GPU", unit="celsius", width=120, steps=fields.CELL_HOT),
            ),
            hidden=("cluster",),
            order=("node", *value_columns(7)),
            sort_by="Idle",
            filterable=True,
            height=10,
        ),
    ),
    variables=(CLUSTER, MODEL),
    refresh="30s",
)
