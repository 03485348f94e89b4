"""Small dashboards for OpenShift's console, which cannot show panels of the current Grafana schema.

It supports a part of the schema of Grafana 5 (openshift/monitoring-plugin, legacy-dashboards): rows of twelve
columns, `singlestat` (only its first query), `graph`, `table` with `styles` (several queries are joined on
all labels), and variables with one value, whose All is `.+`. That would drop series without the label, so
there is no variable `cluster`; the console shows one cluster only.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from string import ascii_uppercase

from dashboards import Json
from dashboards.queries import top_over_range

_MATCH_NAMESPACE = '{namespace=~"$namespace"}'
_BY_GPU = "node, gpu, model, problem"
_BY_POD = "namespace, pod"
_ANY_IS_CRITICAL = ((0, "green"), (1, "red"))
_IDLE = ((0, "green"), (0.5, "orange"))
_HIGHER_IS_BETTER = ((0, "red"), (0.3, "orange"), (0.6, "green"))


def _stat(
    title: str, expr: str, unit: str = "short", decimals: int = 0, steps: Sequence[tuple[float, str]] = ()
) -> Json:
    colors = [{"value": value, "color": color} for value, color in steps]
    return {
        "type": "singlestat",
        "title": title,
        "span": 3,
        "format": unit,
        "decimals": decimals,
        "options": {"fieldOptions": {"thresholds": colors}},
        "targets": [_target("A", expr)],
    }


def _graph(title: str, unit: str, series: Mapping[str, str], *, stack: bool = False) -> Json:
    """`series`: legend -> query."""
    return {
        "type": "graph",
        "title": title,
        "span": 6,
        "stack": stack,
        "legend": {"show": True},
        "yaxes": [{"format": unit}],
        "targets": [
            {**_target(letter, expr), "legendFormat": legend}
            for letter, (legend, expr) in zip(ascii_uppercase, series.items(), strict=False)
        ],
    }


def _table(title: str, labels: Mapping[str, str], values: Mapping[str, tuple[str, str, int]]) -> Json:
    """`labels`: label -> title; `values`: title -> query, unit, decimals. All queries have these labels."""
    columns: list[Json] = [
        {"pattern": label, "alias": heading, "type": "string"} for label, heading in labels.items()
    ]
    targets = []
    for letter, (heading, (expr, unit, decimals)) in zip(ascii_uppercase, values.items(), strict=False):
        targets.append(_target(letter, expr))
        number = {"alias": heading, "type": "number", "unit": unit, "decimals": decimals}
        columns.append({"pattern": f"Value #{letter}", **number})
    return {"type": "table", "title": title, "span": 12, "styles": columns, "targets": targets}


def _target(letter: str, expr: str) -> Json:
    return {"refId": letter, "expr": expr}


def _row(title: str, *panels: Json) -> Json:
    return {"title": title, "showTitle": bool(title), "collapse": False, "panels": list(panels)}


def _variable(name: str, query: str) -> Json:
    return {"name": name, "type": "query", "query": query, "includeAll": True, "hide": 0, "options": []}


def _dashboard(title: str, *rows: Json, variables: Sequence[Json] = ()) -> Json:
    numbers = count(1)
    for row in rows:
        for panel in row["panels"]:
            panel["id"] = next(numbers)
    return {
        "title": f"GPUTally / {title}",
        "tags": ["gputally"],
        "templating": {"list": list(variables)},
        "rows": list(rows),
    }


def _total(record: str) -> str:
    return f"sum(model:gputally_{record})"


def _of_model(record: str) -> str:
    return f"sum by (model) (model:gputally_{record})"


def _of_node(record: str) -> str:
    return f"sum by (node) (node:gputally_{record})"


def _utilization(by: str = "") -> str:
    """Mean over models, weighted by their number of GPUs."""
    busy = "model:gputally_utilization:ratio * model:gputally_gpus_up:count"
    return f"sum{by} ({busy}) / sum{by} (model:gputally_gpus_up:count)"


def _firing(severity: str) -> str:
    return (
        f'count(ALERTS{{alertname=~"GPUTally.+", alertstate="firing", severity="{severity}"}}) or vector(0)'
    )


def _of_project(record: str) -> str:
    return f"sum(pod:gputally_{record}{_MATCH_NAMESPACE})"


def _of_pod(record: str) -> str:
    return f"sum by ({_BY_POD}) (pod:gputally_{record}{_MATCH_NAMESPACE})"


def _pods_over_time(record: str) -> dict[str, str]:
    return {"{{namespace}}/{{pod}}": top_over_range(f"pod:gputally_{record}{_MATCH_NAMESPACE}", _BY_POD)}


_FLEET = _dashboard(
    "Fleet",
    _row(
        "",
        _stat("GPUs", _total("gpus:count")),
        _stat("Lost GPUs", f"{_total('gpus:count')} - {_total('gpus_up:count')}", steps=_ANY_IS_CRITICAL),
        _stat("Critical alerts", _firing("critical"), steps=_ANY_IS_CRITICAL),
        _stat("Warnings", _firing("warning"), steps=((0, "green"), (1, "orange"))),
        _stat("Held", f"{_total('held:gpus')} / {_total('gpus_up:count')}", "percentunit"),
        _stat("Utilisation", _utilization(), "percentunit", steps=_HIGHER_IS_BETTER),
        _stat("Idle GPUs", _total("idle:gpus"), decimals=1, steps=_IDLE),
        _stat("Power, W", _total("energy:watts")),
    ),
    _row(
        "Over time",
        _graph(
            "GPUs by state",
            "short",
            {
                "busy": _total("busy:gpus"),
                "held, idle": _total("idle:gpus"),
                "free": f"clamp_min({_total('gpus_up:count')} - {_total('held:gpus')}, 0)",
            },
            stack=True,
        ),
        _graph("Utilisation by model", "percentunit", {"{{model}}": _utilization(" by (model)")}),
        _graph("Power by model, W", "short", {"{{model}}": _of_model("energy:watts")}, stack=True),
        _graph(
            "GPUs held by namespace",
            "short",
            {"{{namespace}}": top_over_range("namespace:gputally_held:gpus", "namespace")},
        ),
    ),
    _row(
        "Details",
        _table(
            "GPU problems (3: critical, 2: warning, 1: suspected)",
            {"node": "Node", "gpu": "GPU", "model": "Model", "problem": "Problem"},
            {"Severity": (f"max by ({_BY_GPU}) (gpu:gputally_problem:severity)", "short", 0)},
        ),
        _table(
            "Models",
            {"model": "Model"},
            {
                "GPUs": (_of_model("gpus:count"), "short", 0),
                "Lost": (f"{_of_model('gpus:count')} - {_of_model('gpus_up:count')}", "short", 0),
                "Held": (f"{_of_model('held:gpus')} / {_of_model('gpus:count')}", "percentunit", 0),
                "Utilisation": (_utilization(" by (model)"), "percentunit", 0),
                "Memory": (
                    f"{_of_model('memory_used:bytes')} / {_of_model('memory_total:bytes')}",
                    "percentunit",
                    0,
                ),
                "Power, W": (_of_model("energy:watts"), "short", 0),
                "Cost per hour": (_of_model("cost:per_hour"), "short", 2),
            },
        ),
        _table(
            "Nodes",
            {"node": "Node"},
            {
                "GPUs": (_of_node("gpus:count"), "short", 0),
                "Lost": (f"{_of_node('gpus:count')} - {_of_node('gpus_up:count')}", "short", 0),
                "Held": (_of_node("held:gpus"), "short", 1),
                "Idle": (_of_node("idle:gpus"), "short", 1),
                "Utilisation": ("avg by (node) (node:gputally_utilization:ratio)", "percentunit", 0),
                "Power, W": (_of_node("energy:watts"), "short", 0),
            },
        ),
    ),
)

_PROJECT = _dashboard(
    "Project",
    _row(
        "",
        _stat("GPUs held", _of_project("held:gpus"), decimals=1),
        _stat("Idle GPUs", _of_project("idle:gpus"), decimals=1, steps=_IDLE),
        _stat("Power, W", _of_project("energy:watts")),
        _stat("Cost per hour", _of_project("cost:per_hour"), decimals=2),
    ),
    _row(
        "Pods over time",
        _graph("Busy GPUs", "short", _pods_over_time("busy:gpus")),
        _graph("Idle GPUs", "short", _pods_over_time("idle:gpus")),
        _graph("GPU memory", "bytes", _pods_over_time("memory_used:bytes")),
        _graph("Power, W", "short", _pods_over_time("energy:watts")),
    ),
    _row(
        "Current pods",
        _table(
            "Pods on GPUs",
            {"namespace": "Namespace", "pod": "Pod"},
            {
                "GPUs held": (_of_pod("held:gpus"), "short", 1),
                "Busy": (_of_pod("busy:gpus"), "short", 1),
                "Idle": (_of_pod("idle:gpus"), "short", 1),
                "Memory": (_of_pod("memory_used:bytes"), "bytes", 0),
                "Power, W": (_of_pod("energy:watts"), "short", 0),
                "Cost per hour": (_of_pod("cost:per_hour"), "short", 2),
            },
        ),
    ),
    variables=(_variable("namespace", "label_values(pod:gputally_held:gpus, namespace)"),),
)

DASHBOARDS: Mapping[str, Json] = {"fleet": _FLEET, "project": _PROJECT}


def texts() -> dict[str, str]:
    """The JSON of each dashboard, by name."""
    return {name: json.dumps(made, indent=1) + "\n" for name, made in DASHBOARDS.items()}
