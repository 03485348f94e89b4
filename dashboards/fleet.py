"""The page that stays open: is the fleet well, is it used, and what does it cost?

It reads what is recorded per model, node and namespace, and of GPUs that have a problem, so that ten thousand
of them load as fast as ten. Only the table of nodes asks the GPUs themselves, and only for now.
"""

from dashboards import fields, links, palette, ranges
from dashboards.build import dashboard, row
from dashboards.panels import alert_list, heatmap, now, over_time, rows, stat, table, timed, timeseries
from dashboards.variables import CLUSTER, MODEL_OF_FLEET

_CLUSTER = 'cluster=~"$cluster"'
_MODEL = f'{_CLUSTER}, model=~"$model"'

_MORE_IS_BETTER = fields.thresholds((0.3, palette.WARNING), (0.6, palette.GOOD), base=palette.CRITICAL)
_ANY_IS_BAD = fields.thresholds((1, palette.CRITICAL), base=palette.CLEAR)
_ANY_IS_IDLE = fields.thresholds((0.5, palette.IDLE), base=palette.CLEAR)
_ANY_IS_WARNING = fields.thresholds((1, palette.WARNING), base=palette.CLEAR)
_CLEAR = fields.thresholds(base=palette.CLEAR)
_HEAT = fields.thresholds((80, palette.WARNING), (90, palette.CRITICAL), base=palette.CLEAR)
_STATES = {
    "busy": palette.BUSY,
    "held, idle": palette.IDLE,
    "held, use not known": palette.UNKNOWN,
    "free": palette.FREE,
    "lost": palette.CRITICAL,
}


def _total(record: str) -> str:
    return f"sum(model:gputally_{record}{{{_MODEL}}})"


def _by_model(record: str) -> str:
    return f"sum by (model) (model:gputally_{record}{{{_MODEL}}})"


def _by_namespace(record: str) -> str:
    return f"sum by (namespace) (namespace:gputally_{record}{{{_CLUSTER}}})"


def _of_nodes(expr: str) -> str:
    """Of the nodes that have a GPU of the chosen models."""
    return f"{expr} and on (cluster, node) max by (cluster, node) (gputally_gpu_info{{{_MODEL}}})"


def _by_node(record: str) -> str:
    return f"sum by (cluster, node) (node:gputally_{record}{{{_CLUSTER}}})"


def _utilization(by: str = "") -> str:
    """Over models, weighted by how many GPUs of each there are."""
    busy = f"model:gputally_utilization:ratio{{{_MODEL}}} * model:gputally_gpus_up:count{{{_MODEL}}}"
    return f"sum{by} ({busy}) / sum{by} (model:gputally_gpus_up:count{{{_MODEL}}})"


def _alerts(severity: str) -> str:
    chosen = f'alertname=~"GPUTally.+", alertstate="firing", severity="{severity}", {_CLUSTER}'
    return f"count(ALERTS{{{chosen}}}) or vector(0)"


_TO_NODE = links.by_row("Node", "node", "node")
_TO_GPU = links.by_row("GPU", "node", "node", "gpu")
_TO_NAMESPACE = links.by_row("Workloads", "workloads", "namespace")
_TO_MODEL = links.by_row("This model only", "fleet", "model")

