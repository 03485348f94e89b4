"""Checks in Prometheus: targets, sources, GPUs, pods, labels, rules, recorded series and Alertmanager."""

from collections.abc import Iterator
from typing import Any

from gputally.attribution.pod_sources import POD_SOURCES
from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING, Finding, some
from gputally.commands.servers import PrometheusApi, QueryRow, RemoteServer, RequestFailed

CHECK_THERE = "run `gputally check` in the exporter's pod: kubectl exec POD -- gputally check"

# The fix for a source that is down; docs/privileges.md has the rest.
_SOURCES = {
    **{row.name: row.chart_values for row in POD_SOURCES},
    "cgroup": "privileges.hostPID=true",
    "state_file": "state.volume=hostPath, with a directory that the exporter may write to",
    "relay": "exporter.relay: check that the relayed exporter runs, and its address",
}
# The fix for an unknown owner; docs/privileges.md also has the reasons without a fix.
_REASONS = {
    "pid_namespace": "privileges.hostPID=true",
    "permission": "/proc is mounted with hidepid: add its group, or CAP_SYS_PTRACE",
    "unknown_pod": "privileges.podLogs=true, or another pod source",
    "unknown_container": "privileges.podLogs=true: /var/log/containers",
}
_SELECTED = (
    "prometheusRule.enabled=true, with the additionalLabels that your Prometheus selects rules by; a group "
    "that Prometheus rejects is in its log"
)
_OVERRIDDEN = ("pod", "namespace", "container", "node")


def targets(prometheus: PrometheusApi, up: list[QueryRow]) -> Finding:
    if not up:
        return _no_target(prometheus)
    down = [row.node for row in up if not row.value]
    if not down:
        return Finding(OK, "targets", f"all {len(up)} exporters are up")
    reasons = prometheus.scrape_errors()
    details = "; ".join(f"{node}: {reasons[node]}" if node in reasons else node for node in sorted(down)[:3])
    more = f"; and {len(down) - 3} more" if len(down) > 3 else ""
    return Finding(
        FAILURE,
        "targets",
        f"{len(down)} of {len(up)} exporters are down: {details}{more}",
        _scrape_fix(" ".join(reasons.values())),
    )


def _no_target(prometheus: PrometheusApi) -> Finding:
    others = {row.labels.get("job", "") for row in prometheus.rows("count by (job) (gputally_exporter_info)")}
    if others:
        return Finding(
            FAILURE,
            "targets",
            f"the exporters are scraped as job {some(others)}, not as {prometheus.job}",
            f"set the scrape's job to {prometheus.job}, or use the other name for the rules and for --job "
            "(rules.settings.job)",
        )
    return Finding(
        FAILURE,
        "targets",
        f"Prometheus has no target of job {prometheus.job}",
        "enable one of scrapeConfig, serviceMonitor and podMonitor, with the additionalLabels that your "
        "Prometheus selects by; or stack.enabled=true. tools/verify compares the labels",
    )


def _scrape_fix(errors: str) -> str:
    if "401" in errors or "403" in errors:
        return "Prometheus has no login for the exporters: web.basicAuth.secret, or web.basicAuth.users"
    if "x509" in errors or "tls" in errors or "HTTPS" in errors or "HTTP response to" in errors:
        return "Prometheus and the exporters have different TLS settings: web.tls.secret, .serverName"
    if "deadline" in errors or "timeout" in errors:
        return (
            "the network drops the scrapes: networkPolicy.scrapers, .scraperNamespaces must match Prometheus"
        )
    return "kubectl get pods -l app.kubernetes.io/component=exporter -A, and their logs"


def sources(prometheus: PrometheusApi) -> Iterator[Finding]:
    down: dict[str, list[str]] = {}
    for row in prometheus.rows(f"gputally_source_up{{{prometheus.ours}}} == 0"):
        down.setdefault(row.labels["source"], []).append(row.node)
    for source, nodes in sorted(down.items()):
        yield Finding(
            FAILURE,
            "sources",
            f"{source} is down on {some(nodes)}",
            _SOURCES.get(source, CHECK_THERE),
        )
    if not down:
        every = prometheus.count(f"count by (source) (gputally_source_up{{{prometheus.ours}}})")
        yield Finding(OK, "sources", f"all {every} sources are up on every node")


