"""The variables at the top of a dashboard; each offers only values that match the variables before it."""

from dataclasses import dataclass

from dashboards import Json
from dashboards.queries import MATCH_CLUSTER, MATCH_NAMESPACE

ALL = ".*"
"""Also matches series without the label, such as `cluster` where there is only one."""

DATASOURCE: Json = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that offers the values of a label of a metric."""

    name: str
    label: str
    """Its title."""
    metric: str
    """A selector, with the variables before it: gputally_gpu_info{cluster=~"$cluster"}."""
    of: str = ""
    """The label whose values it offers; by default the label of the variable's name."""
    multi: bool = True
    """Offers All and several values; otherwise exactly one."""

    @property
    def query(self) -> str:
        return f"label_values({self.metric}, {self.of or self.name})"

    def to_json_data(self) -> Json:
        all_selected = {"selected": True, "text": ["All"], "value": ["$__all"]}
        choice = (
            {"current": all_selected, "allValue": ALL, "includeAll": True}
            if self.multi
            else {"includeAll": False}
        )
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": self.query, "refId": f"variable-{self.name}"},
            **choice,
            "multi": self.multi,
            "hide": 0,
            "options": [],
            "refresh": 2,
            "regex": "",
            "skipUrlSync": False,
            "sort": 1,
        }


CLUSTER = Variable("cluster", "Cluster", "gputally_gpu_info")
NODE = Variable("node", "Node", f"gputally_gpu_info{{{MATCH_CLUSTER}}}")
MODEL = Variable("model", "Model", f"gputally_gpu_info{{{MATCH_CLUSTER}}}")
NAMESPACE = Variable("namespace", "Namespace", f"gputally_pod_active{{{MATCH_CLUSTER}}}")
POD = Variable("pod", "Pod", f"gputally_pod_active{{{MATCH_NAMESPACE}}}")
