"""Weeks and months: growth, capacity forecast, and deviations from the usual values.

Records are written once a minute, so their sums over time are GPU-minutes and watt-minutes.
"""

from collections.abc import Sequence

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, Target, now, over_time, rows, stat, timed, timeseries
from dashboards.queries import MATCH_CLUSTER, MATCH_GPU, MATCH_MODEL, MATCH_NAMESPACE, billed
from dashboards.tables import column, table, value_columns
from dashboards.variables import CLUSTER, MODEL, Variable

_ONE_NAMESPACE = Variable(
    "namespace", "Namespace", f"namespace:gputally_anomaly:input{{{MATCH_CLUSTER}}}", multi=False
)
_ONE_NODE = Variable("node", "Node", f"gpu:gputally_anomaly:input{{{MATCH_CLUSTER}}}", multi=False)
_ONE_GPU = Variable(
    "gpu", "GPU", f'gpu:gputally_anomaly:input{{{MATCH_CLUSTER}, node=~"$node"}}', multi=False
)
_DAY, _WEEK, _MONTH = 86400, 7 * 86400, 30 * 86400
_UPPER, _LOWER = "upper bound", "lower bound"


def _record(name: str, window: str = "") -> str:
    return f"model:gputally_{name}{{{MATCH_MODEL}}}{window}"


def _billed(name: str, matchers: str = "") -> str:
    return f"node:gputally_bill_{name}{{{MATCH_MODEL}{matchers}}}"


def _per_day(name: str) -> str:
    """Sums per 24 hours of the ten namespaces with the largest sums over the range."""
    recorded = f"workload:gputally_bill_{name}{{{MATCH_CLUSTER}}}"
    most = f"topk(10, sum by (namespace) (sum_over_time({recorded}[$__range] @ end())))"
    return f"{billed(recorded, 'namespace', '1d')} and on (namespace) {most}"


def _trend(function: str, seconds: int | None = None) -> str:
    """Linear regression of the held GPUs over the dashboard's range."""
    ahead = "" if seconds is None else f", {seconds}"
    return f"sum by (model) ({function}({_record('held:gpus', '[$__range:1h]')}{ahead}))"


_ALLOCATED = _billed("time:seconds", ', state!~"free|lost|unobserved"')
_IDLE = _billed("time:seconds", ', state="idle"')
_AVAILABLE = _billed("time:seconds", ', state!~"lost|unobserved"')
_HELD_LATELY = f"sum by (model) (avg_over_time({_record('held:gpus', '[7d]')}))"
_COUNT = f"sum by (model) ({_record('gpus:count')})"
_NEVER = 1e12
_SECONDS_TO_FULL = (
    f"clamp_min({_COUNT} - {_HELD_LATELY}, 0) / ({_trend('deriv')} > 0) or {_COUNT} * 0 + {_NEVER:.0f}"
)
# A forecast needs two weeks of history.
_FORECAST = (
    f"sum(clamp_min(predict_linear({_record('held:gpus', '[14d:2h] offset 7d')}, {_WEEK}), 0)"
    f" and {_record('held:gpus')} offset 20d)"
)
_NEVER_FULL = fields.above(_NEVER / 10, "no growth", palette.GOOD)
_NO_DATA = "no data"
_FULL_SOON = fields.thresholds(
    (2 * _WEEK, palette.WARNING), (2 * _MONTH, palette.GOOD), base=palette.CRITICAL
)


def _week_over_week(record: str, title: str, description: str, *, unit: str, color: str) -> Panel:
    return timed(
        timeseries(
            title,
            description,
            over_time(f"sum(avg_over_time({_record(record, '[1h]')}))", "now"),
            over_time(f"sum(avg_over_time({_record(record, '[1h] offset 1w')}))", "a week before"),
            unit=unit,
            width=12,
            legend="bottom",
            calcs=("mean", "max"),
            overrides=(
                fields.color_of("now", color),
                fields.override(
                    "a week before",
                    color={"mode": "fixed", "fixedColor": palette.FREE},
                    custom__lineStyle={"fill": "dash", "dash": [6, 6]},
                    custom__fillOpacity=0,
                ),
            ),
        ),
        step="1h",
    )


