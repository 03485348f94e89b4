"""Are the exporters and the GPUs there?"""

from alerts.groups.phrases import ANSWERS, WHERE, of_gpu, of_node, with_card
from alerts.model import Action, Alert, Group, Severity

_UP = 'up{job="[[ job ]]"}'
_CLUSTER = "{{ with $labels.cluster }} of cluster {{ . }}{{ end }}"
_GPUS_BEFORE = "max_over_time(gputally_source_gpus[ [[ gpu_count_window ]] ])"

GROUP = Group(
    "gputally-availability",
    (
        Alert(
            "GPUTallyExporterDown",
            f"{of_node(_UP)} == 0 unless on (cluster) (max by (cluster) ({_UP}) == 0)",
            Severity.WARNING,
            summary="The exporter of a node does not answer.",
            description="Prometheus has had no answer from the exporter of node {{ $labels.node }} for 10 "
            "minutes: nothing is known of its GPUs. Is the node itself up? If it is, read the exporter's "
            "log.",
            for_="10m",
        ),
        Alert(
            "GPUTallyAllExportersDown",
            f"count by (cluster) ({_UP} == 0) unless on (cluster) (max by (cluster) ({_UP}) == 1)",
            Severity.CRITICAL,
            summary="No exporter answers.",
            description=f"None of the {{{{ $value }}}} exporters{_CLUSTER} has answered for 5 minutes: no "
            "alert about a GPU can fire. Look for what they share: the network to them, a new version, a "
            "wrong setting.",
            for_="5m",
        ),
        Alert(
            "GPUTallyExporterAbsent",
            f"absent({_UP})",
            Severity.CRITICAL,
            summary="Prometheus knows of no exporter.",
            description="Prometheus has had no target of job {{ $labels.job }} for 10 minutes: no alert "
            "about a GPU can fire. Is GPUTally deployed, and does its scrape configuration find the pods?",
            for_="10m",
        ),
        Alert(
            "GPUTallyDriverUnavailable",
            # Exporters also run on nodes without GPUs. One that was restarted meanwhile has forgotten them.
            f"{ANSWERS} == 0 and on (cluster, node) "
            f"({of_node('gputally_gpu_info')} or {of_node(_GPUS_BEFORE)} > 0)",
            Severity.CRITICAL,
            summary="The GPU driver of a node does not answer.",
            description="On node {{ $labels.node }} no source has been able to read the GPUs for 5 minutes: "
            "the driver hangs, was unloaded, or is out of the exporter's reach. Run nvidia-smi (or rocm-smi) "
            "on the node.",
            for_="5m",
        ),
        Alert(
            "GPUTallyGpuLost",
            with_card(f"{of_gpu('gputally_gpu_up')} == 0 and on (cluster, node) {ANSWERS} == 1"),
            Severity.CRITICAL,
            summary="A GPU no longer answers its driver.",
            description=f"{WHERE} has not answered for 2 minutes, while its driver does. Work on it has "
            "failed; drain the node, then reset the GPU or power the node off and on.",
            for_="2m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyGpusMissing",
            f"{of_node(_GPUS_BEFORE, 'source')} - {of_node('gputally_source_gpus', 'source')} > 0 "
            f"and on (cluster, node, source) {of_node('gputally_source_up', 'source')} == 1",
            Severity.WARNING,
            summary="A node has fewer GPUs than before.",
            description="Node {{ $labels.node }} has {{ $value }} GPUs less than at another time in the last "
            "[[ gpu_count_window ]], by {{ $labels.source }}. If nobody took them away, look for them with "
            "lspci and in the kernel's log; this ends by itself [[ gpu_count_window ]] after they went.",
            for_="10m",
        ),
        Alert(
            "GPUTallySnapshotStale",
            f"abs(time() - {of_node('gputally_snapshot_timestamp_seconds')}) > [[ snapshot_stale_seconds ]]",
            Severity.WARNING,
            summary="An exporter serves old values, or its clock is wrong.",
            description="The values of node {{ $labels.node }} are {{ $value | humanizeDuration }} away from "
            "Prometheus's clock. Compare the clocks first; if they agree, the exporter is stuck: restart it.",
            for_="2m",
        ),
    ),
)
