"""The bill: energy, cost and CO2 of a time range by namespace, workload and model, and the ledger error.

All sums are of the records of the bill, so that charged and unattributed energy add up to the energy
counters.
"""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import bar_gauge, now, over_time, pie, rows, stat, timeseries
from dashboards.queries import (
    BY_WORKLOAD,
    MATCH_CLUSTER,
    MATCH_NAMESPACE,
    billed,
    or_zero,
    top_over_range,
)
from dashboards.tables import column, hidden_columns, share_column, table, value_columns
from dashboards.variables import CLUSTER, NAMESPACE

_HOST, _UNALLOCATED = "(outside Kubernetes)", "(unallocated)"

_PODS_COLOR, _HOST_COLOR = palette.BUSY, palette.HELD
_CHARGED_COLORS = {
    "pods": _PODS_COLOR,
    "outside Kubernetes": _HOST_COLOR,
    **{f"unattributed: {reason}": color for reason, color in palette.BY_REASON.items()},
}
_MEASURED_LINE = fields.override(
    "measured",
    color={"mode": "fixed", "fixedColor": palette.POWER},
    custom__stacking={"mode": "none", "group": "B"},
    custom__fillOpacity=0,
    custom__lineWidth=2,
)


def _all(level: str, record: str, matchers: str = "") -> str:
    """Of the whole cluster, whichever namespace is chosen: the energy counters cover all owners."""
    return f"{level}:gputally_{record}{{{MATCH_CLUSTER}{matchers}}}"


def _of_nodes(record: str, matchers: str = "") -> str:
    return _all("node", f"bill_{record}", matchers)


def _namespaces(record: str) -> str:
    return f"namespace:gputally_{record}{{{MATCH_NAMESPACE}}}"


def _by_namespace(record: str, by: str) -> str:
    return billed(f"workload:gputally_bill_{record}{{{MATCH_NAMESPACE}}}", by)


def _workloads(record: str) -> str:
    return _by_namespace(record, BY_WORKLOAD)


def _models(record: str) -> str:
    return billed(_of_nodes(record), "model")


def _owners(record: str) -> str:
    return billed(_all("host", f"bill_{record}"), "cluster, node, owner")


_UNALLOCATED_TIME = ', state=~"free|lost|unobserved"'
_UNATTRIBUTED = ', reason!=""'
_MEASURED_ENERGY = billed(_of_nodes("meter:joules"))
_PODS_ENERGY = or_zero(billed(_all("workload", "bill_energy:joules")))
_HOST_ENERGY = or_zero(billed(_all("host", "bill_energy:joules")))
_UNATTRIBUTED_ENERGY = or_zero(billed(_of_nodes("energy:joules", _UNATTRIBUTED)))
_MISSING_ENERGY = f"{_MEASURED_ENERGY} - {_PODS_ENERGY} - {_HOST_ENERGY} - {_UNATTRIBUTED_ENERGY}"
_COST = billed(_of_nodes("cost:money"))
_UNALLOCATED_COST = or_zero(billed(_of_nodes("unallocated_cost:money")))
_CO2 = billed(_of_nodes("co2:grams"))


def _unattributed_watts(reason: str) -> str:
    return f'cluster:gputally_unattributed:watts{{{MATCH_CLUSTER}, reason="{reason}"}}'


def _unattributed_energy(reason: str) -> str:
    return or_zero(billed(_of_nodes("energy:joules", f', reason="{reason}"')))


def _line(expression: str, name: str) -> str:
    """A line of the bill that is not a namespace; it links to all namespaces."""
    named = f'label_replace({expression}, "namespace", "{name}", "cluster", ".*")'
    return f'label_replace({named}, "linked", "All", "cluster", ".*")'


def _bill(record: str, unallocated: str = "") -> str:
    """The bill by namespace, with lines for all other owners, so that it adds up to the total."""
    namespaces = _by_namespace(record, "cluster, namespace")
    lines = [
        f'label_replace({namespaces}, "linked", "$1", "namespace", "(.+)")',
        _line(billed(_all("host", f"bill_{record}"), "cluster"), _HOST),
        *([_line(billed(unallocated, "cluster"), _UNALLOCATED)] if unallocated else []),
    ]
    return f"sum by (namespace, linked) ({' or '.join(lines)})"


