"""What dashboards are asked for in tests: everything, or one of each; and what is rightly empty there."""

import re
from collections.abc import Mapping

from dashboards import Json
from dashboards.variables import ALL
from tests.bundle.lab.data import CLUSTER

Choice = Mapping[str, str]

_HOPPER: Choice = {"cluster": CLUSTER, "node": "gpu-h100-01"}
_AMPERE: Choice = {"cluster": CLUSTER, "node": "gpu-a100-01"}
_INSTINCT: Choice = {"cluster": CLUSTER, "node": "gpu-mi300x-01"}

EVERYTHING: Choice = dict.fromkeys(
    ("cluster", "node", "model", "gpu", "namespace", "pod", "workflow", "job", "instance"), ALL
)
ONE: Mapping[str, tuple[Choice, ...]] = {
    "fleet": ({"cluster": CLUSTER, "model": "NVIDIA H100 80GB HBM3"},),
    "node": (
        {**_HOPPER, "gpu": "0"},
        {**_HOPPER, "gpu": "2"},
        {**_AMPERE, "gpu": "0"},
        {**_INSTINCT, "gpu": "1"},
    ),
    "workloads": ({"cluster": CLUSTER, "namespace": "search", "pod": "ranker-7d9c5f6b8-4xk2p"},),
    "energy": ({"cluster": CLUSTER, "namespace": "nlp"},),
    "idle": ({"cluster": CLUSTER, "namespace": "vision"}, {"cluster": CLUSTER, "namespace": "science"}),
    "shadow": ({**_HOPPER, "namespace": "media"}, {**_HOPPER, "namespace": "vision"}),
    "health": (_HOPPER, _AMPERE, _INSTINCT),
    "argo": ({"cluster": CLUSTER, "namespace": "science", "workflow": "Workflow/dock-nightly"},),
    "conductor": ({**_INSTINCT, "gpu": "0"}, {**_INSTINCT, "gpu": "1"}),
    "dcgm": ({"cluster": CLUSTER, "instance": "gpu-h100-01:9400", "gpu": "2"},),
    "trends": ({**_AMPERE, "model": "NVIDIA A100-SXM4-80GB", "namespace": "nlp", "gpu": "1"},),
    "exporter": ({**_HOPPER, "job": "gputally"}, {**_AMPERE, "job": "gputally"}),
}
"""Together they have something for every panel: not every card has every fault."""

_NO_WEEKS = "it looks weeks back, and there is a day"
_NO_STATE_FILE = "nobody keeps a --state-file in a past that is played"
EMPTY: Mapping[tuple[str, str, str], str] = {
    ("energy", "Cost, by namespace", "B"): "it is for what comes after eight namespaces, and there are six",
    ("argo", "By the label of the pods alone", "A"): "simulated pods have no labels",
    ("trends", "Capacity", "E"): _NO_WEEKS,
    ("trends", "GPUs that work, this week and last", "B"): _NO_WEEKS,
    ("trends", "Power, this week and last", "B"): _NO_WEEKS,
    ("exporter", "Values that failed to be read", "A"): "every value can be read",
    ("exporter", "How long saving the books takes", "A"): _NO_STATE_FILE,
    ("exporter", "How long saving the books takes", "B"): _NO_STATE_FILE,
}
"""Dashboard, panel and query -> why it has nothing to show in these data."""

SHOWN: Mapping[str, Choice] = {
    "node": {"node": "gpu-h100-01"},
    "trends": {"namespace": "nlp", "node": "gpu-a100-01", "gpu": "1"},
}
"""What is chosen in the browser, where All cannot be and the first is not the best."""
SHOWN_EMPTY: Mapping[tuple[str, str], str] = {
    ("exporter", "How long saving the books takes"): _NO_STATE_FILE,
}
"""Dashboard and panel -> why it says that there is no data."""
_SECONDS = {"h": 3600, "d": 86_400}


def default_range_seconds(dashboard: Json) -> int:
    """The length of the dashboard's default time range."""
    found = re.fullmatch(r"now-(\d+)([hd])", dashboard["time"]["from"])
    assert found, dashboard["time"]
    return int(found[1]) * _SECONDS[found[2]]