def gpus(prometheus: PrometheusApi) -> Iterator[Finding]:
    info = prometheus.rows(f"gputally_gpu_info{{{prometheus.ours}}}")
    seeing = {row.node for row in info}
    if not info:
        yield Finding(
            FAILURE,
            "gpus",
            "no exporter finds a GPU",
            "exporter.runtimeClassName=nvidia if the NVIDIA runtime is not the nodes' default, "
            f"driver.hostPath on GKE and with a driver container. {CHECK_THERE}",
        )
        return
    blind = [
        row.node
        for row in prometheus.rows(f"gputally_exporter_info{{{prometheus.ours}}}")
        if row.node not in seeing
    ]
    lost = [
        f"{row.node} GPU {row.labels.get('gpu')}"
        for row in prometheus.rows(f"gputally_gpu_up{{{prometheus.ours}}} == 0")
    ]
    if blind:
        yield Finding(WARNING, "gpus", f"no GPU is found on {some(blind)}", CHECK_THERE)
    if lost:
        yield Finding(WARNING, "gpus", f"lost: {some(lost)}", "docs/runbooks/GPUTallyGpuLost.md")
    if twice := _more_than_once(info):
        yield Finding(
            WARNING,
            "gpus",
            f"counted more than once: {some(twice)}",
            "enable only one of scrapeConfig, serviceMonitor and podMonitor, and one release per node",
        )
    if not (blind or lost or twice):
        simulated = sum(row.labels.get("simulated") == "true" for row in info)
        note = f", {simulated} of them simulated" if simulated else ""
        yield Finding(OK, "gpus", f"{len(info)} on {len(seeing)} nodes{note}")


def _more_than_once(info: list[QueryRow]) -> list[str]:
    seen: dict[tuple[str, str], int] = {}
    for row in info:
        key = (row.node, row.labels.get("uuid", ""))
        seen[key] = seen.get(key, 0) + 1
    return [f"{uuid} of {node}" for (node, uuid), times in seen.items() if times > 1]


def pods(prometheus: PrometheusApi) -> Finding:
    ours = prometheus.ours
    named = prometheus.count(f"count by (namespace, pod) (gputally_pod_info{{{ours}}})")
    unnamed = {
        row.labels["reason"]: round(row.value)
        for row in prometheus.rows(f"sum by (reason) (gputally_gpu_unattributed_processes{{{ours}}}) > 0")
    }
    to_fix = {reason: count for reason, count in unnamed.items() if reason in _REASONS}
    if to_fix:
        reasons = ", ".join(f"{reason} ({count} processes)" for reason, count in sorted(to_fix.items()))
        summary = (
            f"{named} pods are named, others are not" if named else "GPUs have processes, and no pod is named"
        )
        fixes = "; ".join(dict.fromkeys(_REASONS[reason] for reason in sorted(to_fix)))
        return Finding(WARNING if named else FAILURE, "pods", f"{summary}: {reasons}", fixes)
    if named:
        return Finding(OK, "pods", f"{named} pods with a GPU are named")
    if host := prometheus.number(f"sum(gputally_host_processes{{{ours}}})"):
        return Finding(
            NOT_CHECKED, "pods", f"all {host:.0f} processes on GPUs belong to the hosts: run a pod with a GPU"
        )
    # Some drivers list a process only within its pid namespace, without an error outside of it.
    if prometheus.count(f"gputally_gpu_utilization_ratio{{{ours}}} > 0.1"):
        return Finding(
            FAILURE, "pods", "GPUs are busy, and no process is found on them", _REASONS["pid_namespace"]
        )
    return Finding(NOT_CHECKED, "pods", "no process uses a GPU now: run a pod with a GPU, and verify again")


