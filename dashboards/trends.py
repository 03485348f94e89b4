"""Weeks and months: how the fleet grows, when it is full, and who is unlike their own past.

Sums over time of what is recorded once a minute are GPU-minutes, watt-minutes and money per 60 hours.
"""

from collections.abc import Sequence

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, Target, now, over_time, rows, stat, timed, timeseries
from dashboards.queries import MATCH_CLUSTER, MATCH_GPU, MATCH_MODEL, MATCH_NAMESPACE, hours, kilowatt_hours
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
_UPPER, _LOWER = "usual, at most", "usual, at least"


def _record(name: str, window: str = "") -> str:
    return f"model:gputally_{name}{{{MATCH_MODEL}}}{window}"


def _per_day(name: str) -> str:
    """Of the ten namespaces of which there was the most in the whole range, so much in each 24 hours."""
    recorded = f"namespace:gputally_{name}{{{MATCH_CLUSTER}}}"
    most = f"topk(10, sum by (namespace) (sum_over_time({recorded}[$__range] @ end())))"
    return f"sum by (namespace) (sum_over_time({recorded}[1d]) / 60) and on (namespace) {most}"


def _trend(function: str, seconds: int | None = None) -> str:
    """Of the GPUs that are held, as a straight line through the range of the page."""
    ahead = "" if seconds is None else f", {seconds}"
    return f"sum by (model) ({function}({_record('held:gpus', '[$__range:1h]')}{ahead}))"


_HELD_LATELY = f"sum by (model) (avg_over_time({_record('held:gpus', '[7d]')}))"
_COUNT = f"sum by (model) ({_record('gpus:count')})"
_NEVER = 1e12
_SECONDS_TO_FULL = (
    f"clamp_min({_COUNT} - {_HELD_LATELY}, 0) / ({_trend('deriv')} > 0) or {_COUNT} * 0 + {_NEVER:.0f}"
)
# Without two weeks of history there is no forecast.
_FORETOLD = (
    f"sum(clamp_min(predict_linear({_record('held:gpus', '[14d:2h] offset 7d')}, {_WEEK}), 0)"
    f" and {_record('held:gpus')} offset 20d)"
)
_NOT_IN_SIGHT = fields.above(_NEVER / 10, "not in sight", palette.GOOD)
_NOT_YET = "not yet"
_FULL_SOON = fields.thresholds(
    (2 * _WEEK, palette.WARNING), (2 * _MONTH, palette.GOOD), base=palette.CRITICAL
)


