"""Is a GPU or a namespace unlike its own past?

Bands in the manner of grafana/promql-anomaly-detection. An input is a series with the labels `anomaly_name`
and `anomaly_strategy`; what is `adaptive` (watts) is compared with its last hour, what is `robust` (shares
and counts, which jump between two values) with the median of its last day. To both the same time of
yesterday and of a week ago is added, give or take an hour and a half. Nothing is filtered at 0: a fall to
nothing is what one wants to see. Per GPU and per namespace, never per pod: pods have no past.

Days are read in steps of 15 minutes from what is recorded every minute: at 10,000 GPUs all minutes of a day
would be too many to read every minute.
"""

from alerts.groups.phrases import GPU, WHERE, of_gpu, with_card
from alerts.model import Alert, Audience, Group, Record, Severity

_INTERVAL = "1m"
_YESTERDAY = "[3h:15m] offset 22h30m"
_LAST_WEEK = "[3h:15m] offset 166h30m"


def _input(level: str, name: str, strategy: str, expression: str) -> Record:
    labels = {"anomaly_name": name, "anomaly_strategy": strategy}
    return Record(f"{level}:gputally_anomaly:input", expression, labels)


def _or_gone(record: str) -> str:
    """A namespace that has no pod any more has 0, for a day."""
    return f"{record} or last_over_time({record}[1d]) * 0"


def _either(one: str, than: str, other: str) -> str:
    """The larger (`>`) or the smaller (`<`) of two, or the one that there is."""
    return f"({one} {than} {other} or {other} or {one})"


def _bands(level: str) -> tuple[Record, ...]:
    name = f"{level}:gputally_anomaly"
    adaptive, robust = (f'{{anomaly_strategy="{strategy}"}}' for strategy in ("adaptive", "robust"))
    hourly, center, deviation = f"{name}:hourly", f"{name}:center", f"{name}:deviation"

    def season(function: str, than: str) -> str:
        yesterday, last_week = (f"{function}({hourly}{days})" for days in (_YESTERDAY, _LAST_WEEK))
        return _either(_either(center, than, yesterday), than, last_week)

    return (
        Record(
            hourly,
            f"avg_over_time({name}:input{adaptive}[1h]) or quantile_over_time(0.5, {name}:input{robust}[1h])",
        ),
        # Half an hour late, so that an anomaly is not its own measure while its alert waits.
        Record(center, f"{hourly}{adaptive} offset 30m or quantile_over_time(0.5, {hourly}{robust}[1d:15m])"),
        Record(
            deviation,
            f"stddev_over_time({name}:input{adaptive}[1h]) or abs({name}:input{robust} - {center}{robust})",
        ),
        # Without a day of history there is no margin, and so no band.
        Record(
            f"{name}:margin",
            _either(
                f"[[ anomaly_deviations ]] * (avg_over_time({deviation}{adaptive}[1d:15m])"
                f" or quantile_over_time(0.5, {deviation}{robust}[1d:15m]))",
                ">",
                _either(
                    f"[[ anomaly_margin_ratio ]] * {center}",
                    ">",
                    f"[[ anomaly_floor_ratio ]] * max_over_time({hourly}[1d:15m])",
                ),
            )
            + f" and {hourly} offset 1d",
        ),
        Record(f"{name}:highest", season("max_over_time", ">")),
        Record(
            f"{name}:upper",
            f'clamp_max({name}:highest{{anomaly_name=~".+_ratio"}} + {name}:margin, 1)'
            f" or {name}:highest + {name}:margin",
        ),
        Record(f"{name}:lower", f"clamp_min({season('min_over_time', '<')} - {name}:margin, 0)"),
    )


def _outside(level: str, band: str, than: str) -> str:
    name = f"{level}:gputally_anomaly"
    return f'label_replace({name}:input {than} {name}:{band}, "band", "{band}", "anomaly_name", ".*")'


# A GPU that has another user than yesterday has no reason to look the same.
_SAME_USER = (
    '{__name__=~"device:gputally_(pod|host)_held:ratio"}'
    ' and {__name__=~"device:gputally_(pod|host)_held:ratio"} offset 1d'
)

GROUPS = (
    Group(
        "gputally-anomalies",
        (
            _input(
                "gpu",
                "gpu_utilization_ratio",
                "robust",
                of_gpu("avg_over_time(gputally_gpu_utilization_ratio[ [[ rate_window ]] ])"),
            ),
            _input("gpu", "gpu_power_watts", "adaptive", f"sum by ({GPU}) (gpu:gputally_energy:watts)"),
            _input(
                "namespace", "namespace_power_watts", "adaptive", _or_gone("namespace:gputally_energy:watts")
            ),
            _input("namespace", "namespace_held_gpus", "robust", _or_gone("namespace:gputally_held:gpus")),
            *(record for level in ("gpu", "namespace") for record in _bands(level)),
            Alert(
                "GPUTallyAnomalyGpu",
                with_card(f"{_outside('gpu', 'lower', '<')} and on ({GPU}) ({_SAME_USER})"),
                Severity.INFO,
                summary="A GPU does less than it has done until now, for the same user.",
                description=f"{WHERE} is below what its own past lets expect: "
                f"{{{{ $labels.anomaly_name }}}} is "
                "{{ $value | humanize }}. Its user is the same as a day ago: see whether the work on it "
                "hangs or has run dry.",
                for_="20m",
                keep_firing_for="30m",
            ),
            Alert(
                "GPUTallyAnomalyNamespace",
                f"{_outside('namespace', 'upper', '>')} or {_outside('namespace', 'lower', '<')}",
                Severity.INFO,
                summary="A namespace uses GPUs unlike it has done until now.",
                description="Namespace {{ $labels.namespace }} is beyond the {{ $labels.band }} band of its "
                "own past: {{ $labels.anomaly_name }} is {{ $value | humanize }}. If nobody planned that, "
                "see which pods came or went.",
                for_="20m",
                keep_firing_for="30m",
                audience=Audience.TEAM,
            ),
        ),
        _INTERVAL,
    ),
)
