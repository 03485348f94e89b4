"""Every selector, port and name in an object of the chart refers to an existing object."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

import pytest
import yaml

from tests.bundle.chart import Object, Pod, objects, pods, render
from tests.bundle.chart_combinations import CASES, Case
from tests.bundle.network_policies import Peer, reaches, selected

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

WORKLOADS = {"DaemonSet", "Deployment", "StatefulSet"}
COMPONENT = "app.kubernetes.io/component"
# Component -> components that it connects to.
CONNECTS_TO = {
    "exporter": set(),
    "prometheus": {"exporter", "alertmanager", "grafana", "kube-state-metrics"},
    "alertmanager": set(),
    "kube-state-metrics": set(),
    "grafana": {"prometheus", "alertmanager"},
    "verify": {"exporter", "prometheus", "alertmanager", "grafana"},
    "bill": {"prometheus"},
}
SCRAPERS = ("ScrapeConfig", "ServiceMonitor", "PodMonitor")


def ports(pod: Pod) -> dict[str, int]:
    """Name -> number, of a pod's ports."""
    found = [port for container in pod.containers for port in container.get("ports", ())]
    named = {port["name"]: port["containerPort"] for port in found}
    assert len(named) == len(found), f"{pod.title}: duplicate port names"
    return named


def of_workloads(rendered: Iterable[Object]) -> list[Pod]:
    return [pod for pod in pods(rendered) if pod.owner["kind"] in WORKLOADS]


def exporters(rendered: Iterable[Object]) -> list[Pod]:
    return [pod for pod in of_workloads(rendered) if pod.component == "exporter"]


def name(made: Object) -> str:
    named: str = made["metadata"]["name"]
    return named


@every_case
def test_a_workload_selects_its_own_pods_and_no_others(case: Case) -> None:
    rendered = render(**case.arguments)
    for made in rendered:
        if made["kind"] in WORKLOADS:
            found = [pod for pod in pods(rendered) if selected(made["spec"]["selector"], pod.labels)]
            assert [pod.owner for pod in found] == [made]


@every_case
def test_a_service_reaches_the_ports_of_one_workload(case: Case) -> None:
    rendered = render(**case.arguments)
    for service in objects("Service", **case.arguments):
        (pod,) = [
            pod
            for pod in pods(rendered)
            if selected({"matchLabels": service["spec"]["selector"]}, pod.labels)
        ]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports(pod), (name(service), port)


@every_case
def test_a_network_policy_selects_pods_that_have_its_ports(case: Case) -> None:
    rendered = render(**case.arguments)
    for policy in objects("NetworkPolicy", **case.arguments):
        found = [pod for pod in pods(rendered) if selected(policy["spec"]["podSelector"], pod.labels)]
        assert found, name(policy)
        for pod in found:
            known = {*ports(pod), *ports(pod).values()}
            for rule in policy["spec"].get("ingress", ()):
                assert {port["port"] for port in rule["ports"]} <= known, name(policy)


@every_case
def test_network_policies_allow_the_required_connections_only(case: Case) -> None:
    network = case.given.get("networkPolicy", {})
    if not network.get("enabled", True):
        return
    rendered = render(**case.arguments)
    running = [pod for pod in pods(rendered) if pod.owner["kind"] in {*WORKLOADS, "Pod", "CronJob"}]
    for client, server in permutations(running, 2):
        must = server.component in CONNECTS_TO[client.component]
        if server.component == "grafana" and not must and not network.get("grafanaClients"):
            continue  # not restricted; Grafana requires a login
        if server.component == "exporter" and not must and not restricts_scrapers(case):
            continue
        for port in ports(server):
            found = reaches(Peer.of(client), Peer.of(server), port, rendered)
            for_probes_only = port == "telemetry"
            assert found == (must and not for_probes_only), (client.title, server.title)


def restricts_scrapers(case: Case) -> bool:
    """Whether the chart knows a scraper."""
    return bool(
        case.given.get("stack", {}).get("enabled") or "scrapers" in case.given.get("networkPolicy", {})
    )


@every_case
def test_the_operators_prometheus_reaches_the_exporter_and_other_pods_do_not(case: Case) -> None:
    policy = case.given.get("networkPolicy", {})
    if not policy.get("enabled", True):
        return
    chosen = "scrapers" in policy
    namespace_of_scrapers, *_ = policy.get("scraperNamespaces", ["observability"])
    restricted = restricts_scrapers(case)
    of_the_operator = {"app.kubernetes.io/name": "prometheus"}
    for pod in exporters(render(**case.arguments)):
        for labels, namespace, scrapes in (
            (of_the_operator, namespace_of_scrapers, chosen or not restricted),
            (of_the_operator, "elsewhere", not restricted),
            ({"app.kubernetes.io/name": "notebook"}, pod.owner["metadata"]["namespace"], not restricted),
        ):
            found = reaches(Peer(labels, namespace), Peer.of(pod), "metrics", render(**case.arguments))
            assert found == scrapes, (labels, namespace)


