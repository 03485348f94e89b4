"""Autoscaling: the queries of prometheus-adapter and KEDA return one value for the right pods."""

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

PROMETHEUS = "http://prometheus.monitoring:9090"
SERIES = "pod:gputally_utilization:ratio"
RANDOM = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of random parts of names: k8s.io/apimachinery/pkg/util/rand."""


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
    """The adapter's query for these pods, from its template."""
    matchers = f'namespace="{namespace}",pod=~"{"|".join(sorted(pods))}"'
    query: str = adapter_rule(**more)["metricsQuery"]
    for name, value in (("Series", SERIES), ("LabelMatchers", matchers), ("GroupBy", "pod")):
        query = query.replace(f"<<.{name}>>", value)
    return query


def values_of(lab: Prometheus, query: str) -> dict[str, float]:
    """Pod -> value; the pod is empty in an aggregated series."""
    found = lab.api("query", query=query, time=str(END))["result"]
    values = [(one["metric"].get("pod", ""), float(one["value"][1])) for one in found]
    assert len(values) == len(dict(values)), "two series for one pod"
    return dict(values)


@pytest.mark.parametrize("cluster", kubernetes_schemas.CLUSTERS)
def test_the_objects_are_valid(cluster: str) -> None:
    made = [*objects("ScaledObject", keda()), adapter()]
    assert kubernetes_schemas.faults(made, cluster) == []


def test_a_scaled_object_is_in_the_namespace_of_its_target() -> None:
    (made,) = objects("ScaledObject", keda("llm", "StatefulSet", namespace="serving"))
    assert made["metadata"]["namespace"] == "serving"
    assert made["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "llm"}
    (elsewhere,) = objects("ScaledObject", keda(namespace=""))
    assert elsewhere["metadata"]["namespace"] == "monitoring"
    assert 'namespace="monitoring"' in elsewhere["spec"]["triggers"][0]["metadata"]["query"]


def test_missing_series_do_not_count_as_idle() -> None:
    """Otherwise all workloads would be scaled down while Prometheus or an exporter is unavailable."""
    spec = scaled(fallbackReplicas=3)
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 3}
    # Before KEDA 2.18, only this type supports a fallback.
    assert trigger["metricType"] == "AverageValue"


def test_the_fallback_can_depend_on_the_current_replicas() -> None:
    assert scaled(fallbackBehavior="currentReplicasIfHigher")["fallback"]["behavior"] == (
        "currentReplicasIfHigher"
    )


@pytest.mark.parametrize(
    ("utilization", "threshold"), [(0.7, "70"), (1, "100"), (0.125, "12.5"), (0.29, "29")]
)
def test_the_threshold_is_in_per_cent(utilization: float, threshold: str) -> None:
    """KEDA 2.14 to 2.17 truncates 0.7 to 0 in the fallback."""
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


def test_queries_use_recorded_series() -> None:
    known = check.full_schema()
    assert SERIES in known
    assert promql.labels_of(keda_query(cluster="west"), known) == frozenset()
    assert promql.names_in(keda_query(), known) == {SERIES}
    assert promql.labels_of(adapter_query("a", {"b"}, cluster="west"), known) == {"pod"}
    assert promql.names_in(adapter_rule()["seriesQuery"], known) == {SERIES}