def labels(prometheus: PrometheusApi) -> Finding:
    lost = [label for label in _OVERRIDDEN if prometheus.count(f'{{{prometheus.ours},exported_{label}!=""}}')]
    if lost:
        return Finding(
            FAILURE,
            "labels",
            f"the scrape's own labels replace the exporter's: exported_{', exported_'.join(lost)}",
            "honorLabels: true in the ServiceMonitor or PodMonitor, honor_labels: true in prometheus.yml; no "
            "overrideHonorLabels and no enforcedNamespaceLabel in the Prometheus of the operator",
        )
    return Finding(OK, "labels", "pod and namespace are those of the GPU's user")


def rules(groups: list[dict[str, Any]], expected: int | None) -> Finding:
    names = {group["name"] for group in groups}
    if not names and expected == 0:
        return Finding(NOT_CHECKED, "rules", "no rules are loaded, as expected")
    if not names or (expected is not None and len(names) < expected):
        of = f"{len(names)} of {expected}" if expected is not None else "no"
        return Finding(FAILURE, "rules", f"{of} groups of gputally are loaded", _SELECTED)
    every = [rule for group in groups for rule in group["rules"]]
    failing = {rule["name"]: rule.get("lastError", "") for rule in every if rule["health"] == "err"}
    if failing:
        name, error = min(failing.items())
        return Finding(
            FAILURE,
            "rules",
            f"{len(failing)} rules fail: {some(failing)}. {name}: {error}",
            "for many-to-many and duplicate series: check whether exporters are scraped twice",
        )
    if waiting := [rule for rule in every if rule["health"] == "unknown"]:
        return Finding(
            WARNING,
            "rules",
            f"{len(waiting)} of {len(every)} rules have not been evaluated yet",
            "verify again in a minute (--wait)",
        )
    return Finding(OK, "rules", f"{len(names)} groups with {len(every)} rules, none failing")


def records(prometheus: PrometheusApi, groups: list[dict[str, Any]]) -> Finding:
    """For installations with GPUs: some recorded series then have values."""
    recorded = {rule["name"] for group in groups for rule in group["rules"] if rule["type"] == "recording"}
    if not recorded:
        return Finding(NOT_CHECKED, "records", "no recording rule of gputally is loaded")
    filled = prometheus.count(f"count by (__name__) ({{{prometheus.recorded}}})")
    if not filled:
        return Finding(
            FAILURE,
            "records",
            f"none of {len(recorded)} recorded names has a series: dashboards stay empty",
            "a new installation needs two scrapes and an evaluation (--wait); otherwise check that rules and "
            f"scrape use the same job, {prometheus.job}",
        )
    return Finding(OK, "records", f"{filled} of {len(recorded)} recorded names have series")


def alertmanager(prometheus: PrometheusApi | None, server: RemoteServer | None) -> Finding:
    """Prometheus must send alerts to one; if its address is given, it must respond."""
    version = ""
    if server is not None:
        try:
            status = server.get_json("/api/v2/status")
            version = f", version {status['versionInfo']['version']}"
        except (RequestFailed, KeyError, TypeError) as error:
            return Finding(
                FAILURE,
                "alertmanager",
                f"{server.url} is unavailable: {error}",
                "kubectl get pods -l app.kubernetes.io/component=alertmanager -A, and its log",
            )
    if prometheus is None:
        return Finding(
            NOT_CHECKED,
            "alertmanager",
            f"no address of Prometheus, so whether it sends alerts is not checked{version}",
        )
    known = prometheus.alertmanagers()
    if known:
        return Finding(OK, "alertmanager", f"Prometheus sends alerts to {some(known)}{version}")
    return Finding(
        FAILURE if server else WARNING,
        "alertmanager",
        "Prometheus has no Alertmanager: alerts are not delivered",
        "stack.alertmanager.enabled=true, or `alerting` of your Prometheus",
    )
