"""Reclaimable GPUs: held and idle, underused, or always free, with their cost."""

from alerts.filling import defaults
from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import bar_gauge, now, over_time, rows, stat, timeseries
from dashboards.queries import BY_GPU, BY_POD, MATCH_CLUSTER, MATCH_NAMESPACE, billed, top_over_range
from dashboards.tables import column, share_column, table, value_columns
from dashboards.variables import CLUSTER, NAMESPACE

_HOLDER = f"{BY_GPU}, namespace, pod"
_SETTINGS = defaults()
_IDLE, _UNDERUSED = _SETTINGS["idle_busy_ratio"], _SETTINGS["underused_busy_ratio"]
_SMALL_MEMORY, _SMALL_BUSY = 0.25, 0.5

_STATES = {"busy": palette.BUSY, "held, idle": palette.IDLE, "free": palette.FREE}


def _all(record: str) -> str:
    return f"sum(cluster:gputally_{record}{{{MATCH_CLUSTER}}})"


def _namespaces(record: str) -> str:
    return f"namespace:gputally_{record}{{{MATCH_NAMESPACE}}}"


def _workloads(record: str) -> str:
    return f"workload:gputally_{record}{{{MATCH_NAMESPACE}}}"


def _pods(record: str) -> str:
    return f"pod:gputally_{record}{{{MATCH_NAMESPACE}}}"


def _total(record: str) -> str:
    return f"sum({_namespaces(record)})"


def _of_pod(record: str) -> str:
    return f"sum by ({BY_POD}) ({_pods(record)})"


def _pod_hours(record: str) -> str:
    return billed(_pods(record), BY_POD)


def _busy_share(busy: str, idle: str) -> str:
    """The busy share of GPU time; no result where the activity is unknown."""
    return f"{busy} / ({busy} + {idle} > 0)"


def _devices(operation: str) -> str:
    return f"device:gputally_pod_{operation}{{{MATCH_NAMESPACE}}}"


def _device_busy_share(window: str) -> str:
    """As in the alerts: without per-process utilisation, the utilisation of the device is used."""
    busy, held = (f"sum_over_time({_devices(part)}[{window}])" for part in ("busy:ratio", "held:ratio"))
    of_device = f"avg_over_time(device:gputally_utilization:ratio{{{MATCH_CLUSTER}}}[{window}])"
    of_holder = f"({_devices('held:ratio')} > bool 0) * on ({BY_GPU}) group_left () {of_device}"
    known = f"and on ({_HOLDER}) {_devices('busy:ratio')}"
    return f"({busy} / {held} {known} or on ({_HOLDER}) {of_holder})"


def _held_for_an_hour() -> str:
    """GPUs that a pod holds now and held an hour ago; shorter times are too short to judge."""
    share = f"on ({BY_GPU}) group_left () device:gputally_share:ratio{{{MATCH_CLUSTER}}}"
    an_hour_ago = f"last_over_time({_devices('held:ratio')}[15m] offset 1h)"
    return f"({_devices('part:ratio')} * {share} and on ({_HOLDER}) {an_hour_ago})"


def _of_pods_for_an_hour(expression: str) -> str:
    return f"{expression} and on ({BY_POD}) {_held_for_an_hour()}"


def _held_for() -> str:
    """Seconds held. The exporter's ledger can be younger than the pod; then the records give more."""
    counted = f"max by ({BY_POD}) (gputally_pod_held_seconds_total{{{MATCH_NAMESPACE}}})"
    recorded = f"60 * max by ({BY_POD}) (sum_over_time({_devices('held:ratio')}[$__range]))"
    return f"({recorded} > {counted} or {counted})"


def _idle_now() -> str:
    underused = f"{_device_busy_share('1h')} <= {_UNDERUSED}"
    return f"sum by ({BY_POD}) ({_held_for_an_hour()} and on ({_HOLDER}) {underused})"


def _hint(words: str, condition: str) -> str:
    pods = f"sum by ({BY_POD}) ({_held_for_an_hour()}) and on ({BY_POD}) ({condition})"
    return f'label_replace({pods}, "hint", "{words}", "pod", ".*")'


def _hints() -> str:
    """For each pod that has held GPUs for an hour, the first hint that is true over the range."""
    busy_share = _device_busy_share("$__range")
    idle, total = f"count by ({BY_POD}) ({busy_share} <= {_IDLE})", f"count by ({BY_POD}) ({busy_share})"
    hardly = f"max by ({BY_POD}) ({busy_share}) <= {_UNDERUSED}"
    small = (
        f"{_peak_memory()} <= {_SMALL_MEMORY} and on ({BY_POD}) "
        f"max by ({BY_POD}) (max_over_time({_devices('busy:ratio')}[$__range])) <= {_SMALL_BUSY}"
    )
    found = (
        _hint("idle: stop it", f"{idle} == {total}"),
        _hint("some GPUs are idle: request fewer", f"{idle} < {total}"),
        _hint("rarely busy: share a GPU or use a MIG device", hardly),
        _hint("small: use a MIG device or a smaller GPU", small),
    )
    return f" or on ({BY_POD}) ".join(found)


