"""All scrape objects give the exporters' series the same labels."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.bundle import crds
from tests.bundle.chart import Object, objects
from tests.bundle.relabeling import Rule, of_sample, of_target, relabeled

KINDS = {"scrapeConfig": "ScrapeConfig", "serviceMonitor": "ServiceMonitor", "podMonitor": "PodMonitor"}
every_scraper = pytest.mark.parametrize("key", KINDS)
every_scraper_and_the_stack = pytest.mark.parametrize("key", [*KINDS, "stack"])

POD = {
    "__address__": "10.0.0.7:9400",
    "__meta_kubernetes_namespace": "monitoring",
    "__meta_kubernetes_pod_name": "gputally-x7k2p",
    "__meta_kubernetes_pod_node_name": "node-1",
    "__meta_kubernetes_pod_phase": "Running",
    "__meta_kubernetes_pod_container_name": "gputally",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_service_name": "gputally",
    "instance": "10.0.0.7:9400",
}
# The relabelings that the operator prepends to those of an object: promcfg.go, generateServiceMonitorConfig
# and generatePodMonitorConfig.
COMMON: list[Rule] = [
    {"sourceLabels": ["__meta_kubernetes_namespace"], "targetLabel": "namespace"},
    {"sourceLabels": ["__meta_kubernetes_pod_container_name"], "targetLabel": "container"},
    {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "pod"},
]
OPERATORS: dict[str, list[Rule]] = {
    "ScrapeConfig": [],
    "ServiceMonitor": [
        *COMMON,
        {"sourceLabels": ["__meta_kubernetes_service_name"], "targetLabel": "service"},
        {"sourceLabels": ["__meta_kubernetes_service_name"], "targetLabel": "job"},
        {"targetLabel": "endpoint", "replacement": "metrics"},
    ],
    "PodMonitor": [
        *COMMON,
        {"targetLabel": "job", "replacement": "monitoring/gputally"},
        {"targetLabel": "endpoint", "replacement": "metrics"},
    ],
}
OF_TRAINER = {"namespace": "team-a", "pod": "trainer-0", "container": "trainer", "gpu": "0"}
OF_GPU = {"gpu": "0", "uuid": "GPU-1"}
WEB = {
    "tls": {"enabled": True, "secret": "certificate"},
    "basicAuth": {"enabled": True, "secret": "login", "users": {"prometheus": "$2b$10$abc"}},
}


def endpoint(made: Object) -> Mapping[str, Any]:
    """The part of a scrape object with its scrape settings."""
    spec: Mapping[str, Any] = made["spec"]
    if made["kind"] == "ScrapeConfig":
        return spec
    (only,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    found: Mapping[str, Any] = only
    return found


def scraper(key: str, values: Mapping[str, Any] | None = None) -> Object:
    switched = {**(values or {})}
    switched[key] = {**switched.get(key, {}), "enabled": True}
    (made,) = objects(KINDS[key], switched)
    return made


def stack_job(values: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The stack's job, with keys in camel case as in the operator's objects."""
    maps = objects("ConfigMap", {**(values or {}), "stack": {"enabled": True}})
    (text,) = [made["data"]["prometheus.yml"] for made in maps if "prometheus.yml" in made.get("data", {})]
    job: Mapping[str, Any] = _in_camel_case(
        next(job for job in yaml.safe_load(text)["scrape_configs"] if job["job_name"] == "gputally")
    )
    return job


