"""Exporters, drivers and GPUs that are down, lost or missing."""

from alerts.model import Action, Alert, Group, Severity

GROUP = Group(
    "gputally-availability",
    (
        Alert(
            "GPUTallyExporterDown",
            """
              max by (cluster, node) (up{job="[[ job ]]"}) == 0
            unless on (cluster)
              (max by (cluster) (up{job="[[ job ]]"}) == 0)
            """,
            Severity.WARNING,
            summary="Exporter on {{ $labels.node }} is down.",
            description=(
                "Prometheus has not been able to scrape the exporter on node {{ $labels.node }} for 10 "
                "minutes. Nothing is known about the node's GPUs, and no alert about them can fire. Check "
                "whether the node is up; if it is, read the exporter's log."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyAllExportersDown",
            """
              count by (cluster) (up{job="[[ job ]]"} == 0)
            unless on (cluster)
              (max by (cluster) (up{job="[[ job ]]"}) == 1)
            """,
            Severity.CRITICAL,
            summary="All exporters{{ with $labels.cluster }} of cluster {{ . }}{{ end }} are down.",
            description=(
                "None of the {{ $value }} exporters{{ with $labels.cluster }} of cluster {{ . }}{{ end }} "
                "has responded to a scrape for 5 minutes. No alert about a GPU can fire. Look for a common "
                "cause: the network, a new version or a changed setting."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyExporterAbsent",
            'absent(up{job="[[ job ]]"})',
            Severity.CRITICAL,
            summary="Prometheus has no exporter among its scrape targets.",
            description=(
                "Prometheus has had no target of job {{ $labels.job }} for 10 minutes. No alert about a GPU "
                "can fire. Check that GPUTally is deployed and that the scrape configuration finds its pods."
            ),
            for_="10m",
        ),
        # Exporters also run on nodes without GPUs, and a restarted exporter no longer exports
        # gputally_gpu_info.
        Alert(
            "GPUTallyDriverUnavailable",
            """
              max by (cluster, node) (
                gputally_source_up{source=~"[[ device_sources ]]"}
              ) == 0
            and on (cluster, node)
              (
                  max by (cluster, node) (gputally_gpu_info)
                or
                    max by (cluster, node) (max_over_time(gputally_source_gpus[ [[- gpu_count_window -]] ]))
                  > 0
              )
            """,
            Severity.CRITICAL,
            summary="GPU driver on {{ $labels.node }} is unavailable.",
            description=(
                "No source has been able to read the GPUs of node {{ $labels.node }} for 5 minutes: the "
                "driver hangs, has been unloaded, or cannot be reached by the exporter. Work on these GPUs "
                "may have failed, and no alert about them can fire. Run nvidia-smi or rocm-smi on the node."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyGpuLost",
            """
              (
                  max by (cluster, node, gpu, uuid) (gputally_gpu_up) == 0
                and on (cluster, node)
                  max by (cluster, node) (
                    gputally_source_up{source=~"[[ device_sources ]]"}
                  ) == 1
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.CRITICAL,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is lost: its driver cannot reach it.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} has not responded for 2 minutes, while its driver does. Work on it has "
                "failed. Drain the node, then reset the GPU or power the node off and on."
            ),
            for_="2m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyGpusMissing",
            """
                  max by (cluster, node, source) (
                    max_over_time(gputally_source_gpus[ [[- gpu_count_window -]] ])
                  )
                -
                  max by (cluster, node, source) (gputally_source_gpus)
              > 0
            and on (cluster, node, source)
              max by (cluster, node, source) (gputally_source_up) == 1
            """,
            Severity.WARNING,
            summary="Node {{ $labels.node }} has fewer GPUs than before.",
            description=(
                "Node {{ $labels.node }} has {{ $value }} GPU(s) fewer than earlier in the last "
                "[[ gpu_count_window ]], according to source {{ $labels.source }}. Pods cannot use them. If "
                "they were not removed on purpose, look for them with lspci and in the kernel log. This "
                "alert ends [[ gpu_count_window ]] after the GPUs disappeared."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallySnapshotStale",
            """
              abs(time() - max by (cluster, node) (gputally_snapshot_timestamp_seconds))
            > [[ snapshot_stale_seconds ]]
            """,
            Severity.WARNING,
            summary="Exporter on {{ $labels.node }} serves stale values, or its clock is wrong.",
            description=(
                "The values of node {{ $labels.node }} are {{ $value | humanizeDuration }} away from "
                "Prometheus's clock. Dashboards and alerts show a past state. Compare the clocks first; if "
                "they agree, the exporter is stuck: restart it."
            ),
            for_="2m",
        ),
    ),
)