def _days(title: str, description: str, queries: Sequence[Target], unit: str) -> Panel:
    """A bar per day for the 24 hours before it."""
    return timed(
        timeseries(
            title,
            description,
            *queries,
            unit=unit,
            width=12,
            stack=True,
            bars=True,
            legend="bottom",
            calcs=("mean",),
        ),
        step="1d",
    )


def _band(name: str, chosen: str, title: str, description: str, *, unit: str) -> Panel:
    """The measured value and its usual range, computed from its own history."""
    level = name.partition("_")[0]

    def series(part: str) -> str:
        return f'max({level}:gputally_anomaly:{part}{{{chosen}, anomaly_name="{name}"}})'

    invisible = {"mode": "fixed", "fixedColor": palette.HELD}
    return timeseries(
        title,
        description,
        over_time(series("upper"), _UPPER),
        over_time(series("lower"), _LOWER),
        over_time(series("input"), "measured"),
        unit=unit,
        width=12,
        height=8,
        legend="bottom",
        calcs=("mean", "lastNotNull"),
        fill=0,
        overrides=(
            fields.override(
                _UPPER,
                color=invisible,
                custom__lineWidth=0,
                custom__fillOpacity=25,
                custom__fillBelowTo=_LOWER,
            ),
            fields.override(_LOWER, color=invisible, custom__lineWidth=0),
            fields.color_of("measured", palette.CRITICAL),
        ),
    )


def _outside() -> str:
    """All values outside their usual range now, with the side."""
    found = (
        f"label_replace({level}:gputally_anomaly:input{{{MATCH_CLUSTER}}} {than} "
        f'{level}:gputally_anomaly:{edge}{{{MATCH_CLUSTER}}}, "side", "{side}", "anomaly_name", ".*")'
        for level in ("gpu", "namespace")
        for edge, than, side in (("lower", "<", "too low"), ("upper", ">", "too high"))
    )
    return f"topk(100, max by (anomaly_name, side, node, gpu, namespace) ({' or '.join(found)}))"