@every_case
def test_exactly_the_enabled_scrape_objects_select_the_exporter(case: Case) -> None:
    rendered = render(**case.arguments)
    scrapers = [
        made
        for made in rendered
        if made["kind"] in SCRAPERS and made["metadata"]["labels"][COMPONENT] == "exporter"
    ]
    enabled = [kind for kind in SCRAPERS if case.given.get(kind[0].lower() + kind[1:], {}).get("enabled")]
    assert [made["kind"] for made in scrapers] == enabled
    for made in scrapers:
        assert [*reached(made, rendered)] == exporters(rendered)


def reached(scraper: Object, rendered: list[Object]) -> Iterator[Pod]:
    """The pods that a scrape object of the operator selects, with honoured labels."""
    spec = scraper["spec"]
    match scraper["kind"]:
        case "ScrapeConfig":
            assert spec["honorLabels"] is True
            (discovery,) = spec["kubernetesSDConfigs"]
            (selector,) = discovery["selectors"]
            labels = labels_of(selector["label"])
            port = kept_port(spec["relabelings"])
            for pod in exporters(rendered):
                inside = pod.owner["metadata"]["namespace"] in discovery["namespaces"]["names"]
                if inside and selected({"matchLabels": labels}, pod.labels) and port in ports(pod):
                    yield pod
        case "PodMonitor":
            (endpoint,) = spec["podMetricsEndpoints"]
            assert endpoint["honorLabels"] is True
            for pod in exporters(rendered):
                inside = pod.owner["metadata"]["namespace"] in spec["namespaceSelector"]["matchNames"]
                if inside and selected(spec["selector"], pod.labels) and endpoint["port"] in ports(pod):
                    yield pod
        case "ServiceMonitor":
            (endpoint,) = spec["endpoints"]
            assert endpoint["honorLabels"] is True
            for service in (made for made in rendered if made["kind"] == "Service"):
                inside = service["metadata"]["namespace"] in spec["namespaceSelector"]["matchNames"]
                if not inside or not selected(spec["selector"], service["metadata"]["labels"]):
                    continue
                (port,) = [port for port in service["spec"]["ports"] if port["name"] == endpoint["port"]]
                for pod in exporters(rendered):
                    behind = selected({"matchLabels": service["spec"]["selector"]}, pod.labels)
                    if behind and port["targetPort"] in ports(pod):
                        yield pod


def labels_of(selector: str) -> dict[str, str]:
    """The labels of a label selector such as `a=b,c=d`."""
    return dict(pair.split("=") for pair in selector.split(","))


def kept_port(relabelings: list[Mapping[str, Any]]) -> str:
    (rule,) = [
        rule
        for rule in relabelings
        if rule.get("sourceLabels") == ["__meta_kubernetes_pod_container_port_name"]
        and rule["action"] == "keep"
    ]
    regex: str = rule["regex"]
    return regex