def _this_week_and_last(record: str, title: str, description: str, *, unit: str, color: str) -> Panel:
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
    """A bar for each day, of the 24 hours before it."""
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
    """What is, before the band that its own past lets expect."""
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
    """Everything that is outside its band now, and on which side of it."""
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
    "Weeks and months: how the fleet grows, when it is full, and what is unlike its own past.",
    row(
        "",
        stat(
            "GPU hours",
            "Hours for which GPUs were held in the chosen time, added up. More is better, as long as they "
            "work.",
            now(hours(_record("held:gpus"))),
            unit="short",
            width=3,
        ),
        stat(
            "Idle part",
            "Share of the held hours in which nothing ran. Under 20 % is good; above 50 % more is wasted "
            "than used.",
            now(f"{hours(_record('idle:gpus'))} / {hours(_record('held:gpus'))}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.LOWER_IS_BETTER,
            links=(links.link("Idle GPUs", "idle"),),
        ),
        stat(
            "Held part",
            "GPU hours held of those that there were. Above 90 % work has to wait; under 30 % there are too "
            "many GPUs.",
            now(f"{hours(_record('held:gpus'))} / {hours(_record('gpus_up:count'))}"),
            unit="percentunit",
            width=3,
            decimals=0,
            steps=fields.thresholds((0.3, palette.GOOD), (0.9, palette.WARNING), base=palette.WARNING),
        ),
        stat(
            "Energy",
            "What the GPUs used in the chosen time.",
            now(kilowatt_hours(_record("energy:watts"))),
            unit="kwatth",
            width=3,
            steps=fields.POWER,
            links=(links.link("Energy and chargeback", "energy"),),
        ),
        stat(
            "Cost",
            "What the GPUs cost in the chosen time, hours and energy, at the prices that are set in the "
            "rules.",
            now(hours(_record("cost:per_hour"))),
            unit="short",
            width=3,
            links=(links.link("Energy and chargeback", "energy"),),
        ),
        stat(
            "Growth",
            "By how many GPUs what is held grows each week, as a straight line through the chosen time. "
            "Below 0 it shrinks.",
            now(f"sum({_trend('deriv')}) * {_WEEK}"),
            unit="short",
            width=3,
            decimals=1,
            no_value=_NOT_YET,
        ),
        stat(
            "In 30 days",
            "GPUs that will be held in 30 days if it goes on like this. Above the number of GPUs there is a "
            "queue.",
            now(f"clamp_min(sum({_trend('predict_linear', _MONTH)}), 0)"),
            unit="short",
            width=3,
            decimals=1,
            no_value=_NOT_YET,
        ),
        stat(
            "Full in",
            "When all GPUs of one model are held if it goes on like this. Less than the time that it takes "
            "to buy some is bad.",
            now(f"min({_SECONDS_TO_FULL})"),
            unit="dtdurations",
            width=3,
            decimals=0,
            steps=_FULL_SOON,
            mappings=_NOT_IN_SIGHT,
        ),
        timed(
            timeseries(
                "Capacity",
                "Held GPUs against all. Where the peaks touch the top, work waits. The dashed line is what "
                "the two weeks before foretold a week earlier: the closer it was, the better the forecast.",
                over_time(f"sum({_record('gpus:count')})", "all GPUs"),
                over_time(f"sum(max_over_time({_record('held:gpus', '[1d]')}))", "most held in 24 h"),
                over_time(f"sum(avg_over_time({_record('held:gpus', '[1d]')}))", "held, mean of 24 h"),
                over_time(f"sum(avg_over_time({_record('busy:gpus', '[1d]')}))", "busy, mean of 24 h"),
                over_time(_FORETOLD, "foretold"),
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
                            "most held in 24 h": palette.IDLE,
                            "held, mean of 24 h": palette.HELD,
                            "busy, mean of 24 h": palette.BUSY,
                        }
                    ),
                    fields.override(
                        "foretold",
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
            "Where each model goes if the chosen time goes on as a straight line. A model that is full soon "
            "wants an order, or less waste.",
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
                    name="Full in",
                    unit="dtdurations",
                    decimals=0,
                    width=100,
                    steps=_FULL_SOON,
                    mappings=_NOT_IN_SIGHT,
                ),
            ),
            order=("model", *value_columns(5)),
            sort_by="GPUs",
            width=10,
            height=9,
        ),
        _this_week_and_last(
            "busy:gpus",
            "GPUs that work, this week and last",
            "Busy GPUs against the same time a week before. A lasting gap is a change that somebody should "
            "know of.",
            unit="short",
            color=palette.BUSY,
        ),
        _this_week_and_last(
            "energy:watts",
            "Power, this week and last",
            "Power of all GPUs against the same time a week before.",
            unit="watt",
            color=palette.POWER,
        ),
    ),
    row(
        "Anomalies; the bands are of the namespace and the GPU that are chosen above",
        timed(
            timeseries(
                "Unlike their own past",
                "How many GPUs and namespaces are outside the band of their own past, long enough for an "
                "alert. A wave of them at once has one cause: a rollout, an outage, a new team.",
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
                no_value="Everything was as it used to be",
            ),
            step="1h",
        ),
        table(
            "Outside their band now",
            "What is measured, and whether that is less or more than its own past lets expect. Empty is "
            "normal; a fall to 0 is often a job that hangs.",
            rows(_outside()),
            columns=(
                column("anomaly_name", name="What"),
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
            no_value="Everything is as it used to be",
            order=("anomaly_name", "side", "Value", "node", "gpu", "namespace"),
            width=14,
            height=7,
        ),
        _band(
            "namespace_power_watts",
            MATCH_NAMESPACE,
            "Power of the namespace",
            "Its power before what its own past lets expect. A line that leaves the band is new: more work, "
            "or none.",
            unit="watt",
        ),
        _band(
            "namespace_held_gpus",
            MATCH_NAMESPACE,
            "GPUs that the namespace holds",
            "What it holds before what its own past lets expect. Above the band it takes more than it ever "
            "did.",
            unit="short",
        ),
        _band(
            "gpu_power_watts",
            MATCH_GPU,
            "Power of the GPU",
            "Its power before what its own past lets expect. Below the band with the same user is a job "
            "that hangs.",
            unit="watt",
        ),
        _band(
            "gpu_utilization_ratio",
            MATCH_GPU,
            "Utilisation of the GPU",
            "Its utilisation before what its own past lets expect. Below the band with the same user, its "
            "work has run dry.",
            unit="percentunit",
        ),
    ),
    row(
        "Day by day",
        _days(
            "Energy per day",
            "What the GPUs of each model used in the 24 hours before each bar.",
            (
                over_time(
                    f"sum by (model) (sum_over_time({_record('energy:watts', '[1d]')})) / 60 / 1000",
                    "{{model}}",
                ),
            ),
            "kwatth",
        ),
        _days(
            "Cost per day by namespace",
            "GPU hours and energy of the ten namespaces that cost the most in the 24 hours before each bar.",
            (over_time(_per_day("cost:per_hour"), "{{namespace}}"),),
            "short",
        ),
        _days(
            "Idle GPU hours per day",
            "GPU hours that were held and not used, by namespace. What stays high for weeks is worth a talk.",
            (over_time(_per_day("idle:gpus"), "{{namespace}}"),),
            "short",
        ),
        _days(
            "GPUs with XID errors per day",
            "How many GPUs had an XID error of each code in the 24 hours before each bar. A code that "
            "spreads is a driver or a program; one that stays on a card is the card.",
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
