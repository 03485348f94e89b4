"""docs/metrics.md, from the catalog: the reference of every metric."""

from collections.abc import Iterable

from gputally.metrics.catalog import CATALOG, SCOPE_LABELS, Metric, Scope

TITLES = {
    Scope.GPU: "GPUs",
    Scope.MIG: "MIG devices",
    Scope.PROCESS: "Processes",
    Scope.SOURCE: "Sources",
    Scope.EXPORTER: "The exporter",
}
ABOUT = {
    Scope.GPU: "One sample per GPU.",
    Scope.MIG: "One sample per MIG device. `gpu` is the parent's index, `uuid` the device's own.",
    Scope.PROCESS: "One sample per process and GPU. Off unless asked for: every process id is a new series.",
    Scope.SOURCE: "How each source of readings fares. They are there also when nothing else is.",
    Scope.EXPORTER: "The exporter itself.",
}
INTRODUCTION = """\
<!-- Made by tools/render from exporter/gputally/metrics/catalog.py: change that, not this. -->

# Metrics

Every metric that GPUTally exports. What a card, driver or reader cannot tell has no sample: it is never
0, NaN or a guess. Units are base units and stand in the name. A counter ends in `_total` and starts again
at 0 when what it counts does.

The labels of a metric are those of its group and those in its row. *Readers* says which of them can fill
it; `simulated` fills all that a GPU has.
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
