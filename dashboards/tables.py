"""Tables: rows of samples with named columns, and the list of firing alerts."""

from collections.abc import Sequence
from string import ascii_uppercase

from dashboards import Json, fields, links, palette
from dashboards.panels import Panel, Target, field_defaults, make_panel, rows


def table(
    title: str,
    description: str,
    *queries: Target,
    columns: Sequence[Json] = (),
    hidden: Sequence[str] = (),
    order: Sequence[str] = (),
    sort_by: str = "",
    width: int = 24,
    height: int = 8,
    unit: str = "short",
    join_on: str = "",
    only_with: str = "",
    filterable: bool = False,
    no_value: str = "",
    ascending: bool = False,
) -> Panel:
    """Rows of samples. Several queries become columns of the same rows, joined on all labels or on `join_on`.

    `columns` are made by `column`, `hidden` fields are dropped, `order` lists the fields from the left under
    their Prometheus names (`Value #A` is the value of the first query). Rows with an empty field `only_with`
    are left out, so that the first query can determine the rows and the others only add columns.
    """
    steps: list[Json] = []
    if len(queries) > 1:
        by = {"id": "joinByField", "options": {"byField": join_on, "mode": "outer"}}
        steps.append(by if join_on else {"id": "merge", "options": {}})
    if only_with:
        filled = {"fieldName": only_with, "config": {"id": "isNotNull", "options": {}}}
        options = {"type": "include", "match": "all", "filters": [filled]}
        steps.append({"id": "filterByValue", "options": options})
    dropped = dict.fromkeys(("Time", *hidden), True)
    placed = {name: index for index, name in enumerate(order)}
    steps.append(
        {"id": "organize", "options": {"excludeByName": dropped, "indexByName": placed, "renameByName": {}}}
    )
    custom: Json = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": filterable,
        "inspect": False,
        # Grafana's default of 150 is too wide for eight columns on half a page.
        "minWidth": 80,
    }
    sorting = [{"displayName": sort_by, "desc": not ascending}] if sort_by else []
    # The text of an empty table must not appear in each empty cell.
    empty_cells = [fields.override_matching(".*", noValue="")] if no_value else []
    # Labels that look like numbers (serial, process id) must not get the unit.
    labels = fields.override_text(unit="string")
    panel = make_panel(
        "table",
        title,
        description,
        queries,
        width,
        height,
        field_defaults(unit, None, None, None, fields.PLAIN, (), custom, no_value=no_value),
        (labels, *empty_cells, *columns),
        {
            "showHeader": True,
            "cellHeight": "sm",
            "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
            "sortBy": sorting,
        },
    )
    panel.transformations = steps
    return panel


def alert_list(
    title: str, description: str, *, width: int = 12, height: int = 8, chosen: str = 'cluster=~"$cluster"'
) -> Panel:
    """Firing alerts, most severe first, from Prometheus's ALERTS, so that no second data source is needed."""
    severities = dict(enumerate(("info", "warning", "critical"), start=1))
    labels = ("alertname", "node", "gpu", "namespace", "pod")
    chosen = f'alertname=~"GPUTally.+", alertstate="firing", {chosen}'
    firing = " or ".join(
        f'max by ({", ".join(labels)}) (ALERTS{{{chosen}, severity="{severity}"}}) * {number}'
        for number, severity in reversed(severities.items())
    )
    texts = {number: (severity, palette.BY_SEVERITY[severity]) for number, severity in severities.items()}
    return table(
        title,
        description,
        rows(f"topk(200, {firing})"),
        columns=(
            column("Value", name="Severity", width=80, mappings=fields.value_texts(texts)),
            column("alertname", name="Alert", width=210, link=links.runbook("alertname")),
            column("node", name="Node", link=links.TO_NODE),
            column("gpu", name="GPU", width=50, link=links.TO_GPU),
            column("namespace", name="Namespace", width=108),
            column("pod", name="Pod", link=links.TO_POD),
        ),
        order=("Value", *labels),
        sort_by="Severity",
        width=width,
        height=height,
        no_value="No firing alerts",
    )


def hidden_columns(*names: str) -> list[Json]:
    """Columns that are not shown but that links refer to."""
    return [fields.override(name, custom__hidden=True) for name in names]


def column(
    field: str,
    *,
    name: str = "",
    unit: str = "",
    decimals: int | None = None,
    width: int | None = None,
    link: Json | None = None,
    mappings: Sequence[Json] = (),
    bar_up_to: float | None = None,
    steps: Json | None = None,
) -> Json:
    """A table column; `bar_up_to` draws bars, `steps` and `mappings` colour the cells."""
    properties: Json = {}
    if name:
        properties["displayName"] = name
    if unit:
        properties["unit"] = unit
    if decimals is not None:
        properties["decimals"] = decimals
    if width:
        properties["custom__width"] = width
    if link:
        properties["links"] = [link]
    if mappings:
        properties["mappings"] = list(mappings)
        properties["thresholds"] = fields.thresholds(base=palette.CLEAR)
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic"}
        properties["custom__align"] = "center"
    if steps:
        properties["thresholds"] = steps
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic"}
    if bar_up_to is not None:
        properties |= {"min": 0, "max": bar_up_to}
        properties["custom__cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return fields.override(field, **properties)


def share_column(field: str, name: str, *, width: int | None = None, decimals: int = 0) -> Json:
    """A column of ratios from 0 to 1, drawn as bars."""
    return column(field, name=name, unit="percentunit", decimals=decimals, bar_up_to=1, width=width)


def value_columns(count: int) -> tuple[str, ...]:
    """The names of the value columns of the first `count` queries."""
    return tuple(f"Value #{letter}" for letter in ascii_uppercase[:count])
