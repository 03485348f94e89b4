"""Links between dashboards: fleet -> node -> GPU -> pod."""

from alerts.runbooks import runbook_url
from dashboards import Json

TAG = "gputally"
KEPT = ("datasource", "cluster")
"""Variables of every dashboard; every link passes their values on."""


def uid(name: str) -> str:
    """The uid; it never changes, so bookmarks and links survive upgrades."""
    return f"gputally-{name}"


def url(dashboard: str, *kept: str, **variables: str) -> str:
    """The address of a dashboard; a value may be `${__field.labels.node}` or `${__data.fields.node}`.

    Variables named in `kept` keep their present value.
    """
    same = [f"${{{name}:queryparam}}" for name in (*KEPT, *kept)]
    given = [f"var-{name}={value}" for name, value in variables.items()]
    return f"/d/{uid(dashboard)}?" + "&".join([*same, *given, "${__url_time_range}"])


def link(title: str, dashboard: str, *kept: str, **variables: str) -> Json:
    """A link of a panel or a column."""
    return {"title": title, "url": url(dashboard, *kept, **variables), "targetBlank": False}


def by_label(title: str, dashboard: str, *labels: str) -> Json:
    """A link of a graph; the labels of the series set the variables."""
    return link(title, dashboard, **{label: f"${{__field.labels.{label}}}" for label in labels})


def by_row(title: str, dashboard: str, *columns: str, **renamed: str) -> Json:
    """A link of a table; columns set the variables (`variable=column` where the names differ)."""
    fields = {column: column for column in columns} | renamed
    return link(
        title, dashboard, **{name: f'${{__data.fields["{field}"]}}' for name, field in fields.items()}
    )


TO_NODE = by_row("Node", "node", "node")
TO_GPU = by_row("GPU", "node", "node", "gpu")
TO_MODEL = by_row("GPUs of this model", "fleet", "model")
TO_NAMESPACE = by_row("Pods of this namespace", "workloads", "namespace")
TO_POD = by_row("Pod", "workloads", "namespace", "pod")
SERIES_TO_GPU = by_label("GPU", "node", "node", "gpu")
SERIES_TO_NAMESPACE = by_label("Pods of this namespace", "workloads", "namespace")


def runbook(column: str) -> Json:
    """A link from an alert name in a table to its runbook."""
    address = runbook_url(f'${{__data.fields["{column}"]}}')
    return {"title": "Runbook", "url": address, "targetBlank": True}


def related() -> list[Json]:
    """The menu at the top of each dashboard with all other dashboards."""
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