DASHBOARD = dashboard(
    "fleet",
    "Fleet",
    "All GPUs at a glance: are they well, are they used, and what do they cost?",
    row(
        "",
        stat(
            "GPUs",
            "GPUs that the exporters know of, and how many of them do not answer. 0 lost is good; else "
            "Worst GPUs has their names.",
            now(_total("gpus:count"), "all"),
            now(f"{_total('gpus:count')} - {_total('gpus_up:count')}", "lost"),
            unit="short",
            width=4,
            steps=_CLEAR,
            overrides=(fields.override("lost", thresholds=_ANY_IS_BAD),),
            background=True,
            links=(links.link("Health", "health"),),
        ),
        stat(
            "Alerts",
            "Alerts that fire now. Critical ones ask for somebody at once; 0 is good.",
            now(_alerts("critical"), "critical"),
            now(_alerts("warning"), "warning"),
            unit="short",
            width=4,
            steps=_CLEAR,
            overrides=(
                fields.override("critical", thresholds=_ANY_IS_BAD),
                fields.override("warning", thresholds=_ANY_IS_WARNING),
            ),
            background=True,
            links=(links.link("Health", "health"),),
        ),
        stat(
            "Held",
            "Share of the GPUs that somebody holds. Near 100 % new work has to wait; under 30 % there are "
            "more GPUs than are needed.",
            over_time(f"{_total('gpus_allocated:count')} / {_total('gpus_up:count')}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.thresholds((0.3, palette.GOOD), (0.95, palette.WARNING), base=palette.WARNING),
            sparkline=True,
        ),
        stat(
            "Utilisation",
            "Share of the time in which the GPUs ran something. Above 60 % is good; under 30 % most of what "
            "is paid for does nothing.",
            over_time(_utilization()),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=_MORE_IS_BETTER,
            sparkline=True,
        ),
        stat(
            "Held idle",
            "GPUs that somebody holds and does not use, counted by time. Near 0 is good: others could have "
            "them.",
            over_time(_total("idle:gpus")),
            unit="short",
            width=3,
            decimals=1,
            steps=fields.thresholds((0.5, palette.IDLE)),
            sparkline=True,
            links=(links.link("Idle GPUs", "idle"),),
        ),
        stat(
            "Power",
            "What all GPUs draw now. Neither good nor bad in itself: compare it with what the room can cool.",
            over_time(_total("power:watts")),
            unit="watt",
            width=3,
            steps=fields.thresholds(base=palette.POWER),
            sparkline=True,
        ),
        timed(
            stat(
                "Today",
                "What all GPUs have used and cost since midnight: hours and energy, at the prices that are "
                "set in the rules.",
                now(ranges.hours(f"model:gputally_cost:per_hour{{{_MODEL}}}"), "cost"),
                now(ranges.kilowatt_hours(f"model:gputally_energy:watts{{{_MODEL}}}"), "energy"),
                unit="short",
                width=4,
                decimals=0,
                overrides=(
                    fields.override(
                        "energy", unit="kwatth", thresholds=fields.thresholds(base=palette.POWER)
                    ),
                ),
                links=(links.link("Energy and chargeback", "energy"),),
            ),
            since="now/d",
        ),
        timeseries(
            "What the GPUs do",
            "Every GPU is in one of these states. Blue is what one pays for; yellow is held by somebody and "
            "does nothing; grey is free for new work; red does not answer.",
            over_time(_total("busy:gpus"), "busy"),
            over_time(_total("idle:gpus"), "held, idle"),
            over_time(
                f"{_total('held:gpus')} - ({_total('busy:gpus')} or vector(0))"
                f" - ({_total('idle:gpus')} or vector(0)) > 0.01",
                "held, use not known",
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
            "GPUs by model: how many there are, do not answer, are held, work, and what they draw and cost. "
            "Much held with little utilisation is waste.",
            rows(_by_model("gpus:count")),
            rows(f"{_by_model('gpus:count')} - {_by_model('gpus_up:count')}"),
            rows(f"{_by_model('gpus_allocated:count')} / {_by_model('gpus:count')}"),
            rows(_utilization(" by (model)")),
            rows(f"{_by_model('memory_used:bytes')} / {_by_model('memory_total:bytes')}"),
            rows(_by_model("power:watts")),
            rows(_by_model("cost:per_hour")),
            columns=(
                fields.column("model", name="Model", width=190, link=_TO_MODEL),
                fields.column("Value #A", name="GPUs", width=60),
                fields.column("Value #B", name="Lost", width=50, steps=_ANY_IS_BAD),
                fields.share("Value #C", "Held"),
                fields.share("Value #D", "Utilisation"),
                fields.share("Value #E", "Memory"),
                fields.column("Value #F", name="Power", unit="watt", width=80),
                fields.column("Value #G", name="Cost/hour", unit="short", decimals=2, width=85),
            ),
            order=("model", *(f"Value #{letter}" for letter in "ABCDEFG")),
            sort_by="GPUs",
            width=14,
            height=9,
        ),
        table(
            "Worst GPUs",
            "GPUs that somebody has to look at, the worst first; at most 50. Empty is what one wants.",
            rows(
                "topk(50, max by (cluster, node, gpu, uuid, model, problem) "
                f"(gpu:gputally_problem:severity{{{_MODEL}}}))"
            ),
            columns=(
                fields.column(
                    "Value",
                    name="How bad",
                    width=80,
                    mappings=fields.words(
                        {
                            3: ("critical", palette.CRITICAL),
                            2: ("warning", palette.WARNING),
                            1: ("suspicion", palette.HELD),
                        }
                    ),
                ),
                fields.column("problem", name="Problem", width=230),
                fields.column("node", name="Node", link=_TO_NODE),
                fields.column("gpu", name="GPU", width=50, link=_TO_GPU),
                fields.column("model", name="Model"),
            ),
            hidden=("cluster", "uuid"),
            order=("Value", "problem", "node", "gpu", "model"),
            sort_by="How bad",
            no_value="No GPU asks for anybody",
            width=12,
            height=9,
        ),
        alert_list(
            "Alerts",
            "Alerts of GPUTally that fire now. Their names lead to what they mean and what to do.",
            width=12,
            height=9,
        ),
    ),
    row(
        "How busy, and who",
        timed(
            heatmap(
                "How busy the GPUs are",
                "How many GPUs are how busy, over time: a bright band at the top is a fleet at work, one at "
                "the bottom a fleet that waits.",
                over_time(
                    f"sum by (utilization) (model:gputally_gpus_by_utilization:count{{{_MODEL}}})"
                    # Grafana 10 fails to draw less than two columns: there is one of 0 GPUs at every step.
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
            "Who holds the most GPUs, what part of them works, and what it costs. Much under idle is what "
            "to talk about.",
            rows(f"topk(50, {_by_namespace('held:gpus')})"),
            rows(_by_namespace("busy:gpus")),
            rows(_by_namespace("idle:gpus")),
            # Who shares a GPU may keep it busy for longer than its part.
            rows(f"clamp_max({_by_namespace('busy:gpus')} / ({_by_namespace('held:gpus')} > 0), 1)"),
            rows(_by_namespace("energy:watts")),
            rows(_by_namespace("cost:per_hour")),
            columns=(
                fields.column("namespace", name="Namespace", width=140, link=_TO_NAMESPACE),
                fields.column("Value #A", name="GPUs held", decimals=1, width=90),
                fields.column("Value #B", name="Busy", decimals=1, width=60),
                fields.column("Value #C", name="Idle", decimals=1, width=60, steps=_ANY_IS_IDLE),
                fields.share("Value #D", "Works"),
                fields.column("Value #E", name="Power", unit="watt", width=80),
                fields.column("Value #F", name="Cost/hour", unit="short", decimals=2, width=85),
            ),
            order=("namespace", *(f"Value #{letter}" for letter in "ABCDEF")),
            sort_by="GPUs held",
            width=12,
            height=9,
        ),
    ),
    row(
        "Over time",
        timeseries(
            "Utilisation by model",
            "Mean utilisation of the GPUs of each model. Above 60 % is good; a model that stays low was "
            "bought for nothing or is given to the wrong work.",
            over_time(_utilization(" by (model)"), "{{model}}"),
            unit="percentunit",
            most=1,
            width=8,
            fill=0,
            legend="bottom",
            calcs=(),
        ),
        timeseries(
            "Held by model",
            "Share of each model's GPUs that somebody holds. At 100 % new work for that model has to wait.",
            over_time(f"{_by_model('gpus_allocated:count')} / {_by_model('gpus:count')}", "{{model}}"),
            unit="percentunit",
            most=1,
            width=8,
            fill=0,
            legend="bottom",
            calcs=(),
        ),
        timeseries(
            "Memory by model",
            "Share of each model's memory that is taken. Full is not bad in itself; full at a low "
            "utilisation is work that only sits there.",
            over_time(f"{_by_model('memory_used:bytes')} / {_by_model('memory_total:bytes')}", "{{model}}"),
            unit="percentunit",
            most=1,
            width=8,
            fill=0,
            legend="bottom",
            calcs=(),
        ),
        timeseries(
            "Power by model",
            "What the GPUs draw, from their energy counters. Compare the top with what the room can cool.",
            over_time(_by_model("energy:watts"), "{{model}}"),
            unit="watt",
            width=12,
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Cost per hour by namespace",
            "GPU hours and energy of the ten namespaces that cost the most, and what nobody is charged for. "
            "The part of nobody is what free GPUs cost.",
            over_time(
                ranges.largest(f"namespace:gputally_cost:per_hour{{{_CLUSTER}}}", "namespace"),
                "{{namespace}}",
            ),
            over_time(f"sum(host:gputally_cost:per_hour{{{_CLUSTER}}})", "not in Kubernetes"),
            over_time(f"sum(cluster:gputally_unallocated_cost:per_hour{{{_CLUSTER}}})", "nobody"),
            unit="short",
            width=12,
            stack=True,
            decimals=2,
            overrides=fields.colors_of({"nobody": palette.FREE, "not in Kubernetes": palette.UNKNOWN}),
        ),
    ),
    row(
        "Nodes",
        table(
            "Nodes",
            "Every node that has GPUs, those that waste the most first. A lost GPU or a high temperature "
            "asks for a look at the node.",
            rows(_of_nodes(_by_node("gpus:count"))),
            rows(_of_nodes(f"{_by_node('gpus:count')} - {_by_node('gpus_up:count')}")),
            rows(_of_nodes(_by_node("gpus_allocated:count"))),
            rows(_of_nodes(_by_node("idle:gpus"))),
            rows(_of_nodes(_by_node("utilization:ratio"))),
            rows(_of_nodes(_by_node("power:watts"))),
            rows(_of_nodes(f"max by (cluster, node) (gputally_gpu_temperature_celsius{{{_CLUSTER}}})")),
            columns=(
                fields.column("node", name="Node", link=_TO_NODE),
                fields.column("Value #A", name="GPUs", width=80),
                fields.column("Value #B", name="Lost", width=80, steps=_ANY_IS_BAD),
                fields.column("Value #C", name="Held", decimals=1, width=80),
                fields.column("Value #D", name="Held, idle", decimals=1, width=100, steps=_ANY_IS_IDLE),
                fields.share("Value #E", "Utilisation", width=300),
                fields.column("Value #F", name="Power", unit="watt", width=120),
                fields.column("Value #G", name="Hottest GPU", unit="celsius", width=120, steps=_HEAT),
            ),
            hidden=("cluster",),
            order=("node", *(f"Value #{letter}" for letter in "ABCDEFG")),
            sort_by="Held, idle",
            filterable=True,
            height=10,
        ),
    ),
    variables=(CLUSTER, MODEL_OF_FLEET),
    refresh="30s",
)