def _in_camel_case(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {
            re.sub("_(.)", lambda found: found[1].upper(), key): _in_camel_case(value)
            for key, value in tree.items()
        }
    return [_in_camel_case(part) for part in tree] if isinstance(tree, list) else tree


def target(key: str, values: Mapping[str, Any] | None = None, **changed: str) -> dict[str, str] | None:
    """The labels that Prometheus adds to one exporter's series."""
    found = POD | changed
    if key == "stack":
        job = stack_job(values)
        return of_target({**found, "job": job["jobName"]}, job["relabelConfigs"])
    made = scraper(key, values)
    rules = [*OPERATORS[made["kind"]], *endpoint(made)["relabelings"]]
    named = {"job": made["spec"]["jobName"]} if made["kind"] == "ScrapeConfig" else {}
    return of_target({**found, **named}, rules)


@every_scraper_and_the_stack
def test_every_scrape_object_gives_the_same_labels(key: str) -> None:
    assert target(key) == {"job": "gputally", "instance": "node-1", "node": "node-1"}


@every_scraper_and_the_stack
@pytest.mark.parametrize("values", [{"cluster": "north"}, {"scrapeConfig": {"cluster": "north"}}])
def test_every_scrape_object_adds_the_cluster(key: str, values: dict[str, Any]) -> None:
    labels = target(key, values)
    assert labels is not None
    assert labels["cluster"] == "north"


@every_scraper
def test_the_job_is_the_job_of_the_rules(key: str) -> None:
    labels = target(key, {"rules": {"settings": {"job": "gpus"}}})
    assert labels is not None
    assert labels["job"] == "gpus"


@every_scraper_and_the_stack
def test_a_completed_pod_is_not_a_target(key: str) -> None:
    assert target(key, __meta_kubernetes_pod_phase="Failed") is None
    assert target(key, __meta_kubernetes_pod_phase="Succeeded") is None


def test_only_the_port_metrics_is_scraped() -> None:
    assert target("scrapeConfig", __meta_kubernetes_pod_container_port_name="debug") is None
    assert endpoint(scraper("podMonitor"))["port"] == endpoint(scraper("serviceMonitor"))["port"] == "metrics"


@every_scraper
def test_a_series_keeps_the_pod_that_uses_the_gpu(key: str) -> None:
    labels = target(key)
    honored = endpoint(scraper(key))["honorLabels"]
    assert labels is not None
    # gputally_pod_info has the label node too: it must not become exported_node.
    sample = {**OF_TRAINER, "node": "node-1"}
    assert of_sample(labels, sample, honor_labels=honored) == labels | sample


@every_scraper
def test_a_series_of_a_gpu_does_not_get_the_exporters_pod(key: str) -> None:
    labels = target(key)
    assert labels is not None
    assert of_sample(labels, OF_GPU, honor_labels=True).keys() == {*OF_GPU, "job", "instance", "node"}


@every_scraper
def test_interval_and_timeout_are_settings_of_the_rules(key: str) -> None:
    made = endpoint(scraper(key, {"rules": {"settings": {"scrapeInterval": "30s", "scrapeTimeout": "7s"}}}))
    assert made.get("scrapeInterval", made.get("interval")) == "30s"
    assert made["scrapeTimeout"] == "7s"


@every_scraper
def test_additional_relabelings_come_last(key: str) -> None:
    own = {"targetLabel": "zone", "replacement": "a"}
    dropping = {"sourceLabels": ["__name__"], "regex": "x", "action": "drop"}
    made = endpoint(scraper(key, {key: {"relabelings": [own], "metricRelabelings": [dropping]}}))
    assert made["relabelings"][-1] == own
    assert made["metricRelabelings"] == [dropping]


@every_scraper
def test_a_scraper_logs_in_and_verifies_the_certificate(key: str) -> None:
    made = endpoint(scraper(key, {"web": WEB}))
    assert made["scheme"].lower() == "https"
    assert made["tlsConfig"] == {
        "serverName": "gputally.monitoring.svc",
        "ca": {"secret": {"name": "certificate", "key": "ca.crt"}},
    }
    assert made["basicAuth"] == {
        "username": {"name": "login", "key": "username"},
        "password": {"name": "login", "key": "password"},
    }


@every_scraper
def test_server_name_and_verification_are_values(key: str) -> None:
    tls = {"enabled": True, "secret": "certificate", "serverName": "gpus.example", "insecureSkipVerify": True}
    made = endpoint(scraper(key, {"web": {"tls": tls}}))
    assert made["tlsConfig"] == {"serverName": "gpus.example", "insecureSkipVerify": True}
    assert "basicAuth" not in made


@every_scraper
def test_labels_for_the_operators_selectors_are_values(key: str) -> None:
    values = {"commonLabels": {"release": "kps"}, key: {"additionalLabels": {"team": "gpu"}}}
    labels = scraper(key, values)["metadata"]["labels"]
    assert {"release": "kps", "team": "gpu"}.items() <= labels.items()


def monitor(suffix: str, values: dict[str, Any]) -> Object:
    (made,) = objects("PodMonitor", {"podMonitor": values, "cluster": "north"})
    assert made["metadata"]["name"] == f"gputally-{suffix}"
    assert crds.faults(made, "prometheus-operator-crds") == []
    return made


def in_pod(made: Object, sample: dict[str, str]) -> dict[str, str]:
    """A series of a pod of team-a, after all relabeling."""
    pod = POD | {
        "__meta_kubernetes_namespace": "team-a",
        "__meta_kubernetes_pod_name": "trainer-0",
        "__meta_kubernetes_pod_container_name": "gputally",
    }
    scraping = endpoint(made)
    labels = of_target(pod, [*OPERATORS["PodMonitor"], *scraping["relabelings"]])
    assert labels is not None
    together = of_sample(labels, sample, honor_labels=scraping.get("honorLabels", False))
    final = relabeled(together, scraping.get("metricRelabelings", ()))
    assert final is not None
    return final


def test_sidecars_are_selected_in_all_namespaces_by_their_label() -> None:
    spec = monitor("sidecars", {"sidecars": {"enabled": True}})["spec"]
    assert spec["namespaceSelector"] == {"any": True}
    assert spec["selector"] == {"matchLabels": {"gputally.io/sidecar": "true"}}


def test_the_series_of_a_sidecar_have_its_own_pod() -> None:
    made = monitor("sidecars", {"sidecars": {"enabled": True}})
    assert in_pod(made, OF_TRAINER) == {
        **OF_TRAINER,
        "cluster": "north",
        "instance": "team-a/trainer-0",
        "job": "gputally",
        "node": "node-1",
    }


def test_a_sidecar_cannot_claim_the_name_of_another_pod() -> None:
    made = monitor("sidecars", {"sidecars": {"enabled": True}})
    forged = in_pod(made, {**OF_TRAINER, "namespace": "team-b", "pod": "victim"})
    assert (forged["namespace"], forged["pod"]) == ("team-a", "trainer-0")
    assert "victim" not in forged.values()


def test_other_pods_keep_the_labels_of_the_operator() -> None:
    chosen = {"gputally.io/scrape": None, "app": "dcgm"}
    values = {"enabled": True, "matchLabels": chosen, "port": "gpu", "path": "/gpu"}
    made = monitor("pods", {"pods": values})
    assert made["spec"]["selector"] == {"matchLabels": {"app": "dcgm"}}
    assert (endpoint(made)["port"], endpoint(made)["path"]) == ("gpu", "/gpu")
    given = {"namespace": "team-a", "pod": "trainer-0", "node": "node-1", "cluster": "north"}
    assert given.items() <= in_pod(made, OF_GPU).items()