def _peak_memory() -> str:
    """The peak memory share of a pod, on the device where it was largest."""
    size = f'max by ({BY_GPU}) ({{__name__=~"gputally_(gpu|mig)_memory_total_bytes", {MATCH_CLUSTER}}})'
    taken = f"max_over_time({_devices('memory_used:bytes')}[$__range])"
    return f"max by ({BY_POD}) ({taken} / on ({BY_GPU}) group_left () {size})"


def _models(record: str, function: str = "") -> str:
    selector = f"model:gputally_{record}{{{MATCH_CLUSTER}}}"
    return f"sum by (model) ({f'{function}({selector}[$__range])' if function else selector})"


_ALWAYS_FREE = _models("gpus_free:count", "min_over_time")

_IDLE_HOURS = billed(_workloads("bill_idle:seconds"))
_BUSY_SHARE_OF_PODS = _busy_share(_pod_hours("bill_busy:seconds"), _pod_hours("bill_idle:seconds"))

DASHBOARD = dashboard(
    "idle",
    "Idle GPUs",
    "GPUs that cost money and do nothing: the pods that hold them, the cost, and how to reclaim them.",
    row(
        "",
        stat(
            "Idle GPUs",
            "GPUs that pods hold without activity, averaged over time. Near 0 is good; other pods could "
            "use them.",
            over_time(_total("idle:gpus")),
            unit="short",
            width=4,
            decimals=1,
            steps=fields.ANY_IS_IDLE,
            sparkline=True,
        ),
        stat(
            "Idle share",
            "Share of the held GPU time over the time range during which the GPUs were idle. Below 20 % is "
            "good; above 50 %, half of the allocated GPUs are unused.",
            now(f"{_IDLE_HOURS} / ({billed(_workloads('bill_busy:seconds'))} + {_IDLE_HOURS} > 0)"),
            unit="percentunit",
            width=4,
            decimals=0,
            steps=fields.LOWER_IS_BETTER,
        ),
        stat(
            "Idle GPU hours",
            "GPU hours that pods held without activity over the time range. Lower is better.",
            now(_IDLE_HOURS),
            unit="none",
            width=4,
            decimals=1,
            steps=fields.thresholds(base=palette.IDLE),
        ),
        stat(
            "Idle cost",
            "Cost of the idle GPU hours over the time range, without energy, at the prices set in the "
            "rules. This is the possible saving.",
            now(billed(_workloads("bill_idle_cost:money"))),
            width=4,
            steps=fields.thresholds(base=palette.IDLE),
            links=(links.link("Energy and chargeback", "energy", "namespace"),),
            **fields.MONEY,
        ),
        stat(
            "Reclaimable GPUs",
            "GPUs of pods that have held them for an hour and were busy for less than 5 % of it. Normal is "
            "0; Idle pods lists them.",
            now(f"sum({_idle_now()}) or vector(0)"),
            unit="short",
            width=4,
            decimals=1,
            steps=fields.ANY_IS_IDLE,
            background=True,
        ),
        stat(
            "Free GPUs",
            "GPUs that are neither allocated nor in use. A reserve for new work is normal; if many stay "
            "free, there are too many GPUs.",
            over_time(_all("gpus_free:count")),
            unit="short",
            width=4,
            decimals=1,
            steps=fields.thresholds(base=palette.FREE),
            sparkline=True,
            links=(links.link("Fleet", "fleet"),),
        ),
        table(
            "Idle pods",
            "Pods that have held GPUs for at least an hour and were busy for less than 5 % of the last "
            "hour; the 100 that hold the most. Contact the owner, or stop the pod. Held for is the time "
            "counted by the exporter or, if longer, recorded in the time range.",
            rows(f"topk(100, {_idle_now()})"),
            rows(_of_pods_for_an_hour(f"avg by ({BY_POD}) {_device_busy_share('1h')}")),
            rows(_of_pods_for_an_hour(_held_for())),
            rows(_of_pods_for_an_hour(_of_pod("idle_cost:per_hour"))),
            columns=(
                column("namespace", name="Namespace", width=110, link=links.TO_NAMESPACE),
                column("pod", name="Pod", link=links.TO_POD),
                column("Value #A", name="GPUs", decimals=2, width=75),
                column("Value #B", name="Busy", unit="percentunit", decimals=1, width=80),
                column("Value #C", name="Held for", unit="dtdurations", width=110),
                column("Value #D", name="Cost per hour", width=115, **fields.MONEY),
            ),
            hidden=("cluster", "node"),
            order=("namespace", "pod", *value_columns(4)),
            sort_by="GPUs",
            only_with="Value #A",
            no_value="No idle pods",
            width=13,
            height=9,
        ),
        table(
            "Most idle cost by pod",
            "Pods with the highest idle cost over the time range, including pods that have ended; at most "
            "50. High idle cost at a high busy share means a large pod, not a badly used one.",
            rows(f"topk(50, {_pod_hours('bill_idle_cost:money')})"),
            rows(_pod_hours("bill_idle:seconds")),
            rows(_BUSY_SHARE_OF_PODS),
            columns=(
                column("namespace", name="Namespace", width=110, link=links.TO_NAMESPACE),
                column("pod", name="Pod", link=links.TO_POD),
                column("Value #A", name="Idle cost", width=110, **fields.MONEY),
                column("Value #B", name="Idle hours", unit="none", decimals=1, width=85),
                share_column("Value #C", "Busy", width=110),
            ),
            hidden=("cluster", "node"),
            order=("namespace", "pod", *value_columns(3)),
            sort_by="Idle cost",
            only_with="Value #A",
            width=11,
            height=9,
        ),
        timeseries(
            "Idle GPUs by namespace",
            "Idle GPUs of the ten namespaces with the most idle GPU time. A constant level is never used; "
            "peaks are pauses between jobs.",
            over_time(top_over_range(_namespaces("idle:gpus"), "namespace"), "{{namespace}}"),
            unit="short",
            width=13,
            height=9,
            decimals=1,
            stack=True,
            links=(links.SERIES_TO_NAMESPACE,),
            calcs=("mean", "lastNotNull"),
        ),
        bar_gauge(
            "Idle cost by namespace",
            "Idle cost of the ten namespaces with the most, over the time range. Compare it with their "
            "total cost on Energy and chargeback.",
            now(f"topk(10, {billed(_workloads('bill_idle_cost:money'), 'namespace')})", "{{namespace}}"),
            width=11,
            height=9,
            steps=fields.thresholds(base=palette.IDLE),
            links=(links.SERIES_TO_NAMESPACE,),
            **fields.MONEY,
        ),
    ),
    row(
        "Right-sizing",
        table(
            "Right-sizing hints",
            "Recommendation for each pod that has held GPUs for at least an hour, based on the time range: "
            "choose a day or more. A small pod uses at most 25 % of the memory and is busy at most 50 % "
            "of the time at its peak.",
            rows(_hints()),
            rows(
                _of_pods_for_an_hour(
                    _busy_share(_pod_hours("bill_busy:seconds"), _pod_hours("bill_idle:seconds"))
                )
            ),
            rows(_of_pods_for_an_hour(_peak_memory())),
            rows(_of_pods_for_an_hour(_pod_hours("bill_idle_cost:money"))),
            columns=(
                column("hint", name="Hint"),
                column("namespace", name="Namespace", link=links.TO_NAMESPACE),
                column("pod", name="Pod", link=links.TO_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="GPUs held", decimals=2, width=100),
                share_column("Value #B", "Busy share", width=190),
                share_column("Value #C", "Peak memory", width=190),
                column("Value #D", name="Idle cost", width=110, **fields.MONEY),
            ),
            hidden=("cluster",),
            order=("hint", "namespace", "pod", "node", *value_columns(4)),
            sort_by="Idle cost",
            only_with="hint",
            no_value="No hints",
            height=10,
        ),
    ),
    row(
        "Free GPUs",
        table(
            "Free GPUs by model",
            "GPUs that are neither allocated nor in use. GPUs that were free throughout the time range can "
            "be returned, switched off or used elsewhere.",
            rows(_models("gpus:count")),
            rows(_models("gpus_free:count")),
            rows(_ALWAYS_FREE),
            rows(f"{_ALWAYS_FREE} * max by (model) (gpu:gputally_price:per_hour{{{MATCH_CLUSTER}}})"),
            columns=(
                column("model", name="Model", link=links.TO_MODEL),
                column("Value #A", name="GPUs", width=65),
                column("Value #B", name="Free now", decimals=1, width=85),
                column("Value #C", name="Always free", decimals=1, width=120, steps=fields.CELL_ANY_IS_IDLE),
                column("Value #D", name="Cost per hour", width=115, **fields.MONEY),
            ),
            order=("model", *value_columns(4)),
            sort_by="Always free",
            width=11,
        ),
        timeseries(
            "GPUs by state",
            "All GPUs of the clusters. Blue: busy. Yellow: held and idle. Grey: free. Yellow and grey cost "
            "money without use.",
            over_time(_all("busy:gpus"), "busy"),
            over_time(_all("idle:gpus"), "held, idle"),
            over_time(f"clamp_min({_all('gpus_up:count')} - {_all('held:gpus')}, 0)", "free"),
            unit="short",
            width=13,
            stack=True,
            overrides=fields.colors_of(_STATES),
            calcs=("mean", "lastNotNull"),
        ),
    ),
    variables=(CLUSTER, NAMESPACE),
    since="now-24h",
    refresh="5m",
)
