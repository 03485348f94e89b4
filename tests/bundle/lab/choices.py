"""Values of dashboard variables in tests, and panels that are expected to be empty."""

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
    "fleet": (
        {"cluster": CLUSTER, "model": "NVIDIA H100 80GB HBM3"},
        {"cluster": CLUSTER, "model": "NVIDIA A100-SXM4-80GB"},
        {"cluster": CLUSTER, "model": "AMD Instinct MI300X OAM"},
    ),
    "node": (
        {**_HOPPER, "gpu": "0"},
        {**_HOPPER, "gpu": "2"},
        {**_AMPERE, "gpu": "0"},
        {**_INSTINCT, "gpu": "1"},
    ),
    "workloads": ({"cluster": CLUSTER, "namespace": "search", "pod": "ranker-7d9c5f6b8-4xk2p"},),
    "energy": ({"cluster": CLUSTER, "namespace": "nlp"},),
    "idle": ({"cluster": CLUSTER, "namespace": "vision"}, {"cluster": CLUSTER, "namespace": "science"}),
    "capacity": ({"cluster": CLUSTER},),
    "shadow": ({**_HOPPER, "namespace": "media"}, {**_HOPPER, "namespace": "vision"}),
    "health": (_HOPPER, _AMPERE, _INSTINCT),
    "argo": ({"cluster": CLUSTER, "namespace": "science", "workflow": "Workflow/dock-nightly"},),
    "conductor": ({**_INSTINCT, "gpu": "0"}, {**_INSTINCT, "gpu": "1"}),
    "dcgm": ({"cluster": CLUSTER, "instance": "gpu-h100-01:9400", "gpu": "2"},),
    "trends": ({**_AMPERE, "model": "NVIDIA A100-SXM4-80GB", "namespace": "nlp", "gpu": "1"},),
    "exporter": ({**_HOPPER, "job": "gputally"}, {**_AMPERE, "job": "gputally"}),
}
"""Together they have data for every panel: no GPU has every fault."""

_NO_WEEKS = "it needs weeks of data, and there is one day"
_NO_STATE_FILE = "simulated history has no --state-file"
_NO_KUBERNETES = "the data has no kube-state-metrics and no Kueue: test_capacity_dashboard.py has them"
_OF_KUBERNETES = {
    "Pods pending": "A",
    "Pending GPUs": "A",
    "Longest wait": "A",
    "From allocatable to busy": "AB",
    "Pending GPUs by reason": "A",
    "Requested and allocatable by resource": "AB",
    "Pending pods": "AB",
    "Nodes with free GPUs": "AB",
    "GPU quotas of namespaces": "ABC",
    "Kueue queues": "ABC",
}
"""Panel -> its queries."""
EMPTY: Mapping[tuple[str, str, str], str] = {
    **{
        ("capacity", panel, letter): _NO_KUBERNETES
        for panel, letters in _OF_KUBERNETES.items()
        for letter in letters
    },
    ("energy", "Cost by namespace", "B"): "it needs more than eight namespaces, and there are six",
    ("argo", "Workflows by pod label", "A"): "simulated pods have no labels",
    ("trends", "Anomalies", "A"): "no GPU and no namespace does less than usual",
    ("trends", "Capacity", "E"): _NO_WEEKS,
    ("trends", "Busy GPUs, week over week", "B"): _NO_WEEKS,
    ("trends", "Power, week over week", "B"): _NO_WEEKS,
    ("exporter", "Read errors", "A"): "there are no read errors",
    ("exporter", "Ledger write duration", "A"): _NO_STATE_FILE,
    ("exporter", "Ledger write duration", "B"): _NO_STATE_FILE,
}
"""Dashboard, panel and query -> why it is empty."""

SHOWN: Mapping[str, Choice] = {
    "node": {"node": "gpu-h100-01"},
    "trends": {"namespace": "nlp", "node": "gpu-a100-01", "gpu": "1"},
}
"""Values chosen in the browser for variables without All."""
SHOWN_EMPTY: Mapping[tuple[str, str], str] = {
    **{
        ("capacity", panel): _NO_KUBERNETES
        for panel in ("Pending pods", "Nodes with free GPUs", "GPU quotas of namespaces", "Kueue queues")
    },
    ("exporter", "Ledger write duration"): _NO_STATE_FILE,
}
"""Dashboard and panel -> why it is empty in the browser."""
_SECONDS = {"h": 3600, "d": 86_400}


def default_range_seconds(dashboard: Json) -> int:
    """The length of the dashboard's default time range."""
    found = re.fullmatch(r"now-(\d+)([hd])", dashboard["time"]["from"])
    assert found, dashboard["time"]
    return int(found[1]) * _SECONDS[found[2]]