@every_case
def test_the_stacks_prometheus_scrapes_the_exporter_with_its_web_settings(case: Case) -> None:
    rendered = render(**case.arguments)
    web = case.given.get("web", {})
    for made in objects("ConfigMap", **case.arguments):
        if not (configuration := made.get("data", {}).get("prometheus.yml")):
            continue
        jobs = {job["job_name"]: job for job in yaml.safe_load(configuration)["scrape_configs"]}
        assert ("gputally" in jobs) == bool(exporters(rendered))
        for pod in exporters(rendered):
            job = jobs["gputally"]
            assert job["honor_labels"] is True
            (discovery,) = job["kubernetes_sd_configs"]
            (selector,) = discovery["selectors"]
            assert selected({"matchLabels": labels_of(selector["label"])}, pod.labels)
            assert discovery["namespaces"]["names"] == [pod.owner["metadata"]["namespace"]]
            (kept,) = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
            assert kept["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
            assert kept["regex"] in ports(pod)
            assert job.get("scheme", "http") == ("https" if "tls" in web else "http")
            assert ("basic_auth" in job) == ("basicAuth" in web)


@every_case
def test_every_address_of_the_namespace_is_a_service_and_its_port(case: Case) -> None:
    rendered = render(**case.arguments)
    services = {
        (name(made), made["metadata"]["namespace"], port["port"])
        for made in rendered
        if made["kind"] == "Service"
        for port in made["spec"]["ports"]
    }
    namespaces = "|".join(sorted({namespace for _, namespace, _ in services}))
    if namespaces:
        address = re.compile(rf"([a-z0-9-]+)\.({namespaces})(?:\.svc[a-z.]*)?:([0-9]+)\b")
        for made in rendered:
            for service, namespace, port in address.findall(json.dumps(made)):
                assert (service, namespace, int(port)) in services, name(made)


@every_case
def test_scrape_objects_have_the_web_settings_of_the_exporter(case: Case) -> None:
    web = case.given.get("web", {})
    for made in render(**case.arguments):
        if made["kind"] not in SCRAPERS or made["metadata"]["labels"][COMPONENT] != "exporter":
            continue
        spec = made["spec"]
        endpoint = (
            spec
            if made["kind"] == "ScrapeConfig"
            else (spec.get("endpoints") or spec["podMetricsEndpoints"])[0]
        )
        assert endpoint.get("scheme", "http").lower() == ("https" if "tls" in web else "http")
        assert ("tlsConfig" in endpoint) == ("tls" in web)
        assert ("basicAuth" in endpoint) == ("basicAuth" in web)


@every_case
def test_probes_use_existing_ports(case: Case) -> None:
    for pod in pods(render(**case.arguments)):
        for container in pod.containers:
            own = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                for way in ("httpGet", "tcpSocket"):
                    if asked := container.get(probe, {}).get(way):
                        assert asked["port"] in {*own, *own.values()}, (pod.title, probe)


@every_case
def test_every_volume_is_mounted_and_every_mount_has_a_volume(case: Case) -> None:
    for pod in pods(render(**case.arguments)):
        claims = pod.owner["spec"].get("volumeClaimTemplates", ())
        volumes = [volume["name"] for volume in pod.spec.get("volumes", ())] + [
            name(claim) for claim in claims
        ]
        assert len(volumes) == len({*volumes}), pod.title
        mounts = [mount for container in pod.containers for mount in container.get("volumeMounts", ())]
        assert {mount["name"] for mount in mounts} == {*volumes}, pod.title
        for container in pod.containers:
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
            assert len(paths) == len({*paths}), pod.title
            variables = [variable["name"] for variable in container.get("env", ())]
            assert len(variables) == len({*variables}), pod.title


@every_case
def test_objects_that_a_pod_needs_are_rendered_or_in_the_values(case: Case) -> None:
    rendered = render(**case.arguments)
    there = {(made["kind"], name(made)) for made in rendered}
    theirs = case.named
    for pod in pods(rendered):
        for kind, wanted in references(pod):
            assert (kind, wanted) in there or wanted in theirs, (pod.title, kind, wanted)


def references(pod: Pod) -> Iterator[tuple[str, str]]:
    """(kind, name) of the objects that a pod requires to start."""
    spec = pod.spec
    if account := spec.get("serviceAccountName"):
        yield "ServiceAccount", account
    yield from (("Secret", secret["name"]) for secret in spec.get("imagePullSecrets", ()))
    for volume in spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "configMap" in source and not source["configMap"].get("optional"):
                yield "ConfigMap", source["configMap"]["name"]
            if "secret" in source and not source["secret"].get("optional"):
                yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in pod.containers:
        for source in container.get("envFrom", ()):
            yield from (
                (kind, source[key]["name"])
                for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap"))
                if key in source
            )
        for variable in container.get("env", ()):
            origin = variable.get("valueFrom", {})
            yield from (
                (kind, origin[key]["name"])
                for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap"))
                if key in origin
            )


@every_case
def test_the_files_that_a_pod_mounts_are_in_the_config_maps(case: Case) -> None:
    rendered = render(**case.arguments)
    data = {
        (made["kind"], name(made)): {*made.get("data", {}), *made.get("stringData", {})} for made in rendered
    }
    for pod in pods(rendered):
        for volume in pod.spec.get("volumes", ()):
            if "configMap" in volume and ("ConfigMap", volume["configMap"]["name"]) in data:
                keys = data["ConfigMap", volume["configMap"]["name"]]
                assert {item["key"] for item in volume["configMap"].get("items", ())} <= keys, pod.title
                mounted = [
                    mount
                    for container in pod.containers
                    for mount in container.get("volumeMounts", ())
                    if mount["name"] == volume["name"]
                ]
                if "items" not in volume["configMap"]:
                    assert {mount["subPath"] for mount in mounted if "subPath" in mount} <= keys, pod.title


@every_case
def test_bindings_and_ingresses_refer_to_existing_objects(case: Case) -> None:
    rendered = render(**case.arguments)
    there = {(made["kind"], made["metadata"].get("namespace"), name(made)): made for made in rendered}
    theirs = case.named
    for made in rendered:
        namespace = made["metadata"].get("namespace")
        if made["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            role = made["roleRef"]
            assert (role["kind"], namespace if role["kind"] == "Role" else None, role["name"]) in there
            for subject in made["subjects"]:
                assert ("ServiceAccount", subject["namespace"], subject["name"]) in there or subject[
                    "name"
                ] in theirs
        if made["kind"] == "Ingress":
            for rule in made["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    backend = path["backend"]["service"]
                    service = there["Service", namespace, backend["name"]]
                    known = {
                        value for port in service["spec"]["ports"] for value in (port["name"], port["port"])
                    }
                    assert {*backend["port"].values()} <= known
        if made["kind"] == "StatefulSet":
            assert ("Service", namespace, made["spec"]["serviceName"]) in there
