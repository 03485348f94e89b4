"""docs/metrics.md, from the catalog: the reference of every metric."""

from collections.abc import Iterable

from gputally.metrics.catalog import CATALOG, SCOPE_LABELS, Metric, Scope

TITLES = {
    Scope.GPU: "GPUs",
    Scope.MIG: "MIG devices",
    Scope.POD: "Pods",
    Scope.POD_INFO: "Who the pods are",
    Scope.HOST: "Owners that are no pods",
    Scope.UNKNOWN: "Processes whose owner is unknown",
    Scope.PROCESS: "Processes",
    Scope.SOURCE: "Sources",
    Scope.EXPORTER: "The exporter",
}
ABOUT = {
    Scope.GPU: "One sample per GPU. How energy is measured and shared out: [energy.md](energy.md).",
    Scope.MIG: (
        "One sample per MIG device, or per partition of an AMD GPU. `gpu` is the parent's index, `uuid` the "
        "device's own."
    ),
    Scope.POD: (
        "One sample per container and device (GPU or MIG device) that it uses, or was given by the kubelet: "
        "then with zeros while it does nothing. `container` is empty where the runtime does not tell it."
    ),
    Scope.POD_INFO: "One sample per pod that uses or holds a device.",
    Scope.HOST: (
        "One sample per owner and device. `owner` is its kind and name: `docker/3f05ee050f82`, `podman/…`, "
        "`slurm/42`, `service/ollama.service`, `session/1000`, `process/python3`."
    ),
    Scope.UNKNOWN: (
        "One sample per reason and device; [privileges.md](privileges.md) has the reasons. With pods and "
        "other owners, they add up to what the driver reports for the device."
    ),
    Scope.PROCESS: (
        "One sample per process and device, with its owner's labels. Only with `--process-metrics`: every "
        "process id is a new series."
    ),
    Scope.SOURCE: "How each source of readings, owners and names fares. They are always there.",
    Scope.EXPORTER: "The exporter itself.",
}
INTRODUCTION = """\
<!-- Made by tools/render from exporter/gputally/metrics/catalog.py: change that, not this. -->

# Metrics

Every metric that GPUTally exports. What a card, driver or reader cannot tell has no sample: it is never
0, NaN or a guess. Units are base units and stand in the name. A counter ends in `_total` and starts again
at 0 when what it counts does.

The labels of a metric are those of its group and those in its row. *Readers* says which of them can fill
it; `simulated` fills all that a GPU of NVIDIA has. On a host with GPUs of two vendors `gpu` counts those of
each from 0: `uuid` tells them apart.
"""


def text(catalog: Iterable[Metric] = CATALOG) -> str:
    metrics = list(catalog)
    parts = [INTRODUCTION]
    for scope in Scope:
        rows = [metric for metric in metrics if metric.scope is scope]
        if rows:
            parts.append(_group(scope, rows))
    return "\n".join(parts)


def _group(scope: Scope, metrics: list[Metric]) -> str:
    labels = SCOPE_LABELS[scope]
    group_labels = f" Labels: {_code(labels)}." if labels else ""
    lines = [
        f"## {TITLES[scope]}",
        "",
        ABOUT[scope] + group_labels,
        "",
        "| metric | what it says | type | unit | more labels | readers |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(metric) for metric in metrics), ""])


def _row(metric: Metric) -> str:
    cells = (
        f"`{metric.name}`",
        metric.help.replace("|", r"\|"),
        metric.kind.value,
        metric.unit.replace("_", " "),
        _code(metric.extra_labels),
        ", ".join(reader for reader in metric.readers if reader != "simulated"),
    )
    return f"| {' | '.join(cells)} |"


def _code(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
