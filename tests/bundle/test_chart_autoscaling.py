"""Autoscaling: what prometheus-adapter and KEDA ask is one value, of the right pods, in the right range."""

import random
import re
from typing import Any

import pytest
import yaml

from alerts import check, promql
from tests.bundle import kubernetes_schemas
from tests.bundle.chart import Object, objects, refusal
from tests.bundle.lab.data import CLUSTER, END
from tools import ROOT
from tools.servers.prometheus import Prometheus

pytestmark = pytest.mark.timeout(600)

PROMETHEUS = "http://prometheus.monitoring:9090"
SERIES = "pod:gputally_utilization:ratio"
RANDOM = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes the random parts of names of: k8s.io/apimachinery/pkg/util/rand."""


def keda(name: str = "ranker", kind: str = "Deployment", **more: Any) -> dict[str, Any]:
    target = {"kind": kind, "name": name, "namespace": more.pop("namespace", "search")}
    return {
        "prometheusUrl": PROMETHEUS,
        "cluster": more.pop("cluster", ""),
        "autoscaling": {"keda": {"enabled": True, "target": target, **more}},
    }


def scaled(*arguments: Any, **more: Any) -> Object:
    (made,) = objects("ScaledObject", keda(*arguments, **more))
    spec: Object = made["spec"]
    return spec


def keda_query(*arguments: Any, **more: Any) -> str:
    query: str = scaled(*arguments, **more)["triggers"][0]["metadata"]["query"]
    return query


def adapter(**more: Any) -> Object:
    (made,) = [
        made
        for made in objects("ConfigMap", {"autoscaling": {"prometheusAdapter": {"enabled": True}}, **more})
        if "prometheus-adapter" in made["metadata"]["name"]
    ]
    return made


def adapter_rule(**more: Any) -> Object:
    (rule,) = yaml.safe_load(adapter(**more)["data"]["config.yaml"])["rules"]
    found: Object = rule
    return found


def adapter_query(namespace: str, pods: set[str], **more: Any) -> str:
    """What the adapter makes of its template when an autoscaler asks for these pods."""
    matchers = f'namespace="{namespace}",pod=~"{"|".join(sorted(pods))}"'
    query: str = adapter_rule(**more)["metricsQuery"]
    for name, value in (("Series", SERIES), ("LabelMatchers", matchers), ("GroupBy", "pod")):
        query = query.replace(f"<<.{name}>>", value)
    return query


def ask(lab: Prometheus, query: str) -> dict[str, float]:
    """pod -> value; the pod is empty where the query has put them together."""
    found = lab.api("query", query=query, time=str(END))["result"]
    values = [(one["metric"].get("pod", ""), float(one["value"][1])) for one in found]
    assert len(values) == len(dict(values)), "two series for one pod"
    return dict(values)


@pytest.mark.parametrize("cluster", kubernetes_schemas.CLUSTERS)
def test_clusters_take_the_objects(cluster: str) -> None:
    made = [*objects("ScaledObject", keda()), adapter()]
    assert kubernetes_schemas.faults(made, cluster) == []


def test_a_scaled_object_is_beside_what_it_scales() -> None:
    (made,) = objects("ScaledObject", keda("llm", "StatefulSet", namespace="serving"))
    assert made["metadata"]["namespace"] == "serving"
    assert made["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "llm"}
    (elsewhere,) = objects("ScaledObject", keda(namespace=""))
    assert elsewhere["metadata"]["namespace"] == "monitoring"
    assert 'namespace="monitoring"' in elsewhere["spec"]["triggers"][0]["metadata"]["query"]


def test_silence_is_no_idleness() -> None:
    """Otherwise everything would be scaled down when Prometheus or an exporter is away."""
    spec = scaled(fallbackReplicas=3)
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 3}
    # Before KEDA 2.18, only this type may fall back.
    assert trigger["metricType"] == "AverageValue"


def test_the_fallback_can_heed_how_many_there_are() -> None:
    assert scaled(fallbackBehavior="currentReplicasIfHigher")["fallback"]["behavior"] == (
        "currentReplicasIfHigher"
    )


@pytest.mark.parametrize(
    ("utilization", "threshold"), [(0.7, "70"), (1, "100"), (0.125, "12.5"), (0.29, "29")]
)
def test_the_threshold_is_a_whole_number_of_per_cent_where_it_can_be(
    utilization: float, threshold: str
) -> None:
    """KEDA 2.14 to 2.17 makes 0 of 0.7 when it falls back."""
    (trigger,) = scaled(utilization=utilization)["triggers"]
    assert trigger["metadata"]["threshold"] == threshold
    assert trigger["metadata"]["query"].endswith(" * 100")


def test_the_numbers_of_replicas_are_values() -> None:
    spec = scaled(minReplicas=2, maxReplicas=16)
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 16)
    assert spec["triggers"][0]["metadata"]["serverAddress"] == PROMETHEUS


def pattern(*arguments: Any) -> re.Pattern[str]:
    found = re.search(r'pod=~"([^"]+)"', keda_query(*arguments))
    assert found
    return re.compile(found[1])


def pod_of_deployment(name: str, hashed: str, suffix: str) -> str:
    """As the API server generates it: of what is before the last five characters, 58 are kept."""
    return f"{name}-{hashed}-"[:58] + suffix


@pytest.mark.parametrize("length", [1, 6, 46, 47, 52, 57, 58, 63])
def test_the_pods_of_a_deployment_are_known_by_their_names(length: int) -> None:
    name = ("model-server." * 5)[: length - 1] + "x"
    known = pattern(name)
    generator = random.Random(length)
    for _ in range(100):
        hashed = "".join(generator.choices(RANDOM, k=generator.randint(1, 10)))
        pod = pod_of_deployment(name, hashed, "".join(generator.choices(RANDOM, k=5)))
        assert known.fullmatch(pod), pod


@pytest.mark.parametrize(
    "pod",
    [
        "ranker",
        "ranker-canary-7d9c5f6b8-4xk2p",  # another Deployment
        "ranker-train-4xk2p",  # a Job or DaemonSet
        "ranker-0",  # a StatefulSet
        "old-ranker-7d9c5f6b8-4xk2p",
        "ranker-7d9c5f6b8-4xk2p-debug",
    ],
)
def test_the_pods_of_others_are_not_taken_for_those_of_a_deployment(pod: str) -> None:
    assert not pattern("ranker").fullmatch(pod)


@pytest.mark.parametrize(
    ("pod", "own"),
    [("llm-0", True), ("llm-17", True), ("llm-a-0", False), ("llm-7d9c5f6b8-4xk2p", False), ("llm", False)],
)
def test_the_pods_of_a_stateful_set_are_known_by_their_names(pod: str, own: bool) -> None:
    assert bool(pattern("llm", "StatefulSet").fullmatch(pod)) == own


def test_a_dot_in_a_name_is_a_dot() -> None:
    assert pattern("a.b", "StatefulSet").fullmatch("a.b-0")
    assert not pattern("a.b", "StatefulSet").fullmatch("axb-0")


def test_queries_ask_for_what_is_recorded() -> None:
    known = check.full_schema()
    assert SERIES in known
    assert promql.labels_of(keda_query(cluster="west"), known) == frozenset()
    assert promql.names_in(keda_query(), known) == {SERIES}
    assert promql.labels_of(adapter_query("a", {"b"}, cluster="west"), known) == {"pod"}
    assert promql.names_in(adapter_rule()["seriesQuery"], known) == {SERIES}


def test_the_adapter_ties_the_series_to_pods() -> None:
    rule = adapter_rule()
    assert rule["resources"] == {
        "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    }
    assert re.sub(rule["name"]["matches"], rule["name"]["as"], SERIES) == "gputally_utilization"


def test_the_rules_are_where_the_adapter_is() -> None:
    made = adapter(
        autoscaling={"prometheusAdapter": {"enabled": True, "namespace": "custom-metrics"}},
    )
    assert made["metadata"]["namespace"] == "custom-metrics"


def test_one_cluster_does_not_scale_by_the_use_of_another() -> None:
    assert 'cluster="west"' in keda_query(cluster="west")
    rule = adapter_rule(cluster="west")
    assert all('cluster="west"' in rule[query] for query in ("seriesQuery", "metricsQuery"))
    assert "cluster" not in keda_query() + str(adapter_rule())


def test_the_adapter_finds_one_value_between_0_and_1_for_each_pod(lab: Prometheus) -> None:
    matched = adapter_rule(cluster=CLUSTER)["seriesQuery"]
    series = lab.api("series", **{"match[]": matched, "start": str(END - 60), "end": str(END)})
    assert {one["__name__"] for one in series} == {SERIES}
    pods: dict[str, set[str]] = {}
    for one in series:
        pods.setdefault(one["namespace"], set()).add(one["pod"])
    assert pods.keys() >= {"search", "science", "vision"}
    for namespace, names in pods.items():
        values = ask(lab, adapter_query(namespace, names, cluster=CLUSTER))
        assert values.keys() == names
        assert all(0 <= value <= 1 for value in values.values()), values


def test_a_pod_that_holds_a_gpu_and_does_nothing_is_at_0(lab: Prometheus) -> None:
    assert ask(lab, adapter_query("science", {"dock-wait"})) == {"dock-wait": 0}


def test_keda_gets_one_value_the_use_of_all_pods_together(lab: Prometheus) -> None:
    each = ask(lab, f'{SERIES}{{namespace="search",pod=~"ranker-.+"}}')
    assert len(each) == 2
    assert min(each.values()) > 0
    together = ask(lab, keda_query(cluster=CLUSTER))
    assert together == {"": pytest.approx(100 * sum(each.values()))}


def test_keda_gets_the_use_of_a_stateful_set(lab: Prometheus) -> None:
    each = ask(lab, f'{SERIES}{{namespace="vision",pod="jupyter-ada-0"}}')
    found = ask(lab, keda_query("jupyter-ada", "StatefulSet", namespace="vision"))
    assert found == {"": pytest.approx(100 * each["jupyter-ada-0"])}


def test_keda_gets_nothing_and_no_0_of_pods_that_are_not_there(lab: Prometheus) -> None:
    assert ask(lab, keda_query("nobody")) == {}
    assert ask(lab, keda_query(cluster="another")) == {}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (keda(""), "autoscaling.keda.target.name: say which"),
        ({**keda(), "prometheusUrl": ""}, "autoscaling.keda.enabled: set prometheusUrl"),
        (keda(minReplicas=5), "autoscaling.keda.minReplicas: 5 is more than autoscaling.keda.maxReplicas, 4"),
        (keda(fallbackReplicas=9), "autoscaling.keda.fallbackReplicas: 9 is not between"),
        (keda(minReplicas=3), "autoscaling.keda.fallbackReplicas: 2 is not between"),
        (
            {**keda(), "rules": {"groups": {"gputally-owners": {"enabled": False}}}},
            "rules.groups.gputally-owners.enabled: autoscaling reads",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(values: dict[str, Any], told: str) -> None:
    assert told in refusal(values)


def test_the_stacks_own_prometheus_is_asked_where_no_other_is_named() -> None:
    (made,) = objects("ScaledObject", {**keda(), "prometheusUrl": "", "stack": {"enabled": True}})
    address = made["spec"]["triggers"][0]["metadata"]["serverAddress"]
    assert address == "http://gputally-prometheus.monitoring:9090"


@pytest.mark.parametrize("page", ["argo.md", "autoscaling.md"])
def test_queries_in_the_documentation_ask_for_what_there_is(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```promql\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    queries = [line for block in blocks for line in block.splitlines() if not line.startswith("#")]
    assert queries
    known = check.full_schema()
    for query in queries:
        promql.labels_of(query, known)


def test_the_autoscaler_in_the_documentation_is_one_that_clusters_take() -> None:
    text = (ROOT / "docs" / "autoscaling.md").read_text()
    (example,) = re.findall(r"^```yaml\n(apiVersion: autoscaling.+?)^```", text, re.MULTILINE | re.DOTALL)
    made = yaml.safe_load(example)
    assert kubernetes_schemas.faults([made], "1.34") == []
    (metric,) = made["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == adapter_rule()["name"]["as"]
