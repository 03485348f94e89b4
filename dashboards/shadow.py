"""Who is on the GPUs without having been given them: pods that never asked, what is no pod, the unnamed."""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import now, over_time, rows, stat, timeseries
from dashboards.queries import (
    BY_GPU,
    BY_POD,
    MATCH_CLUSTER,
    MATCH_NAMESPACE,
    MATCH_NODE,
    hours,
    kilowatt_hours,
    or_zero,
    top_over_range,
)
from dashboards.tables import column, share_column, table, value_columns
from dashboards.variables import CLUSTER, NAMESPACE, NODE

_POD = f'{MATCH_NODE}, namespace=~"$namespace"'
_BY_OWNER = "cluster, node, owner"
_BY_REASON = "cluster, node, reason"
_OF_POD = "on (cluster, namespace, pod)"

_KINDS = {
    "pods that asked": palette.BUSY,
    "pods that did not ask": palette.CRITICAL,
    "not in Kubernetes": palette.HELD,
    "nobody can name": palette.UNKNOWN,
}
_REMEDIES = {
    "pid_namespace": "the exporter needs the host's pids (hostPID)",
    "permission": "the exporter may not read /proc: hidepid",
    "unknown_pod": "mount /var/log/pods, or another source of names",
    "unknown_container": "mount /var/log/containers, or another source",
    "mediated": "the MPS server speaks for others: nothing to do",
    "exited": "ended before it was looked up: nothing to do",
    "zombie": "has ended and was not cleaned up: look at its parent",
    "unreadable": "its cgroup makes no sense: report it",
    "unstable": "its pid was given away: nothing to do",
    "ambiguous_pod": "its cgroups name two pods: report it",
}


def _info(requested: str) -> str:
    chosen = f'{MATCH_NAMESPACE}, requested="{requested}"'
    return f"max by (cluster, namespace, pod) (gputally_pod_info{{{chosen}}})"


_SHADOW = _info("false")
_SHADOW_OF_RANGE = (
    "max by (cluster, namespace, pod) (last_over_time("
    f'gputally_pod_info{{{MATCH_NAMESPACE}, requested="false"}}[$__range]))'
)


def _pods(metric: str) -> str:
    return f"gputally_pod_{metric}{{{_POD}}}"


def _of_device(metric: str) -> str:
    """Of each pod on each device, its containers together."""
    return (
        f"sum by ({BY_GPU}, namespace, pod) (max by ({BY_GPU}, namespace, pod, container) ({_pods(metric)}))"
    )


def _of_pod(metric: str) -> str:
    return f"sum by ({BY_POD}) ({_of_device(metric)}) and {_OF_POD} {_SHADOW}"


def _recorded(operation: str) -> str:
    return f"pod:gputally_{operation}{{{_POD}}}"


def _host(metric: str, how: str = "sum") -> str:
    """Of owners that are there now: what is gone keeps its series for a while."""
    there = f"max by ({BY_GPU}, owner) (gputally_host_active{{{MATCH_NODE}}}) == 1"
    each = f"max by ({BY_GPU}, owner) (gputally_host_{metric}{{{MATCH_NODE}}})"
    return f"{how} by ({_BY_OWNER}) ({each} and on ({BY_GPU}, owner) ({there}))"


def _unknown(metric: str, how: str = "sum") -> str:
    each = f"max by ({BY_GPU}, reason) (gputally_gpu_unattributed_{metric}{{{MATCH_NODE}}})"
    return f"{how} by ({_BY_REASON}) ({each})"


def _with_holder(metric: str) -> str:
    """Of each pod that did not ask, on each device; with one of those to whom it was given, if any."""
    shadow = f"{_of_device(metric)} and {_OF_POD} {_SHADOW}"
    given = f"(device:gputally_pod_held:ratio{{{MATCH_NODE}}} and {_OF_POD} {_info_everywhere('true')})"
    first = f"topk by ({BY_GPU}) (1, {given})"
    holder = f'label_join({first}, "holder", "/", "namespace", "pod")'
    joined = f"({shadow}) + on ({BY_GPU}) group_left (holder) 0 * {holder}"
    return f"{joined} or on ({BY_GPU}, namespace, pod) {shadow}"


def _info_everywhere(requested: str) -> str:
    return f'max by (cluster, namespace, pod) (gputally_pod_info{{{MATCH_CLUSTER}, requested="{requested}"}})'


