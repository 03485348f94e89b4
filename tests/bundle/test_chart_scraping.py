"""However the exporters are scraped, their series have the same labels, and those of no other pod."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.bundle import crds
from tests.bundle.chart import Object, objects
from tests.bundle.relabeling import Rule, of_sample, of_target, relabeled

KINDS = {"scrapeConfig": "ScrapeConfig", "serviceMonitor": "ServiceMonitor", "podMonitor": "PodMonitor"}
every_way = pytest.mark.parametrize("way", KINDS)
every_way_and_the_stack = pytest.mark.parametrize("way", [*KINDS, "stack"])

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
# What the operator itself puts before the relabelings of an object: promcfg.go, generateServiceMonitorConfig
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
    """The part of a scraper that says how it scrapes."""
    spec: Mapping[str, Any] = made["spec"]
    if made["kind"] == "ScrapeConfig":
        return spec
    (only,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    found: Mapping[str, Any] = only
    return found


def scraper(way: str, values: Mapping[str, Any] | None = None) -> Object:
    switched = {**(values or {})}
    switched[way] = {**switched.get(way, {}), "enabled": True}
    (made,) = objects(KINDS[way], switched)
    return made


def stack_job(values: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The stack's job, in the spelling of the operator's objects."""
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


def target(way: str, values: Mapping[str, Any] | None = None, **changed: str) -> dict[str, str] | None:
    """The labels of one exporter's series that Prometheus adds."""
    found = POD | changed
    if way == "stack":
        job = stack_job(values)
        return of_target({**found, "job": job["jobName"]}, job["relabelConfigs"])
    made = scraper(way, values)
    rules = [*OPERATORS[made["kind"]], *endpoint(made)["relabelings"]]
    named = {"job": made["spec"]["jobName"]} if made["kind"] == "ScrapeConfig" else {}
    return of_target({**found, **named}, rules)


@every_way_and_the_stack
def test_every_way_of_scraping_gives_the_same_labels(way: str) -> None:
    assert target(way) == {"job": "gputally", "instance": "node-1", "node": "node-1"}


@every_way_and_the_stack
@pytest.mark.parametrize("values", [{"cluster": "north"}, {"scrapeConfig": {"cluster": "north"}}])
def test_every_way_of_scraping_names_the_cluster(way: str, values: dict[str, Any]) -> None:
    labels = target(way, values)
    assert labels is not None
    assert labels["cluster"] == "north"


@every_way
def test_the_job_is_that_of_the_rules(way: str) -> None:
    labels = target(way, {"rules": {"settings": {"job": "gpus"}}})
    assert labels is not None
    assert labels["job"] == "gpus"


@every_way_and_the_stack
def test_a_pod_that_has_ended_is_no_target(way: str) -> None:
    assert target(way, __meta_kubernetes_pod_phase="Failed") is None
    assert target(way, __meta_kubernetes_pod_phase="Succeeded") is None


def test_only_the_port_of_the_metrics_is_scraped() -> None:
    assert target("scrapeConfig", __meta_kubernetes_pod_container_port_name="debug") is None
    assert endpoint(scraper("podMonitor"))["port"] == endpoint(scraper("serviceMonitor"))["port"] == "metrics"


@every_way
def test_a_sample_keeps_the_pod_that_it_is_about(way: str) -> None:
    labels = target(way)
    honored = endpoint(scraper(way))["honorLabels"]
    assert labels is not None
    # gputally_pod_info has the node too: it is not to be there twice.
    sample = {**OF_TRAINER, "node": "node-1"}
    assert of_sample(labels, sample, honor_labels=honored) == labels | sample


@every_way
def test_a_sample_about_a_gpu_does_not_get_the_exporters_pod(way: str) -> None:
    labels = target(way)
    assert labels is not None
    assert of_sample(labels, OF_GPU, honor_labels=True).keys() == {*OF_GPU, "job", "instance", "node"}


@every_way
def test_interval_and_timeout_are_those_that_the_rules_reckon_with(way: str) -> None:
    made = endpoint(scraper(way, {"rules": {"settings": {"scrapeInterval": "30s", "scrapeTimeout": "7s"}}}))
    assert made.get("scrapeInterval", made.get("interval")) == "30s"
    assert made["scrapeTimeout"] == "7s"