_COST_BILL = _bill("cost:money", _of_nodes("unallocated_cost:money"))
_CHARGED = f'{{__name__=~"(workload|host):gputally_bill_energy:joules", {MATCH_NAMESPACE}}}'
_LEDGER_CHARGED = f'{{__name__=~"gputally_(pod|host|gpu_unattributed)_energy_joules_total", {MATCH_CLUSTER}}}'
_BY_LEDGER = "cluster, node, instance, gpu"


_BY_BASIS = billed(_CHARGED, "basis")

_TO_LINKED = links.by_row("Pods of this namespace", "workloads", namespace="linked")

DASHBOARD = dashboard(
    "energy",
    "Energy and chargeback",
    "Energy, cost and CO2 of the GPUs over the time range, by owner, and a check that the ledger balances.",
    row(
        "",
        stat(
            "Energy",
            "Energy of all GPUs over the time range, from their energy counters.",
            now(_MEASURED_ENERGY),
            unit="kwatth",
            width=4,
            decimals=2,
            steps=fields.POWER,
        ),
        stat(
            "Cost",
            "Cost of all GPUs over the time range, GPU hours and energy, at the prices set in the rules "
            "(see Prices below).",
            now(_COST),
            width=4,
            **fields.MONEY,
        ),
        stat(
            "CO2",
            "Emissions of this energy, at the grams per kWh set in the rules.",
            now(_CO2),
            unit="massg",
            width=4,
            decimals=2,
        ),
        stat(
            "Allocated cost",
            "Share of the cost that is charged to owners; the rest is unallocated. Above 70 % is good; "
            "below 40 %, most of the cost is for free GPUs.",
            now(f"1 - {_UNALLOCATED_COST} / {_COST}"),
            unit="percentunit",
            width=4,
            decimals=1,
            steps=fields.thresholds(
                (0, palette.CRITICAL), (0.4, palette.WARNING), (0.7, palette.GOOD), base=palette.FREE
            ),
        ),
        stat(
            "Unallocated cost",
            "Cost of free GPUs and of unattributed energy. Divide it among all owners, or save it by "
            "running fewer GPUs.",
            now(_UNALLOCATED_COST),
            width=4,
            steps=fields.thresholds(base=palette.FREE),
            links=(links.link("Idle GPUs", "idle"),),
            **fields.MONEY,
        ),
        stat(
            "Ledger error",
            "Difference between the energy counters and the sum of charged and unattributed energy over "
            "the time range. Normal is 0. Otherwise series of owners were removed before Prometheus had "
            "read them: it did not scrape or evaluate for longer than --retention (5 minutes), or a "
            "relabeling or a sample limit drops them.",
            now(f"abs({_MISSING_ENERGY}) / ({_MEASURED_ENERGY} > 0)"),
            unit="percentunit",
            width=4,
            decimals=2,
            steps=fields.thresholds(
                (0, palette.GOOD), (0.01, palette.WARNING), (0.05, palette.CRITICAL), base=palette.FREE
            ),
            background=True,
        ),
        table(
            "Bill by namespace",
            "Cost, GPU hours, energy and CO2 of each namespace over the time range. With the lines for "
            "unallocated GPUs and owners outside Kubernetes it adds up to the totals above. Start with "
            "high idle cost.",
            rows(_COST_BILL),
            rows(f"{_COST_BILL} / on () group_left () ({_COST} > 0)"),
            rows(_bill("allocated:seconds", _of_nodes("time:seconds", _UNALLOCATED_TIME))),
            rows(_bill("energy:joules", _of_nodes("energy:joules", _UNATTRIBUTED))),
            rows(_bill("co2:grams", _of_nodes("co2:grams", _UNATTRIBUTED))),
            rows(_bill("idle_cost:money")),
            columns=(
                column("namespace", name="Namespace", link=_TO_LINKED),
                *hidden_columns("linked"),
                column("Value #A", name="Cost", width=80, **fields.MONEY),
                share_column("Value #B", "Share", width=120, decimals=1),
                column("Value #C", name="GPU hours", unit="none", decimals=1, width=90),
                column("Value #D", name="Energy", unit="kwatth", decimals=2, width=95),
                column("Value #E", name="CO2", unit="massg", decimals=1, width=85),
                column("Value #F", name="Idle cost", width=100, **fields.MONEY),
            ),
            order=("namespace", *value_columns(6)),
            sort_by="Cost",
            width=15,
            height=10,
        ),
        pie(
            "Cost by namespace",
            "Cost over the time range: the eight most expensive namespaces, the others, owners outside "
            "Kubernetes, and unallocated. A large unallocated part means too many free GPUs.",
            now(f"topk(8, {_by_namespace('cost:money', 'namespace')})", "{{namespace}}"),
            now(
                f"{_by_namespace('cost:money', '')}"
                f" - sum(topk(8, {_by_namespace('cost:money', 'namespace')})) > 0.005",
                "other namespaces",
            ),
            now(billed(_all("host", "bill_cost:money")), "outside Kubernetes"),
            now(_UNALLOCATED_COST, "unallocated"),
            unit="none",
            width=9,
            height=10,
            decimals=2,
            overrides=fields.colors_of(
                {
                    "unallocated": palette.FREE,
                    "outside Kubernetes": _HOST_COLOR,
                    "other namespaces": palette.NEUTRAL,
                }
            ),
        ),
        timeseries(
            "Charged and measured power",
            "Stacked: power charged to pods and other owners, and unattributed power. Line: power measured "
            "by the energy counters. Normal is that both are equal; a gap below the line is energy "
            "missing from the bill.",
            over_time(f"sum({_all('namespace', 'energy:watts')})", "pods"),
            over_time(f"sum({_all('host', 'energy:watts')})", "outside Kubernetes"),
            *(
                over_time(f"sum({_unattributed_watts(reason)})", f"unattributed: {reason}")
                for reason in palette.BY_REASON
            ),
            over_time(f"sum({_all('cluster', 'energy:watts')})", "measured"),
            unit="watt",
            width=15,
            height=8,
            stack=True,
            overrides=(*fields.colors_of(_CHARGED_COLORS), _MEASURED_LINE),
            calcs=("mean",),
        ),
        bar_gauge(
            "Charged and measured energy",
            "The same over the time range: the other bars add up to the measured energy. Idle is the "
            "energy of free GPUs; unknown and unobserved should be near 0.",
            now(_MEASURED_ENERGY, "measured"),
            now(_PODS_ENERGY, "pods"),
            now(_HOST_ENERGY, "outside Kubernetes"),
            *(now(_unattributed_energy(reason), f"unattributed: {reason}") for reason in palette.BY_REASON),
            unit="kwatth",
            width=9,
            height=8,
            decimals=2,
            overrides=fields.colors_of({**_CHARGED_COLORS, "measured": palette.POWER}),
        ),
    ),
    row(
        "Workloads and other owners",
        table(
            "Bill by workload",
            "Deployments, jobs and other workloads with all their pods; the 200 most expensive. Workload "
            "names need the exporter flag --kubernetes; without it each namespace has one line.",
            rows(f"topk(200, {_workloads('cost:money')})"),
            rows(_workloads("allocated:seconds")),
            rows(_workloads("energy:joules")),
            rows(_workloads("co2:grams")),
            rows(_workloads("idle_cost:money")),
            columns=(
                column("namespace", name="Namespace", width=110, link=links.TO_NAMESPACE),
                column("workload", name="Workload"),
                column("Value #A", name="Cost", width=80, **fields.MONEY),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=90),
                column("Value #C", name="Energy", unit="kwatth", decimals=2, width=95),
                column("Value #D", name="CO2", unit="massg", decimals=1, width=85),
                column("Value #E", name="Idle cost", width=100, **fields.MONEY),
            ),
            hidden=("cluster",),
            order=("namespace", "workload", *value_columns(5)),
            sort_by="Cost",
            only_with="Value #A",
            width=14,
            height=10,
        ),
        table(
            "Owners outside Kubernetes",
            "Slurm jobs, containers, services and sessions that are not pods; the 100 most expensive. In a "
            "cluster there should be few, because no namespace is charged for them.",
            rows(f"topk(100, {_owners('cost:money')})"),
            rows(_owners("allocated:seconds")),
            rows(_owners("energy:joules")),
            columns=(
                column("owner", name="Owner"),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="Cost", width=75, **fields.MONEY),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=90),
                column("Value #C", name="Energy", unit="kwatth", decimals=2, width=95),
            ),
            hidden=("cluster",),
            order=("owner", "node", *value_columns(3)),
            sort_by="Cost",
            only_with="Value #A",
            width=10,
            height=10,
        ),
    ),
    row(
        "Prices",
        table(
            "Bill by model",
            "GPU hours, energy and cost of the GPUs of each model, for all owners. A large unallocated "
            "share means free GPUs.",
            rows(_models("cost:money")),
            rows(f"{_models('unallocated_cost:money')} / ({_models('cost:money')} > 0)"),
            rows(_models("time:seconds")),
            rows(_models("meter:joules")),
            rows(_models("co2:grams")),
            rows(f"max by (model) (gpu:gputally_price:per_hour{{{MATCH_CLUSTER}}})"),
            columns=(
                column("model", name="Model", link=links.TO_MODEL),
                column("Value #A", name="Cost", width=80, **fields.MONEY),
                share_column("Value #B", "Unallocated", width=130, decimals=1),
                column("Value #C", name="GPU hours", unit="none", decimals=1, width=90),
                column("Value #D", name="Energy", unit="kwatth", decimals=2, width=95),
                column("Value #E", name="CO2", unit="massg", decimals=1, width=85),
                column("Value #F", name="Price per hour", width=130, **fields.MONEY),
            ),
            order=("model", *value_columns(6)),
            sort_by="Cost",
            width=16,
            height=7,
        ),
        stat(
            "Price per kWh",
            "Price of a kilowatt-hour at the GPU: the configured price times the power usage effectiveness "
            "(PUE). 0 if the price per GPU hour includes energy.",
            now(
                f"1000 * sum({_all('cluster', 'energy_cost:per_hour')})"
                f" / (sum({_all('cluster', 'energy:watts')}) > 0)"
            ),
            unit="none",
            width=4,
            height=7,
            decimals=3,
        ),
        stat(
            "CO2 per kWh",
            "Emissions of a kilowatt-hour at the GPU: the configured grams times the power usage "
            "effectiveness (PUE). Below 100 g is low; the world average is 445 g.",
            now(
                f"1000 * sum({_all('cluster', 'co2:grams_per_hour')})"
                f" / (sum({_all('cluster', 'energy:watts')}) > 0)"
            ),
            unit="massg",
            width=4,
            height=7,
            decimals=0,
        ),
    ),
    row(
        "Over time",
        timeseries(
            "Cost per hour by namespace",
            "Cost per hour of the ten most expensive namespaces, of owners outside Kubernetes and of "
            "unallocated GPUs.",
            over_time(top_over_range(_namespaces("cost:per_hour"), "namespace"), "{{namespace}}"),
            over_time(f"sum({_all('host', 'cost:per_hour')})", "outside Kubernetes"),
            over_time(f"sum({_all('cluster', 'unallocated_cost:per_hour')})", "unallocated"),
            unit="none",
            decimals=2,
            stack=True,
            overrides=fields.colors_of({"unallocated": palette.FREE, "outside Kubernetes": _HOST_COLOR}),
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Power by namespace",
            "Power charged to the ten namespaces that use the most energy. Shared peaks determine the "
            "cooling that is needed.",
            over_time(top_over_range(_namespaces("energy:watts"), "namespace"), "{{namespace}}"),
            unit="watt",
            stack=True,
            links=(links.SERIES_TO_NAMESPACE,),
            legend="bottom",
            calcs=("mean",),
        ),
    ),
    row(
        "Charging basis",
        timeseries(
            "Power by basis",
            "Basis of the charged power. Measured: one owner was alone on the GPU. Shared: divided among "
            "several owners by their activity; exact only in sum. Held: idle power, in equal parts for the "
            "holders of the GPU.",
            over_time(f"sum by (basis) ({_CHARGED}) / 60", "{{basis}}"),
            unit="watt",
            stack=True,
            overrides=fields.colors_of(palette.BY_BASIS),
            width=11,
            legend="bottom",
            calcs=("mean",),
        ),
        pie(
            "Energy by basis",
            "The same over the time range. A large measured share makes the bill precise; a large held "
            "share means idle GPUs.",
            now(_BY_BASIS, "{{basis}}"),
            unit="kwatth",
            width=8,
            overrides=fields.colors_of(palette.BY_BASIS),
        ),
        stat(
            "Largest ledger error",
            "Largest difference between the energy counter of a GPU and all energy ever charged for it, in "
            "the last scrape. Normal is 0; 1 J or more is a defect or lost series.",
            now(
                f"round(max(abs(sum by ({_BY_LEDGER}) (gputally_gpu_energy_joules_total{{{MATCH_CLUSTER}}})"
                f" - sum by ({_BY_LEDGER}) ({_LEDGER_CHARGED}))), 0.001)"
            ),
            unit="joule",
            width=5,
            height=8,
            decimals=3,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
        ),
    ),
    variables=(CLUSTER, NAMESPACE),
    since="now-24h",
    refresh="5m",
)