_SHADOW_MEMORY = f"sum({_of_pod('memory_used_bytes')})"
_UNKNOWN_MEMORY = f"sum({_unknown('memory_used_bytes')})"
_HOST_MEMORY = f"sum({_host('memory_used_bytes')})"
_UNKNOWN_WATTS = f'node:gputally_unattributed:watts{{{MATCH_NODE}, reason="unknown"}}'

DASHBOARD = dashboard(
    "shadow",
    "Shadow use",
    "Who uses GPUs that the scheduler gave to somebody else, or to nobody: it takes memory and time from "
    "those who asked, and no quota counts it.",
    row(
        "",
        stat(
            "Pods unasked",
            "Pods that have processes on a GPU, or hold one, and never asked for it. 0 is good; they are "
            "in the first table.",
            now(f"count({_of_pod('processes')} > 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
        ),
        stat(
            "On GPUs",
            "GPUs on which such a pod has a process. Whoever was given these gets less than was promised.",
            now(
                f"count(sum by ({BY_GPU}) ({_of_device('processes')} > 0 and {_OF_POD} {_SHADOW}))"
                " or vector(0)"
            ),
            unit="short",
            width=3,
            steps=fields.ANY_IS_CRITICAL,
        ),
        stat(
            "Their cost",
            "What these pods have cost over the chosen range, those that are gone included. No request "
            "means no quota: it is in no plan.",
            now(
                f"sum({hours(_recorded('cost:per_hour'), BY_POD)} and {_OF_POD} {_SHADOW_OF_RANGE})"
                " or vector(0)"
            ),
            unit="none",
            width=3,
            decimals=2,
            links=(links.link("Energy and chargeback", "energy", "namespace"),),
        ),
        stat(
            "Not known",
            "Pods on a GPU of which cannot be told whether they asked. 0 is good; else the exporter "
            "needs the kubelet's pod-resources socket, and shadow use goes unseen.",
            now(f"count({_info('')}) or vector(0)"),
            unit="short",
            width=3,
            steps=fields.ANY_IS_WARNING,
        ),
        stat(
            "Not in pods",
            "Slurm jobs, containers, services and sessions on the GPUs that are no pods. On a node of a "
            "cluster 0 is good: the scheduler does not know of them.",
            now(f"count({_host('processes')} > 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.thresholds((1, palette.HELD)),
        ),
        stat(
            "Unnamed",
            "Processes on the GPUs whose owner cannot be told. 0 is good; the table of reasons says what "
            "would help.",
            now(f"sum({_unknown('processes')}) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_WARNING,
        ),
        stat(
            "Memory",
            "GPU memory of all three: pods without a request, owners outside Kubernetes, and the "
            "unnamed. Jobs that run out of memory for no reason often meet these.",
            now(f"{or_zero(_SHADOW_MEMORY)} + {or_zero(_HOST_MEMORY)} + {or_zero(_UNKNOWN_MEMORY)}"),
            unit="bytes",
            width=3,
        ),
        table(
            "Pods that use a GPU and never asked for it",
            "A line for each GPU; at most 100, those with the most memory. Given to is one of the pods "
            "that did ask for this GPU and has to share it. Have the pod ask for a GPU, or stop it.",
            rows(f"topk(100, {_with_holder('memory_used_bytes')})"),
            rows(_with_holder("processes")),
            rows(_with_holder("sm_utilization_ratio")),
            columns=(
                column("pod", name="Pod", link=links.TO_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("holder", name="Given to"),
                column("Value #A", name="Memory", unit="bytes", width=120),
                column("Value #B", name="Processes", width=100),
                share_column("Value #C", "SM use", width=240),
                column("namespace", name="Namespace"),
            ),
            hidden=("cluster", "uuid"),
            order=("namespace", "pod", "node", "gpu", "holder", *value_columns(3)),
            sort_by="Memory",
            only_with="Value #A",
            height=7,
            no_value="Every pod asked for its GPUs",
        ),
        table(
            "Not in Kubernetes",
            "Owners on the GPUs that are no pods; at most 100, those with the most memory. On a node of "
            "a cluster, move them into pods or take the GPU from the cluster; on a plain host they are "
            "what it is for.",
            rows(f"topk(100, {_host('memory_used_bytes')})"),
            rows(_host("memory_used_bytes", "count")),
            rows(_host("processes")),
            rows(_host("sm_utilization_ratio", "avg")),
            columns=(
                column("owner", name="Owner"),
                column("node", name="Node", width=130, link=links.TO_NODE),
                column("Value #A", name="Memory", unit="bytes", width=90),
                column("Value #B", name="GPUs", width=60),
                column("Value #C", name="Processes", width=92),
                share_column("Value #D", "SM use", width=110),
            ),
            hidden=("cluster",),
            order=("owner", "node", *value_columns(4)),
            sort_by="Memory",
            only_with="Value #A",
            width=12,
            height=7,
            no_value="Nobody is there who is no pod",
        ),
        table(
            "Nobody can name",
            "Processes whose owner cannot be told, by node and reason, and what would help. A few that "
            "ended too soon are normal; a whole node of them is a missing privilege of the exporter.",
            rows(_unknown("processes")),
            rows(_unknown("processes", "count")),
            rows(_unknown("memory_used_bytes")),
            columns=(
                fields.override(
                    "reason", displayName="Why, and what helps", mappings=fields.texts(_REMEDIES)
                ),
                column("node", name="Node", link=links.TO_NODE, width=130),
                column("Value #A", name="Processes", width=90),
                column("Value #B", name="GPUs", width=65),
                column("Value #C", name="Memory", unit="bytes", width=100),
            ),
            hidden=("cluster",),
            order=("reason", "node", *value_columns(3)),
            sort_by="Memory",
            width=12,
            height=7,
            no_value="Every process has a name",
        ),
    ),
    row(
        "Over time",
        timeseries(
            "GPU memory, by who has it",
            "Memory of pods that asked for their GPU, and of everybody else. All but the first is taken "
            "from what the scheduler believes to be free.",
            over_time(
                f"sum(sum by ({BY_POD}) ({_of_device('memory_used_bytes')}) unless {_OF_POD} {_SHADOW})",
                "pods that asked",
            ),
            over_time(_SHADOW_MEMORY, "pods that did not ask"),
            over_time(_HOST_MEMORY, "not in Kubernetes"),
            over_time(_UNKNOWN_MEMORY, "nobody can name"),
            unit="bytes",
            stack=True,
            overrides=fields.colors_of(_KINDS),
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Power, by who uses it",
            "Power that is charged to pods that asked, to everybody else, and to nobody because whoever "
            "used it cannot be named. All but the first is in no plan.",
            over_time(f"sum({_recorded('energy:watts')} unless {_OF_POD} {_SHADOW})", "pods that asked"),
            over_time(f"sum({_recorded('energy:watts')} and {_OF_POD} {_SHADOW})", "pods that did not ask"),
            over_time(f"sum(host:gputally_energy:watts{{{MATCH_NODE}}})", "not in Kubernetes"),
            over_time(f"sum({_UNKNOWN_WATTS})", "nobody can name"),
            unit="watt",
            stack=True,
            overrides=fields.colors_of(_KINDS),
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "GPUs that pods take unasked, by namespace",
            "GPUs, counted by the part that pods without a request hold of them, of the ten namespaces "
            "that take the most. A namespace that comes back day by day needs a quota, or a talk.",
            over_time(
                top_over_range(f"namespace:gputally_unrequested:gpus{{{MATCH_NAMESPACE}}}", "namespace"),
                "{{namespace}}",
            ),
            unit="short",
            decimals=1,
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Owners outside Kubernetes",
            "Power of the six owners that are no pods and use the most energy. On a node of a cluster, "
            "each of them takes a GPU past the scheduler.",
            over_time(
                top_over_range(f"host:gputally_energy:watts{{{MATCH_NODE}}}", _BY_OWNER, 6),
                "{{node}} {{owner}}",
            ),
            unit="watt",
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
    ),
    row(
        "Over the whole range",
        table(
            "Pods that were there without a request",
            "Every pod of the range that used a GPU and never asked, also if it is gone; at most 100, "
            "those with the most energy. The same name again and again is a deployment to mend.",
            rows(
                f"topk(100, {kilowatt_hours(_recorded('energy:watts'), BY_POD)} and {_OF_POD} "
                f"{_SHADOW_OF_RANGE})"
            ),
            rows(hours(_recorded("held:gpus"), BY_POD)),
            rows(hours(_recorded("cost:per_hour"), BY_POD)),
            columns=(
                column("namespace", name="Namespace"),
                column("pod", name="Pod", link=links.TO_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="Energy", unit="kwatth", decimals=2, width=130),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=130),
                column("Value #C", name="Cost", unit="none", decimals=2, width=130),
            ),
            hidden=("cluster",),
            order=("namespace", "pod", "node", *value_columns(3)),
            sort_by="Energy",
            only_with="Value #A",
            height=8,
            no_value="Every pod of the range asked for its GPUs",
        ),
    ),
    variables=(CLUSTER, NODE, NAMESPACE),
    since="now-24h",
)
