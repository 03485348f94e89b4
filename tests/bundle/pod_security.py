"""The Pod Security Standards, control by control: https://kubernetes.io/docs/concepts/security/pod-security-standards/

A control has the name of the standard and returns the violations of a pod.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.bundle.chart import Pod

LEVELS = ("restricted", "baseline", "privileged")
BASELINE_CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
SAFE_SYSCTLS = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
    *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}
RESTRICTED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"),
    "secret",
}
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Control:
    name: str
    level: str
    """The least strict level that includes it."""
    faults: Callable[[Pod], Iterator[str]]


def level(pod: Pod) -> str:
    """The strictest level that a pod meets."""
    failed = {control.level for control in violations(pod)}
    if "baseline" in failed:
        return "privileged"
    return "baseline" if failed else "restricted"


def violations(pod: Pod) -> dict[Control, list[str]]:
    """The controls that a pod fails -> the fields that fail them."""
    found = {control: [*control.faults(pod)] for control in CONTROLS}
    return {control: faults for control, faults in found.items() if faults}


def _security(container: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = container.get("securityContext", {})
    return context


def _contexts(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(`pod` or container name, security context) of the pod and its containers."""
    yield "pod", _security(pod.spec)
    for container in pod.containers:
        yield container["name"], _security(container)


def _host_process(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("windowsOptions", {}).get("hostProcess"):
            yield f"{whose}: windowsOptions.hostProcess"


def _host_namespaces(pod: Pod) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name))


def _privileged(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("privileged"):
            yield f"{whose}: privileged"


def _capabilities(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        for name in sorted({*context.get("capabilities", {}).get("add", ())} - BASELINE_CAPABILITIES):
            yield f"{whose}: {name}"


def _host_path_volumes(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.get("volumes", ()):
        if "hostPath" in volume:
            yield f"{volume['name']}: {volume['hostPath']['path']}"


def _host_ports(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        for port in container.get("ports", ()):
            if port.get("hostPort"):
                yield f"{container['name']}: {port['hostPort']}"


def _host_probes(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        hooks = [container.get(f"{name}Probe", {}) for name in ("liveness", "readiness", "startup")]
        hooks += container.get("lifecycle", {}).values()
        if any(hook.get(way, {}).get("host") for hook in hooks for way in ("httpGet", "tcpSocket")):
            yield container["name"]


def _apparmor(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("appArmorProfile", {}).get("type") == "Unconfined":
            yield f"{whose}: Unconfined"
    for name, value in pod.metadata.get("annotations", {}).items():
        if name.startswith(APPARMOR_ANNOTATION) and value == "unconfined":
            yield name


def _selinux(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        options = context.get("seLinuxOptions", {})
        if options.get("type", "") not in SELINUX_TYPES or options.get("user") or options.get("role"):
            yield f"{whose}: {options}"


def _proc_mount(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("procMount", "Default") != "Default":
            yield whose


def _seccomp_unconfined(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("seccompProfile", {}).get("type") == "Unconfined":
            yield whose


def _sysctls(pod: Pod) -> Iterator[str]:
    for sysctl in _security(pod.spec).get("sysctls", ()):
        if sysctl["name"] not in SAFE_SYSCTLS:
            yield sysctl["name"]


def _volume_types(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.get("volumes", ()):
        if not (volume.keys() - {"name"}) <= RESTRICTED_VOLUMES:
            yield volume["name"]


def _privilege_escalation(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        if _security(container).get("allowPrivilegeEscalation") is not False:
            yield container["name"]


def _non_root(pod: Pod) -> Iterator[str]:
    of_pod = _security(pod.spec).get("runAsNonRoot")
    for container in pod.containers:
        if _security(container).get("runAsNonRoot", of_pod) is not True:
            yield container["name"]


def _non_root_user(pod: Pod) -> Iterator[str]:
    for whose, context in _contexts(pod):
        if context.get("runAsUser") == 0:
            yield whose


def _seccomp(pod: Pod) -> Iterator[str]:
    of_pod = _security(pod.spec).get("seccompProfile", {}).get("type")
    for container in pod.containers:
        profile = _security(container).get("seccompProfile", {}).get("type", of_pod)
        if profile not in {"RuntimeDefault", "Localhost"}:
            yield container["name"]


def _dropped_capabilities(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        capabilities = _security(container).get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()):
            yield f"{container['name']}: not all dropped"
        elif not {*capabilities.get("add", ())} <= {"NET_BIND_SERVICE"}:
            yield f"{container['name']}: {capabilities['add']}"


CONTROLS = (
    Control("HostProcess", "baseline", _host_process),
    Control("Host Namespaces", "baseline", _host_namespaces),
    Control("Privileged Containers", "baseline", _privileged),
    Control("Capabilities", "baseline", _capabilities),
    Control("HostPath Volumes", "baseline", _host_path_volumes),
    Control("Host Ports", "baseline", _host_ports),
    Control("Host Probes / Lifecycle Hooks", "baseline", _host_probes),
    Control("AppArmor", "baseline", _apparmor),
    Control("SELinux", "baseline", _selinux),
    Control("/proc Mount Type", "baseline", _proc_mount),
    Control("Seccomp", "baseline", _seccomp_unconfined),
    Control("Sysctls", "baseline", _sysctls),
    Control("Volume Types", "restricted", _volume_types),
    Control("Privilege Escalation", "restricted", _privilege_escalation),
    Control("Running as Non-root", "restricted", _non_root),
    Control("Running as Non-root user", "restricted", _non_root_user),
    Control("Seccomp", "restricted", _seccomp),
    Control("Capabilities", "restricted", _dropped_capabilities),
)
