"""Who holds GPUs without using them, uses them without asking, or cannot be named?

Of the time that a pod held a device, the share in which it ran something decides: a counter, so that no
short run between two scrapes is missed. Where processes are not sampled, the device's own utilisation says
whether anybody ran anything. The windows are made of the minutes in `gputally-devices`, which is several
times less to read than the samples.
"""

from alerts.groups.phrases import GPU
from alerts.model import Alert, Audience, Group, Severity

_HOLDER = f"{GPU}, namespace, pod"
_HELD = "device:gputally_pod_held:ratio"
_POD = "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }}"


def _hardly_busy(window: str, ratio: str) -> str:
    """How many devices a pod has held for that long, and was busy for less than that part of it."""
    busy = f"sum_over_time(device:gputally_pod_busy:ratio[ {window} ]) / sum_over_time({_HELD}[ {window} ])"
    of_device = f"max_over_time(device:gputally_utilization:ratio[ {window} ])"
    return (
        f"count by (cluster, node, namespace, pod) ("
        f"({busy} or on ({_HOLDER}) ({_HELD} > bool 0) * on ({GPU}) group_left () {of_device}) <= {ratio}"
        f" and on ({_HOLDER}) {_HELD}"
        f" and on ({_HOLDER}) last_over_time("
        f'{_HELD}{{namespace!~"[[ exempt_namespaces ]]"}}[15m] offset {window}))'
    )


GROUP = Group(
    "gputally-efficiency",
    (
        Alert(
            "GPUTallyHeldIdle",
            _hardly_busy("[[ idle_window ]]", "[[ idle_busy_ratio ]]"),
            Severity.INFO,
            summary="A pod holds GPUs and does not use them.",
            description=f"{_POD} has held {{{{ $value }}}} GPUs for [[ idle_window ]] and run next to "
            "nothing on them. If it is done, delete it; if it hangs, look at its log.",
            for_="5m",
            keep_firing_for="15m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyHeldIdleLong",
            _hardly_busy("[[ idle_long_window ]]", "[[ idle_busy_ratio ]]"),
            Severity.WARNING,
            summary="A pod has held GPUs for long without using them.",
            description=f"{_POD} has held {{{{ $value }}}} GPUs for [[ idle_long_window ]] and run next to "
            "nothing on them. Others wait, or could: delete it, or say why it must stay.",
            for_="5m",
            keep_firing_for="15m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyHeldUnderused",
            _hardly_busy("[[ underused_window ]]", "[[ underused_busy_ratio ]]"),
            Severity.INFO,
            summary="A pod uses its GPUs only now and then.",
            description=f"{_POD} has held {{{{ $value }}}} GPUs for [[ underused_window ]] and was busy for "
            "less than [[ underused_busy_ratio ]] of that time. A shared GPU or a MIG device would do.",
            for_="15m",
            keep_firing_for="1h",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyUnrequestedUse",
            f"count by (cluster, node, namespace, pod) (max by ({_HOLDER}) "
            '(gputally_pod_processes{namespace!~"[[ exempt_namespaces ]]"}) > 0)'
            " and on (cluster, namespace, pod) max by (cluster, namespace, pod) "
            '(gputally_pod_info{requested="false"})',
            Severity.WARNING,
            summary="A pod uses a GPU that it never asked for.",
            description=f"{_POD} has had processes on {{{{ $value }}}} GPUs for 10 minutes, and the kubelet "
            "gave it none. It takes memory and time from whoever was given them: have it ask for a GPU, or "
            "stop it.",
            for_="10m",
            keep_firing_for="10m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyUnattributedProcesses",
            f"count by (cluster, node, reason) "
            f"(max by ({GPU}, reason) (gputally_gpu_unattributed_memory_used_bytes) > 0)",
            Severity.WARNING,
            summary="Somebody who cannot be named uses GPUs.",
            description="On node {{ $labels.node }} processes have memory on {{ $value }} GPUs, and whose "
            "they are cannot be told ({{ $labels.reason }}). Ask gputally whose PID on the node; most often "
            "the exporter lacks a privilege.",
            for_="15m",
            keep_firing_for="15m",
        ),
        Alert(
            "GPUTallyGpusUnallocated",
            "min_over_time(model:gputally_gpus_free:count[ [[ unused_window ]] ]) / model:gputally_gpus:count"
            " > [[ unused_ratio ]]"
            " and last_over_time(model:gputally_gpus:count[1h] offset [[ unused_window ]])",
            Severity.INFO,
            summary="A part of the GPUs of a model was not needed at any time.",
            description="{{ $value | humanizePercentage }} of the {{ $labels.model }} were free at every "
            "moment of the last [[ unused_window ]]: so many could be given back, switched off or put to "
            "other use.",
            for_="1h",
            keep_firing_for="1h",
        ),
    ),
    interval="2m",
)
