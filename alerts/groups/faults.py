"""Faults that the driver reports: XID errors, memory errors that ECC cannot correct, and the recovery action.

One event has one severity: what XID, counter and recovery action say about it agrees. An alert with an action
ends when the reset or reboot is over. Part of the group gputally-health.
"""

from alerts.model import Action, Alert, RecordingRule, Severity

RECORDS: tuple[RecordingRule, ...] = (
    # These two exist only while the GPU is lost, and while no GPU of the node can be read.
    RecordingRule(
        "gpu:gputally_gpu_lost:timestamp",
        "max by (cluster, node, gpu, uuid) (timestamp(gputally_gpu_up == 0))",
    ),
    RecordingRule(
        "node:gputally_driver_down:timestamp",
        """
        timestamp(
          max by (cluster, node) (gputally_source_up{source=~"[[ device_sources ]]"}) == 0
        )
        """,
    ),
    # By its last time: a counter that appears with the value 1 has no increase. Over a window, because a
    # restarted exporter does not know the XID any more, and the GPU may be lost by now.
    RecordingRule(
        "gpu:gputally_xid:timestamp",
        """
        max by (cluster, node, gpu, uuid, xid) (
          max_over_time(
            gputally_gpu_xid_last_timestamp_seconds{xid=~"[[ xid_critical ]]|[[ xid_warning ]]"}[
              [[- xid_window_seconds ~ "s" -]]
            ]
          )
        )
        """,
    ),
    # Repaired: the machine was booted; the GPU or its driver was away and is back; or the exporter was
    # restarted, and the driver wants no recovery (any more).
    RecordingRule(
        "gpu:gputally_xid_unrepaired:timestamp",
        """
          gpu:gputally_xid:timestamp
        unless on (cluster, node, gpu, uuid, xid)
            gpu:gputally_xid:timestamp
          < on (cluster, node) group_left ()
            max by (cluster, node) (gputally_machine_boot_time_seconds)
        unless on (cluster, node, gpu, uuid, xid)
          (
              gpu:gputally_xid:timestamp
            < on (cluster, node, gpu, uuid) group_left ()
              (
                  max_over_time(gpu:gputally_gpu_lost:timestamp[ [[- xid_window_seconds ~ "s" -]] ])
                and on (cluster, node, gpu, uuid)
                  min by (cluster, node, gpu, uuid) (gputally_gpu_up) == 1
              )
          )
        unless on (cluster, node, gpu, uuid, xid)
          (
                gpu:gputally_xid:timestamp
              < on (cluster, node) group_left ()
                max_over_time(node:gputally_driver_down:timestamp[ [[- xid_window_seconds ~ "s" -]] ])
            and on (cluster, node, gpu, uuid)
              min by (cluster, node, gpu, uuid) (gputally_gpu_up) == 1
          )
        unless on (cluster, node, gpu, uuid, xid)
          (
                gpu:gputally_xid:timestamp
              < on (cluster, node) group_left ()
                min by (cluster, node) (process_start_time_seconds{job="[[ job ]]"})
            and on (cluster, node, gpu, uuid)
              gputally_gpu_recovery_action{action="none"} == 1
          )
        """,
    ),
    # Contained: one program ended, and the others may end normally. Known by XID 94, by the driver's recovery
    # action, or by the absence of another XID on GPUs that report one for each error.
    RecordingRule(
        "gpu:gputally_ecc_contained:errors",
        """
              max by (cluster, node, gpu, uuid) (
                gputally_gpu_ecc_errors_total{lifetime="volatile",type="uncorrected"}
              )
            > 0
          and on (cluster, node, gpu, uuid)
            (
                max_over_time(gputally_gpu_xid_last_timestamp_seconds{xid="94"}[1d])
              or
                gputally_gpu_recovery_action{action=~"none|drain_and_reset"} == 1
              or
                  gputally_gpu_xid_errors_total
                and on (cluster, node, gpu, uuid)
                  gputally_gpu_remapped_rows_pending
            )
        unless on (cluster, node, gpu, uuid)
          max_over_time(gputally_gpu_xid_last_timestamp_seconds{xid=~"48|95|140|175"}[1d])
        """,
    ),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GPUTallyXidCritical",
        """
          (
              time() - gpu:gputally_xid_unrepaired:timestamp{xid=~"[[ xid_critical ]]"}
            < [[ xid_window_seconds ]]
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.CRITICAL,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} reported critical XID {{ $labels.xid }}.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} reported XID {{ $labels.xid }} {{ $value | humanizeDuration }} ago. Work "
            "on it has failed or will fail. Drain the node and follow the runbook for this code."
        ),
        action=Action.DRAIN,
    ),
    Alert(
        "GPUTallyXidWarning",
        """
          (
              time() - gpu:gputally_xid_unrepaired:timestamp{xid=~"[[ xid_warning ]]"}
            < [[ xid_window_seconds ]]
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} reported minor XID {{ $labels.xid }}.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} reported XID {{ $labels.xid }} {{ $value | humanizeDuration }} ago. One "
            "job may have failed; the GPU is still usable. Follow the runbook for this code."
        ),
    ),
    Alert(
        "GPUTallyUncorrectableEcc",
        """
          (
              max by (cluster, node, gpu, uuid) (
                gputally_gpu_ecc_errors_total{lifetime="volatile",type="uncorrected"}
              ) > 0
            unless on (cluster, node, gpu, uuid)
              gpu:gputally_ecc_contained:errors
            unless on (cluster, node, uuid)
              gputally_gpu_ras_errors_total
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.CRITICAL,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has uncorrectable memory errors.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has had {{ $value }} uncorrectable memory error(s) since its driver was "
            "loaded. Results computed on it may be wrong. Schedule no new work on it, and reset it when "
            "its jobs have ended."
        ),
        for_="1m",
        action=Action.RESET,
    ),
    Alert(
        "GPUTallyContainedEcc",
        """
          (
              gpu:gputally_ecc_contained:errors
            unless on (cluster, node, uuid)
              gputally_gpu_ras_errors_total
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has contained memory errors.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has had {{ $value }} uncorrectable memory error(s) since its driver was "
            "loaded. Only the programs that read the data were ended; others continue. Reset the GPU when "
            "its jobs have ended."
        ),
        for_="5m",
        action=Action.RESET,
    ),
    # One wish of the driver is no emergency: work continues until the reset.
    Alert(
        "GPUTallyRecoveryNeeded",
        """
          (
            max by (cluster, node, gpu, uuid, recovery) (
              label_replace(
                gputally_gpu_recovery_action{action!~"none|drain_and_reset"} == 1,
                "recovery", "$1", "action", "(.+)"
              )
            )
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.CRITICAL,
        summary=(
            "GPU {{ $labels.gpu }} on {{ $labels.node }} needs the recovery action that its driver reports."
        ),
        description=(
            "The driver reports that GPU {{ $labels.gpu }} ({{ $labels.model }}, "
            "{{ $labels.pci_bus_id }}) on node {{ $labels.node }} needs {{ $labels.recovery }}. Until "
            "then work on it fails or is not safe. Drain the node and carry out this action."
        ),
        for_="1m",
        action=Action.DRAIN,
    ),
    Alert(
        "GPUTallyResetWanted",
        """
          (
            max by (cluster, node, gpu, uuid) (
              gputally_gpu_recovery_action{action="drain_and_reset"} == 1
            )
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is to be reset when its jobs have ended.",
        description=(
            "The driver reports that GPU {{ $labels.gpu }} ({{ $labels.model }}, "
            "{{ $labels.pci_bus_id }}) on node {{ $labels.node }} needs drain_and_reset: running work may "
            "end normally. Schedule no new work on it, and reset it when its jobs have ended."
        ),
        for_="5m",
        action=Action.RESET,
    ),
)