@every_way
def test_own_relabelings_come_last(way: str) -> None:
    own = {"targetLabel": "zone", "replacement": "a"}
    dropping = {"sourceLabels": ["__name__"], "regex": "x", "action": "drop"}
    made = endpoint(scraper(way, {way: {"relabelings": [own], "metricRelabelings": [dropping]}}))
    assert made["relabelings"][-1] == own
    assert made["metricRelabelings"] == [dropping]


@every_way
def test_a_scraper_logs_in_and_checks_the_certificate(way: str) -> None:
    made = endpoint(scraper(way, {"web": WEB}))
    assert made["scheme"].lower() == "https"
    assert made["tlsConfig"] == {
        "serverName": "gputally.monitoring.svc",
        "ca": {"secret": {"name": "certificate", "key": "ca.crt"}},
    }
    assert made["basicAuth"] == {
        "username": {"name": "login", "key": "username"},
        "password": {"name": "login", "key": "password"},
    }


@every_way
def test_a_certificate_can_have_another_name_or_go_unchecked(way: str) -> None:
    tls = {"enabled": True, "secret": "certificate", "serverName": "gpus.example", "insecureSkipVerify": True}
    made = endpoint(scraper(way, {"web": {"tls": tls}}))
    assert made["tlsConfig"] == {"serverName": "gpus.example", "insecureSkipVerify": True}
    assert "basicAuth" not in made


@every_way
def test_its_labels_are_what_an_operator_selects_by(way: str) -> None:
    values = {"commonLabels": {"release": "kps"}, way: {"additionalLabels": {"team": "gpu"}}}
    labels = scraper(way, values)["metadata"]["labels"]
    assert {"release": "kps", "team": "gpu"}.items() <= labels.items()


def monitor(suffix: str, values: dict[str, Any]) -> Object:
    (made,) = objects("PodMonitor", {"podMonitor": values, "cluster": "north"})
    assert made["metadata"]["name"] == f"gputally-{suffix}"
    assert crds.faults(made, "prometheus-operator-crds") == []
    return made


def in_pod(made: Object, sample: dict[str, str]) -> dict[str, str]:
    """A sample of a pod of team-a's, after all relabeling."""
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


def test_sidecars_are_found_in_all_namespaces_by_their_label() -> None:
    spec = monitor("sidecars", {"sidecars": {"enabled": True}})["spec"]
    assert spec["namespaceSelector"] == {"any": True}
    assert spec["selector"] == {"matchLabels": {"gputally.io/sidecar": "true"}}


def test_the_series_of_a_sidecar_are_about_its_own_pod() -> None:
    made = monitor("sidecars", {"sidecars": {"enabled": True}})
    assert in_pod(made, OF_TRAINER) == {
        **OF_TRAINER,
        "cluster": "north",
        "instance": "team-a/trainer-0",
        "job": "gputally",
        "node": "node-1",
    }


def test_a_sidecar_cannot_charge_another_pod() -> None:
    made = monitor("sidecars", {"sidecars": {"enabled": True}})
    forged = in_pod(made, {**OF_TRAINER, "namespace": "team-b", "pod": "victim"})
    assert (forged["namespace"], forged["pod"]) == ("team-a", "trainer-0")
    assert "victim" not in forged.values()


def test_other_pods_keep_the_labels_that_the_operator_gives_them() -> None:
    chosen = {"gputally.io/scrape": None, "app": "dcgm"}
    values = {"enabled": True, "matchLabels": chosen, "port": "gpu", "path": "/gpu"}
    made = monitor("pods", {"pods": values})
    assert made["spec"]["selector"] == {"matchLabels": {"app": "dcgm"}}
    assert (endpoint(made)["port"], endpoint(made)["path"]) == ("gpu", "/gpu")
    given = {"namespace": "team-a", "pod": "trainer-0", "node": "node-1", "cluster": "north"}
    assert given.items() <= in_pod(made, OF_GPU).items()
