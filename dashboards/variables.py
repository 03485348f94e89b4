"""The variables at the top of a dashboard. Each works with All and with one; each asks only for what the ones
before it have left."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
ALL = ".*"
"""Also matches series that lack the label, such as `cluster` where there is only one."""

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
    """A variable whose values are a label's, as found on a metric."""

    name: str
    label: str
    """Its title."""
    metric: str
    """A selector, with the variables before it: gputally_gpu_info{cluster=~"$cluster"}."""
    of: str = ""
    """The label whose values it offers; its own name unless given."""
    multi: bool = True

    @property
    def query(self) -> str:
        return f"label_values({self.metric}, {self.of or self.name})"

    def to_json_data(self) -> Json:
        all_of_them = {"selected": True, "text": ["All"], "value": ["$__all"]}
        everything = (
            {"current": all_of_them, "allValue": ALL, "includeAll": True}
            if self.multi
            else {"includeAll": False}
        )
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": self.query, "refId": f"variable-{self.name}"},
            **everything,
            "multi": self.multi,
            "hide": 0,
            "options": [],
            "refresh": 2,
            "regex": "",
            "skipUrlSync": False,
            "sort": 1,
        }


CLUSTER = Variable("cluster", "Cluster", "gputally_gpu_info")
NODE = Variable("node", "Node", 'gputally_gpu_info{cluster=~"$cluster"}')
MODEL = Variable("model", "Model", 'gputally_gpu_info{cluster=~"$cluster", node=~"$node"}')
MODEL_OF_FLEET = Variable("model", "Model", 'gputally_gpu_info{cluster=~"$cluster"}')
GPU = Variable("gpu", "GPU", 'gputally_gpu_info{cluster=~"$cluster", node=~"$node", model=~"$model"}')
NAMESPACE = Variable("namespace", "Namespace", 'gputally_pod_active{cluster=~"$cluster"}')
POD = Variable("pod", "Pod", 'gputally_pod_active{cluster=~"$cluster", namespace=~"$namespace"}')
