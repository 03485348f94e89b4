"""Exporters, drivers and GPUs that are down, lost or missing.

An exporter is a target of the job on a node. A sidecar, whose instance is `namespace/pod`, comes and goes
with its pod: it neither replaces the exporter of its node nor is missed. What is missed is known from the
last day and, where kube-state-metrics is there, from Kubernetes.
"""

from alerts.model import Action, Alert, Group, RecordingRule, Severity

RECORDS: tuple[RecordingRule, ...] = (
    RecordingRule(
        "node:gputally_exporter:up",
        'max by (cluster, node) (up{job="[[ job ]]", instance!~".+/.+"})',
    ),
    RecordingRule(
        "node:gputally_observed_gpus:count",
        """
          count by (cluster, node) (
            max by (cluster, node, gpu, uuid) (gputally_gpu_info{instance!~".+/.+"})
          )
        or
          max by (cluster, node) (gputally_source_gpus{instance!~".+/.+"}) > 0
        """,
    ),
    # GPUs with an owner, or at least a process; 0 on a node that is known to be idle.
    RecordingRule(
        "node:gputally_occupied_gpus:count",
        """
          count by (cluster, node) (
            max by (cluster, node, gpu, uuid) (
              {__name__=~"gputally_(pod|host)_active",instance!~".+/.+"}
            ) == 1
          )
        or
          sum by (cluster, node) (
            sum by (cluster, node, gpu, uuid) (gputally_gpu_processes{instance!~".+/.+"}) > bool 0
          )
        """,
    ),
    RecordingRule(
        "cluster:gputally_exporters:count",
        "count by (cluster) (node:gputally_exporter:up)",
    ),
    RecordingRule(
        "cluster:gputally_occupied_gpus:count",
        "sum by (cluster) (node:gputally_occupied_gpus:count)",
    ),
    # Other targets tell a cluster without exporters from one that Prometheus hears nothing of.
    RecordingRule(
        "cluster:gputally_other_targets:count",
        'count by (cluster) (up{job!="[[ job ]]"})',
    ),
    # 1 while the node is cordoned, or about to be removed by an autoscaler or by its cloud.
    RecordingRule(
        "node:gputally_out_of_service:max",
        """
          max by (cluster, node) (
              kube_node_spec_unschedulable
            or
              kube_node_spec_taint{key=~"[[ removal_taints ]]"}
          )
        and on (cluster, node)
          last_over_time(node:gputally_observed_gpus:count[ [[- absence_window -]] ])
        """,
    ),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GPUTallyNodeDark",
        """
          (
              last_over_time(node:gputally_observed_gpus:count[ [[- absence_window -]] ])
            unless on (cluster, node)
              node:gputally_exporter:up == 1
          )
        and on (cluster, node)
          (
              max by (cluster, node) (kube_node_status_condition{condition="Ready",status="true"}) == 0
            or
                node:gputally_exporter:up == 0
              unless on (cluster, node)
                max by (cluster, node) (kube_node_info)
              unless on (cluster, node)
                last_over_time(node:gputally_occupied_gpus:count[ [[- absence_window -]] ]) == 0
          )
        and on (cluster)
          max by (cluster) (node:gputally_exporter:up) == 1
        unless on (cluster, node)
          max by (cluster, node) (up{job!="[[ job ]]"}) == 1
        unless on (cluster, node)
          last_over_time(node:gputally_out_of_service:max[ [[- absence_window -]] ]) == 1
        """,
        Severity.CRITICAL,
        summary="Node {{ $labels.node }} with its GPUs is dark.",
        description=(
            "Node {{ $labels.node }} with its {{ $value }} GPU(s) has not responded for 5 minutes, and "
            "nothing shows that it is alive. Work on it has probably failed, and no alert about its GPUs can "
            "fire. Look at its console (BMC), and restore or replace the node."
        ),
        for_="5m",
    ),
    Alert(
        "GPUTallyExporterDown",
        """
          node:gputally_exporter:up == 0
        and on (cluster)
          max by (cluster) (node:gputally_exporter:up) == 1
        unless on (cluster, node)
          last_over_time(node:gputally_out_of_service:max[ [[- absence_window -]] ]) == 1
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
    # Kubernetes has the node, its GPUs and no exporter; or the node went away with work on its GPUs. An idle
    # node that goes away was removed on purpose.
    Alert(
        "GPUTallyExporterMissing",
        """
          (
                sum by (cluster, node) (kube_node_status_allocatable{resource=~"[[ gpu_resources ]]"}) > 0
              and on (cluster, node)
                max by (cluster, node) (kube_node_status_condition{condition="Ready",status="true"}) == 1
              and on (cluster)
                last_over_time(cluster:gputally_exporters:count[ [[- absence_window -]] ])
              unless on (cluster, node)
                (
                    max by (cluster, node) (kube_node_spec_unschedulable) == 1
                  or
                    max by (cluster, node) (kube_node_spec_taint{key=~"[[ removal_taints ]]"}) == 1
                )
            or
                last_over_time(node:gputally_observed_gpus:count[ [[- absence_window -]] ])
              and on (cluster, node)
                last_over_time(node:gputally_occupied_gpus:count[ [[- absence_window -]] ]) > 0
              unless on (cluster, node)
                max by (cluster, node) (kube_node_info)
              unless on (cluster, node)
                last_over_time(node:gputally_out_of_service:max[ [[- absence_window -]] ]) == 1
          )
        and on (cluster)
          max by (cluster) (node:gputally_exporter:up) == 1
        unless on (cluster, node)
          node:gputally_exporter:up
        """,
        Severity.WARNING,
        summary="Node {{ $labels.node }} has GPUs and no exporter.",
        description=(
            "Prometheus has no exporter of node {{ $labels.node }} among its targets, and the node has, or "
            "had when it was last seen, {{ $value }} GPU(s). No alert about them can fire, and their energy "
            "is not charged. Check whether the node is still there, and why the exporter's pod is not: "
            "eviction, a taint, a changed label."
        ),
        for_="15m",
    ),
    Alert(
        "GPUTallyAllExportersDown",
        """
          count by (cluster) (
              node:gputally_exporter:up == 0
            unless on (cluster, node)
              last_over_time(node:gputally_out_of_service:max[ [[- absence_window -]] ]) == 1
          )
        unless on (cluster)
          max by (cluster) (node:gputally_exporter:up) == 1
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
    # By cluster, for a ruler that has many. A pool that was scaled to zero had idle GPUs before, leaves the
    # cluster's other targets, and leaves no node with GPUs.
    Alert(
        "GPUTallyExporterAbsent",
        """
          last_over_time(cluster:gputally_exporters:count[ [[- absence_window -]] ])
        unless on (cluster)
          cluster:gputally_exporters:count
        unless on (cluster)
          (
              count by (cluster) (kube_node_info)
            unless on (cluster)
              sum by (cluster) (kube_node_status_allocatable{resource=~"[[ gpu_resources ]]"}) > 0
          )
        unless on (cluster)
          (
              cluster:gputally_other_targets:count
            unless on (cluster)
              sum by (cluster) (kube_node_status_allocatable{resource=~"[[ gpu_resources ]]"}) > 0
            unless on (cluster)
              last_over_time(cluster:gputally_occupied_gpus:count[ [[- absence_window -]] ]) > 0
          )
        unless on (cluster)
          (
              last_over_time(cluster:gputally_occupied_gpus:count[ [[- absence_window -]] ]) == 0
            unless on (cluster)
              last_over_time(cluster:gputally_other_targets:count[ [[- absence_window -]] ])
          )
        """,
        Severity.CRITICAL,
        summary="Prometheus has no exporter{{ with $labels.cluster }} of cluster {{ . }}{{ end }} any more.",
        description=(
            "All {{ $value }} exporters{{ with $labels.cluster }} of cluster {{ . }}{{ end }} have "
            "disappeared from the targets, and nothing shows that this was intended. No alert about their "
            "GPUs can fire. Check that the cluster and its Prometheus are there, and that GPUTally is still "
            "deployed."
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
        unless on (cluster, node)
          node:gputally_out_of_service:max == 1
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
        unless on (cluster, node)
          max by (cluster, node) (changes(gputally_snapshot_timestamp_seconds[5m])) > 0
        """,
        Severity.WARNING,
        summary="Exporter on {{ $labels.node }} serves stale values.",
        description=(
            "The values of node {{ $labels.node }} are {{ $value | humanizeDuration }} old and have not "
            "changed for 5 minutes. Dashboards and alerts show a past state. The exporter is stuck: restart "
            "it."
        ),
        for_="2m",
    ),
    # New snapshots with a wrong time. It includes the age of a snapshot, which is at most --interval.
    Alert(
        "GPUTallyClockSkew",
        """
            max by (cluster, node) (
              abs(
                  timestamp(gputally_snapshot_timestamp_seconds)
                -
                  gputally_snapshot_timestamp_seconds
              )
            )
          > [[ clock_skew_seconds ]]
        and on (cluster, node)
          max by (cluster, node) (changes(gputally_snapshot_timestamp_seconds[5m])) > 0
        """,
        Severity.WARNING,
        summary="Clock of node {{ $labels.node }} differs from Prometheus's clock.",
        description=(
            "The clock of node {{ $labels.node }} is {{ $value | humanizeDuration }} away from Prometheus's "
            "clock. Alerts about XID errors end too early or too late, and ages on dashboards are wrong. "
            "Check the time synchronisation (chronyc tracking, timedatectl) on the node, then on "
            "Prometheus's machine."
        ),
        for_="10m",
    ),
)

GROUP = Group("gputally-availability", (*RECORDS, *ALERTS))