def test_the_adapter_maps_the_series_to_pods() -> None:
    rule = adapter_rule()
    assert rule["resources"] == {
        "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    }
    assert re.sub(rule["name"]["matches"], rule["name"]["as"], SERIES) == "gputally_utilization"


def test_the_rules_are_in_the_adapters_namespace() -> None:
    made = adapter(
        autoscaling={"prometheusAdapter": {"enabled": True, "namespace": "custom-metrics"}},
    )
    assert made["metadata"]["namespace"] == "custom-metrics"


def test_the_utilisation_of_another_cluster_is_ignored() -> None:
    assert 'cluster="west"' in keda_query(cluster="west")
    rule = adapter_rule(cluster="west")
    assert all('cluster="west"' in rule[query] for query in ("seriesQuery", "metricsQuery"))
    assert "cluster" not in keda_query() + str(adapter_rule())


def test_the_adapter_gets_one_value_between_0_and_1_for_each_pod(lab: Prometheus) -> None:
    matched = adapter_rule(cluster=CLUSTER)["seriesQuery"]
    series = lab.api("series", **{"match[]": matched, "start": str(END - 60), "end": str(END)})
    assert {one["__name__"] for one in series} == {SERIES}
    pods: dict[str, set[str]] = {}
    for one in series:
        pods.setdefault(one["namespace"], set()).add(one["pod"])
    assert pods.keys() >= {"search", "science", "vision"}
    for namespace, names in pods.items():
        values = values_of(lab, adapter_query(namespace, names, cluster=CLUSTER))
        assert values.keys() == names
        assert all(0 <= value <= 1 for value in values.values()), values


def test_an_idle_pod_has_the_value_0(lab: Prometheus) -> None:
    assert values_of(lab, adapter_query("science", {"dock-wait"})) == {"dock-wait": 0}


def test_keda_gets_the_summed_utilisation_of_all_pods(lab: Prometheus) -> None:
    each = values_of(lab, f'{SERIES}{{namespace="search",pod=~"ranker-.+"}}')
    assert len(each) == 2
    assert min(each.values()) > 0
    together = values_of(lab, keda_query(cluster=CLUSTER))
    assert together == {"": pytest.approx(100 * sum(each.values()))}


def test_keda_gets_the_utilisation_of_a_stateful_set(lab: Prometheus) -> None:
    each = values_of(lab, f'{SERIES}{{namespace="vision",pod="jupyter-ada-0"}}')
    found = values_of(lab, keda_query("jupyter-ada", "StatefulSet", namespace="vision"))
    assert found == {"": pytest.approx(100 * each["jupyter-ada-0"])}


def test_keda_gets_no_value_for_pods_that_do_not_exist(lab: Prometheus) -> None:
    assert values_of(lab, keda_query("missing")) == {}
    assert values_of(lab, keda_query(cluster="another")) == {}


@pytest.mark.parametrize(
    ("values", "key", "named"),
    [
        (keda(""), "autoscaling.keda.target.name", ""),
        ({**keda(), "prometheusUrl": ""}, "autoscaling.keda.enabled", "prometheusUrl"),
        (keda(minReplicas=5), "autoscaling.keda.minReplicas: 5", "autoscaling.keda.maxReplicas, 4"),
        (keda(fallbackReplicas=9), "autoscaling.keda.fallbackReplicas: 9", "maxReplicas, 4"),
        (keda(minReplicas=3), "autoscaling.keda.fallbackReplicas: 2", "minReplicas, 3"),
        (
            {**keda(), "rules": {"groups": {"gputally-owners": {"enabled": False}}}},
            "rules.groups.gputally-owners.enabled",
            "autoscaling",
        ),
    ],
)
def test_a_mistake_is_refused_in_one_line(values: dict[str, Any], key: str, named: str) -> None:
    line = refusal(values)
    assert line.startswith(key)
    assert named in line


def test_the_stacks_prometheus_is_the_default() -> None:
    (made,) = objects("ScaledObject", {**keda(), "prometheusUrl": "", "stack": {"enabled": True}})
    address = made["spec"]["triggers"][0]["metadata"]["serverAddress"]
    assert address == "http://gputally-prometheus.monitoring:9090"


@pytest.mark.parametrize("page", ["argo.md", "autoscaling.md"])
def test_queries_in_the_documentation_use_existing_series(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```promql\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    queries = [line for block in blocks for line in block.splitlines() if not line.startswith("#")]
    assert queries
    known = check.full_schema()
    for query in queries:
        promql.labels_of(query, known)


def test_the_autoscaler_in_the_documentation_is_valid() -> None:
    text = (ROOT / "docs" / "autoscaling.md").read_text()
    (example,) = re.findall(r"^```yaml\n(apiVersion: autoscaling.+?)^```", text, re.MULTILINE | re.DOTALL)
    made = yaml.safe_load(example)
    assert kubernetes_schemas.faults([made], "1.34") == []
    (metric,) = made["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == adapter_rule()["name"]["as"]
