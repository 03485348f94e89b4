"""Forwards ports into the cluster, and runs the checks that `helm test` runs inside."""

import base64
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gputally.commands import NOT_CHECKED, Finding
from gputally.commands.servers import Login, PrometheusApi, RemoteServer
from gputally.commands.verify.installation import Installation, verify
from tools import Failed
from tools.verification.kubectl import Kubectl, Object
from tools.verification.operator import Operated
from tools.verification.release import COMPONENT, PART_OF, Release, labels_of, name_of

_HEALTH = "/api/health"
_MADE_PASSWORD = "/var/lib/grafana/admin-password"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of the user."""

    prometheus_url: str = ""
    grafana_url: str = ""
    grafana_login: Login | None = None
    job: str = "gputally"


def verify_through(
    kubectl: Kubectl, release: Release, stack: Sequence[Object], operated: Operated, wanted: Wanted
) -> list[Finding]:
    """`stack` are the StatefulSets of the release. Raises Failed."""
    space = f"--namespace={release.namespace}"
    running = {
        labels_of(pod).get(COMPONENT)
        for pod in kubectl.get(
            "pods", space, f"--selector={PART_OF}", "--field-selector=status.phase=Running"
        )
        if release.has(pod)
    }
    services = [one for one in kubectl.get("services", space, f"--selector={PART_OF}") if release.has(one)]
    notes: list[Finding] = []
    with contextlib.ExitStack() as ways:

        def way(subject: str, namespace: str, target: str, port: int) -> str:
            """The local address that is forwarded there; "" if that is not possible."""
            try:
                local = ways.enter_context(kubectl.forward(namespace, target, port))
            except Failed as failure:
                notes.append(Finding(NOT_CHECKED, subject, f"no way to {target}: {failure}"))
                return ""
            return f"127.0.0.1:{local}"

        def to_service(component: str) -> str:
            for service in release.of(services, component):
                if component not in running:
                    notes.append(Finding(NOT_CHECKED, component, "none of its pods runs"))
                    return ""
                port = service["spec"]["ports"][0]["port"]
                return way(component, release.namespace, f"service/{name_of(service)}", port)
            return ""

        exporter = to_service("exporter")
        prometheus = wanted.prometheus_url
        if not prometheus and release.of(stack, "prometheus"):
            address = to_service("prometheus")
            prometheus = f"http://{address}" if address else ""
        elif not prometheus and operated.prometheus:
            one = operated.prometheus
            address = way(
                "prometheus", one["metadata"]["namespace"], f"pod/prometheus-{name_of(one)}-0", 9090
            )
            prometheus = f"http://{address}{_prefix(one)}" if address else ""
        alertmanager = to_service("alertmanager")
        grafana = RemoteServer(wanted.grafana_url, wanted.grafana_login) if wanted.grafana_url else None
        own = release.of(stack, "grafana")
        if grafana is None and own and (address := to_service("grafana")):
            login = wanted.grafana_login or _login(kubectl, release, own[0], notes)
            grafana = RemoteServer(f"http://{address}{_grafana_path(own[0])}", login)
        found = verify(
            Installation(
                # The API server forwards to the right pod, but the certificate has another name.
                exporters=(RemoteServer(f"{_scheme(release.exporter)}://{exporter}", insecure=True),)
                if exporter
                else (),
                prometheus=PrometheusApi(RemoteServer(prometheus), wanted.job) if prometheus else None,
                alertmanager=RemoteServer(f"http://{alertmanager}") if alertmanager else None,
                grafana=grafana,
                rule_groups=_rule_groups(kubectl, release, stack, operated),
                dashboards=_dashboards(kubectl, release),
            )
        )
    noted = {note.subject for note in notes}
    return [*notes, *(one for one in found if one.level != NOT_CHECKED or one.subject not in noted)]


def _scheme(daemonset: Object) -> str:
    """The scheme, as in the exporter's probes."""
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    probe = (container.get("livenessProbe") or {}).get("httpGet") or {}
    return str(probe.get("scheme", "HTTP")).lower()


def _prefix(prometheus: Object) -> str:
    return str(prometheus["spec"].get("routePrefix") or "").rstrip("/")


def _grafana_path(stateful_set: Object) -> str:
    """The path prefix of Grafana, as in its probes."""
    for container in stateful_set["spec"]["template"]["spec"]["containers"]:
        probe = (container.get("readinessProbe") or {}).get("httpGet") or {}
        if probe.get("path", "").endswith(_HEALTH):
            return str(probe["path"].removesuffix(_HEALTH))
    return ""


def _login(kubectl: Kubectl, release: Release, grafana: Object, notes: list[Finding]) -> Login | None:
    """The login from the Secret that Grafana mounts, or the one that it generated."""
    space = f"--namespace={release.namespace}"
    try:
        for volume in grafana["spec"]["template"]["spec"].get("volumes") or ():
            if volume["name"] == "admin":
                return _login_of(volume["secret"], kubectl.get("secrets", space))
        pod = f"{name_of(grafana)}-0"
        password = kubectl.run("exec", space, pod, "-c", "grafana", "--", "cat", _MADE_PASSWORD)
        return Login("admin", password.strip())
    except Failed as failure:
        notes.append(Finding(NOT_CHECKED, "grafana login", f"cannot read the password: {failure}"))
        return None


def _login_of(volume: Any, secrets: Sequence[Object]) -> Login:
    for secret in secrets:
        if name_of(secret) == volume["secretName"]:
            user, password = (
                base64.b64decode((secret.get("data") or {}).get(item["key"], "")).decode()
                for item in volume["items"]
            )
            return Login(user, password)
    raise Failed(f"there is no Secret {volume['secretName']}")


def _rule_groups(
    kubectl: Kubectl, release: Release, stack: Sequence[Object], operated: Operated
) -> int | None:
    if not release.of(stack, "prometheus"):
        return operated.rule_groups
    for config in _config_maps(kubectl, release, f"--namespace={release.namespace}"):
        for file, text in (config.get("data") or {}).items():
            if file == "gputally.rules.yml":
                return len(yaml.safe_load(text)["groups"])
    return None


def _dashboards(kubectl: Kubectl, release: Release) -> int | None:
    found = [
        config
        for config in _config_maps(kubectl, release, "--all-namespaces")
        if "-dashboard-" in name_of(config) and "console.openshift.io/dashboard" not in labels_of(config)
    ]
    return len({name_of(config) for config in found}) or None


def _config_maps(kubectl: Kubectl, release: Release, where: str) -> list[Object]:
    return [one for one in kubectl.get("configmaps", where, f"--selector={PART_OF}") if release.has(one)]