DASHBOARD = dashboard(
    "trends",
    "Trends and anomalies",
    "Weeks and months: growth, capacity forecast, and deviations from the usual values.",
    row(
        "",
        stat(
            "GPU hours",
            "GPU hours held over the time range. Compare it with the idle share.",
            now(billed(_ALLOCATED)),
            unit="short",
            width=3,
        ),
        stat(
            "Idle share",
            "Share of the held GPU hours without activity. Below 20 % is good; above 50 %, more is idle "
            "than used.",
            now(f"{billed(_IDLE)} / {billed(_ALLOCATED)}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.LOWER_IS_BETTER,
            links=(links.link("Idle GPUs", "idle"),),
        ),
        stat(
            "Held share",
            "Held GPU hours as a share of the available ones. Above 90 %, work has to wait; below 30 %, "
            "there are too many GPUs.",
            now(f"{billed(_ALLOCATED)} / {billed(_AVAILABLE)}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.thresholds((0.3, palette.GOOD), (0.9, palette.WARNING), base=palette.WARNING),
        ),
        stat(
            "Energy",
            "Energy of the GPUs over the time range.",
            now(billed(_billed("meter:joules"))),
            unit="kwatth",
            width=3,
            steps=fields.POWER,
            links=(links.link("Energy and chargeback", "energy"),),
        ),
        stat(
            "Cost",
            "Cost of the GPUs over the time range, GPU hours and energy, at the prices set in the rules.",
            now(billed(_billed("cost:money"))),
            unit="short",
            width=3,
            links=(links.link("Energy and chargeback", "energy"),),
        ),
        stat(
            "Growth",
            "Growth of the held GPUs per week, by linear regression over the time range. Below 0 they "
            "decrease.",
            now(f"sum({_trend('deriv')}) * {_WEEK}"),
            unit="short",
            width=3,
            decimals=1,
            no_value=_NO_DATA,
        ),
        stat(
            "Forecast",
            "Held GPUs in 30 days if the trend continues. If it exceeds the number of GPUs, work will have "
            "to wait.",
            now(f"clamp_min(sum({_trend('predict_linear', _MONTH)}), 0)"),
            unit="short",
            width=3,
            decimals=1,
            no_value=_NO_DATA,
        ),
        stat(
            "Time left",
            "Time until all GPUs of one model are held if the trend continues. It should be longer than "
            "the delivery time of new GPUs.",
            now(f"min({_SECONDS_TO_FULL})"),
            unit="dtdurations",
            width=3,
            decimals=0,
            steps=_FULL_SOON,
            mappings=_NEVER_FULL,
        ),
        timed(
            timeseries(
                "Capacity",
                "Held GPUs compared with all GPUs. At the top, work has to wait. The dashed line is the "
                "forecast made a week earlier: the closer, the more reliable the forecast.",
                over_time(f"sum({_record('gpus:count')})", "all GPUs"),
                over_time(f"sum(max_over_time({_record('held:gpus', '[1d]')}))", "held, maximum of 24 h"),
                over_time(f"sum(avg_over_time({_record('held:gpus', '[1d]')}))", "held, mean of 24 h"),
                over_time(f"sum(avg_over_time({_record('busy:gpus', '[1d]')}))", "busy, mean of 24 h"),
                over_time(_FORECAST, "forecast"),
                unit="short",
                width=14,
                height=9,
                fill=0,
                legend="bottom",
                calcs=("mean", "lastNotNull"),
                overrides=(
                    *fields.colors_of(
                        {
                            "all GPUs": palette.FREE,
                            "held, maximum of 24 h": palette.IDLE,
                            "held, mean of 24 h": palette.HELD,
                            "busy, mean of 24 h": palette.BUSY,
                        }
                    ),
                    fields.override(
                        "forecast",
                        color={"mode": "fixed", "fixedColor": palette.UNKNOWN},
                        custom__lineStyle={"fill": "dash", "dash": [8, 6]},
                    ),
                    fields.override("busy, mean of 24 h", custom__fillOpacity=25),
                ),
            ),
            step="2h",
        ),
        table(
            "Forecast by model",
            "Forecast for each model by linear regression over the time range. Order GPUs of a model that "
            "is full soon, or reclaim idle ones.",
            rows(_COUNT),
            rows(_HELD_LATELY),
            rows(f"{_trend('deriv')} * {_WEEK}"),
            rows(f"clamp_min({_trend('predict_linear', _MONTH)}, 0)"),
            rows(_SECONDS_TO_FULL),
            columns=(
                column("model", name="Model"),
                column("Value #A", name="GPUs", width=55),
                column("Value #B", name="Held", decimals=1, width=55),
                column("Value #C", name="Per week", decimals=1, width=80),
                column("Value #D", name="In 30 days", decimals=1, width=95),
                column(
                    "Value #E",
                    name="Time to full",
                    unit="dtdurations",
                    decimals=0,
                    width=100,
                    steps=_FULL_SOON,
                    mappings=_NEVER_FULL,
                ),
            ),
            order=("model", *value_columns(5)),
            sort_by="GPUs",
            width=10,
            height=9,
        ),
        _week_over_week(
            "busy:gpus",
            "Busy GPUs, week over week",
            "Busy GPUs compared with the same time a week before. Investigate a lasting difference.",
            unit="short",
            color=palette.BUSY,
        ),
        _week_over_week(
            "energy:watts",
            "Power, week over week",
            "Power of all GPUs compared with the same time a week before. Investigate a lasting difference.",
            unit="watt",
            color=palette.POWER,
        ),
    ),
    row(
        "Anomalies (graphs: the chosen namespace and GPU)",
        timed(
            timeseries(
                "Anomalies",
                "GPUs and namespaces outside their usual range for long enough to raise an alert. Many at "
                "once have one cause: a rollout, an outage or a new workload.",
                over_time(
                    "count by (alertname) (ALERTS{"
                    f'alertname=~"GPUTallyAnomaly.+", alertstate="firing", {MATCH_CLUSTER}'
                    "})",
                    "{{alertname}}",
                ),
                unit="short",
                width=10,
                height=7,
                bars=True,
                legend="bottom",
                calcs=("max", "lastNotNull"),
                no_value="No anomalies",
            ),
            step="1h",
        ),
        table(
            "Current anomalies",
            "Values outside the usual range now. Normal is empty. A drop to 0 is often a hung job.",
            rows(_outside()),
            columns=(
                column("anomaly_name", name="Anomaly"),
                column("side", name="Side", width=90),
                column("Value", name="Measured", decimals=2, width=90),
                column("node", name="Node", link=links.TO_NODE),
                column("gpu", name="GPU", width=50, link=links.TO_GPU),
                column(
                    "namespace",
                    name="Namespace",
                    link=links.TO_NAMESPACE,
                ),
            ),
            no_value="No anomalies",
            order=("anomaly_name", "side", "Value", "node", "gpu", "namespace"),
            width=14,
            height=7,
        ),
        _band(
            "namespace_power_watts",
            MATCH_NAMESPACE,
            "Namespace power",
            "Power of the chosen namespace and its usual range. Outside the range, its workload has changed.",
            unit="watt",
        ),
        _band(
            "namespace_held_gpus",
            MATCH_NAMESPACE,
            "Namespace GPUs held",
            "GPUs that the chosen namespace holds, and the usual range. Above the range, it holds more "
            "than ever before.",
            unit="short",
        ),
        _band(
            "gpu_power_watts",
            MATCH_GPU,
            "GPU power",
            "Power of the chosen GPU and its usual range. Below the range with the same owner, its job can "
            "hang.",
            unit="watt",
        ),
        _band(
            "gpu_utilization_ratio",
            MATCH_GPU,
            "GPU utilisation",
            "Utilisation of the chosen GPU and its usual range. Below the range with the same owner, its "
            "job waits for work.",
            unit="percentunit",
        ),
    ),
    row(
        "Daily totals",
        _days(
            "Energy per day",
            "Energy of the GPUs of each model in the 24 hours before each bar.",
            (
                over_time(
                    billed(_billed("meter:joules"), "model", "1d"),
                    "{{model}}",
                ),
            ),
            "kwatth",
        ),
        _days(
            "Cost per day by namespace",
            "Cost of the ten most expensive namespaces in the 24 hours before each bar, GPU hours and "
            "energy.",
            (over_time(_per_day("cost:money"), "{{namespace}}"),),
            "short",
        ),
        _days(
            "Idle GPU hours per day",
            "Held GPU hours without activity in the 24 hours before each bar, by namespace. If it stays "
            "high for weeks, reduce the requests.",
            (over_time(_per_day("idle:seconds"), "{{namespace}}"),),
            "short",
        ),
        _days(
            "GPUs with XID errors per day",
            "Number of GPUs with an XID of each code in the 24 hours before each bar. A code that spreads "
            "points to a driver or an application; one that stays on a GPU points to that GPU.",
            (
                over_time(
                    "count by (xid) (max by (cluster, node, uuid, xid) (max_over_time("
                    f"gputally_gpu_xid_last_timestamp_seconds{{{MATCH_CLUSTER}}}[1d])) > time() - {_DAY})",
                    "XID {{xid}}",
                ),
            ),
            "short",
        ),
    ),
    variables=(CLUSTER, MODEL, _ONE_NAMESPACE, _ONE_NODE, _ONE_GPU),
    since="now-30d",
    refresh="15m",
    annotate=False,
)
