"""Checks of what the exporters gave to Prometheus: targets, sources, GPUs, pods, labels."""

from collections.abc import Iterator

from gputally.commands.verify import FAILURE, NOT_CHECKED, OK, WARNING, Finding, some
from gputally.commands.verify.prometheus import Prometheus, Row

CHECK_THERE = "`gputally check` in the exporter's pod says why: kubectl exec POD -- gputally check"

# What helps when a source does not answer; docs/privileges.md has the rest.
_SOURCES = {
    "cgroup": "privileges.hostPID=true",
    "pod_logs": "privileges.podLogs=true; privileges.seLinuxType where SELinux is enforced",
    "pod_resources": "privileges.podResources=true, which takes user 0",
    "kubelet_pods": "privileges.kubeletPods=true, on Kubernetes 1.37 and newer",
    "kubernetes": "kubernetes.enabled=true and rbac.create=true: it may list and watch pods",
    "state_file": "state.volume=hostPath, in a folder that it may write to",
    "relay": "exporter.relay: is the other exporter there, and its address right?",
}
# What is missing where owners are unknown; docs/privileges.md has the reasons for which nothing helps, too.
_REASONS = {
    "pid_namespace": "privileges.hostPID=true",
    "permission": "/proc is mounted with hidepid: give its group, or CAP_SYS_PTRACE",
    "unknown_pod": "privileges.podLogs=true, or another source of names",
    "unknown_container": "privileges.podLogs=true: /var/log/containers",
}
_SHADOWED = ("pod", "namespace", "container", "node")


def targets(prometheus: Prometheus, up: list[Row]) -> Finding:
    if not up:
        return _no_target(prometheus)
    down = [row.node for row in up if not row.value]
    if not down:
        return Finding(OK, "targets", f"all {len(up)} exporters are up")
    reasons = prometheus.scrape_errors()
    told = "; ".join(f"{node}: {reasons[node]}" if node in reasons else node for node in sorted(down)[:3])
    more = f"; and {len(down) - 3} more" if len(down) > 3 else ""
    return Finding(
        FAILURE,
        "targets",
        f"{len(down)} of {len(up)} exporters are down: {told}{more}",
        _scrape_fix(" ".join(reasons.values())),
    )


def _no_target(prometheus: Prometheus) -> Finding:
    others = {row.labels.get("job", "") for row in prometheus.rows("count by (job) (gputally_exporter_info)")}
    if others:
        return Finding(
            FAILURE,
            "targets",
            f"the exporters are scraped as job {some(others)}, and not as {prometheus.job}",
            f"name the scrape's job {prometheus.job}, or have rules and --job with the other name "
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
        return "the scraper has no login: web.basicAuth.secret, or a user of web.basicAuth.users"
    if "x509" in errors or "tls" in errors or "HTTPS" in errors or "HTTP response to" in errors:
        return "the scraper and the exporter differ about TLS: web.tls.secret, .serverName"
    if "deadline" in errors or "timeout" in errors:
        return "something drops the way to them: networkPolicy.scrapers must match Prometheus's pods"
    return "kubectl get pods -l app.kubernetes.io/component=exporter -A, and their logs"


def sources(prometheus: Prometheus) -> Iterator[Finding]:
    down: dict[str, list[str]] = {}
    for row in prometheus.rows(f"gputally_source_up{{{prometheus.ours}}} == 0"):
        down.setdefault(row.labels["source"], []).append(row.node)
    for source, nodes in sorted(down.items()):
        yield Finding(
            FAILURE,
            "sources",
            f"{source} does not answer on {some(nodes)}",
            _SOURCES.get(source, CHECK_THERE),
        )
    if not down:
        every = prometheus.count(f"count by (source) (gputally_source_up{{{prometheus.ours}}})")
        yield Finding(OK, "sources", f"all {every} kinds answer on every node")


def gpus(prometheus: Prometheus) -> Iterator[Finding]:
    info = prometheus.rows(f"gputally_gpu_info{{{prometheus.ours}}}")
    seeing = {row.node for row in info}
    if not info:
        yield Finding(
            FAILURE,
            "gpus",
            "no exporter sees a GPU",
            "exporter.runtimeClassName=nvidia where the NVIDIA runtime is not the nodes' default, "
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
        yield Finding(WARNING, "gpus", f"no GPU is seen on {some(blind)}", CHECK_THERE)
    if lost:
        yield Finding(WARNING, "gpus", f"lost: {some(lost)}", "docs/runbooks/GPUTallyGpuLost.md")
    if twice := _more_than_once(info):
        yield Finding(
            WARNING,
            "gpus",
            f"counted more than once: {some(twice)}",
            "only one of scrapeConfig, serviceMonitor and podMonitor, and one release per node",
        )
    if not (blind or lost or twice):
        simulated = sum(row.labels.get("simulated") == "true" for row in info)
        played = f", {simulated} of them simulated" if simulated else ""
        yield Finding(OK, "gpus", f"{len(info)} on {len(seeing)} nodes{played}")


def _more_than_once(info: list[Row]) -> list[str]:
    seen: dict[tuple[str, str], int] = {}
    for row in info:
        key = (row.node, row.labels.get("uuid", ""))
        seen[key] = seen.get(key, 0) + 1
    return [f"{uuid} of {node}" for (node, uuid), times in seen.items() if times > 1]


def pods(prometheus: Prometheus) -> Finding:
    ours = prometheus.ours
    named = prometheus.count(f"count by (namespace, pod) (gputally_pod_info{{{ours}}})")
    unnamed = {
        row.labels["reason"]: round(row.value)
        for row in prometheus.rows(f"sum by (reason) (gputally_gpu_unattributed_processes{{{ours}}}) > 0")
    }
    to_fix = {reason: count for reason, count in unnamed.items() if reason in _REASONS}
    if to_fix:
        reasons = ", ".join(f"{reason} ({count} processes)" for reason, count in sorted(to_fix.items()))
        said = (
            f"{named} pods are named, but not all" if named else "processes are on GPUs, and no pod is named"
        )
        fixes = "; ".join(dict.fromkeys(_REASONS[reason] for reason in sorted(to_fix)))
        return Finding(WARNING if named else FAILURE, "pods", f"{said}: {reasons}", fixes)
    if named:
        return Finding(OK, "pods", f"{named} pods that use or hold a GPU are named")
    if host := prometheus.number(f"sum(gputally_host_processes{{{ours}}})"):
        return Finding(
            NOT_CHECKED, "pods", f"all {host:.0f} processes on GPUs are of the hosts themselves: run a pod"
        )
    # Some drivers show a process only to who shares its pid namespace: then nothing is wrong but the silence.
    if prometheus.count(f"gputally_gpu_utilization_ratio{{{ours}}} > 0.1"):
        return Finding(
            FAILURE, "pods", "GPUs are busy, and no process is seen on them", _REASONS["pid_namespace"]
        )
    return Finding(NOT_CHECKED, "pods", "nobody is on a GPU now: run a pod on one, and this again")


def labels(prometheus: Prometheus) -> Finding:
    lost = [label for label in _SHADOWED if prometheus.count(f'{{{prometheus.ours},exported_{label}!=""}}')]
    if lost:
        return Finding(
            FAILURE,
            "labels",
            f"the scrape's own labels stand in place of the exporter's: exported_{', exported_'.join(lost)}",
            "honorLabels: true in the ServiceMonitor or PodMonitor, honor_labels: true in prometheus.yml; no "
            "overrideHonorLabels and no enforcedNamespaceLabel in the Prometheus of the operator",
        )
    return Finding(OK, "labels", "pod and namespace are those that use the GPU")
