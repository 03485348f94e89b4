"""Ways from one dashboard to another: fleet -> node -> GPU -> pod."""

from typing import Any

from alerts.runbooks import runbook_url

Json = dict[str, Any]
TAG = "gputally"
KEPT = ("datasource", "cluster")
"""Variables that every dashboard has, and that a link therefore always takes along."""


def uid(name: str) -> str:
    """The same for ever: bookmarks and links survive new versions."""
    return f"gputally-{name}"


def url(dashboard: str, *kept: str, **variables: str) -> str:
    """The address of a dashboard; a value may be `${__field.labels.node}` or `${__data.fields.node}`.

    What is `kept` has there the value that it has here.
    """
    same = [f"${{{name}:queryparam}}" for name in (*KEPT, *kept)]
    given = [f"var-{name}={value}" for name, value in variables.items()]
    return f"/d/{uid(dashboard)}?" + "&".join([*same, *given, "${__url_time_range}"])


def link(title: str, dashboard: str, *kept: str, **variables: str) -> Json:
    """A drill-down of a panel or a column."""
    return {"title": title, "url": url(dashboard, *kept, **variables), "targetBlank": False}


def by_label(title: str, dashboard: str, *labels: str) -> Json:
    """A drill-down of a graph: the series' own labels choose what is shown."""
    return link(title, dashboard, **{label: f"${{__field.labels.{label}}}" for label in labels})


def by_row(title: str, dashboard: str, *columns: str, **renamed: str) -> Json:
    """A drill-down of a table: its own columns choose what is shown; variable=column where they differ."""
    fields = {column: column for column in columns} | renamed
    return link(
        title, dashboard, **{name: f'${{__data.fields["{field}"]}}' for name, field in fields.items()}
    )


def runbook(column: str) -> Json:
    """From an alert's name in a table to what it means and what to do."""
    address = runbook_url(f'${{__data.fields["{column}"]}}')
    return {"title": "Runbook", "url": address, "targetBlank": True}


def related() -> list[Json]:
    """At the top of each dashboard: all the others."""
    return [
        {
            "title": "GPUTally",
            "type": "dashboards",
            "tags": [TAG],
            "asDropdown": True,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "icon": "external link",
            "tooltip": "",
            "url": "",
        }
    ]
