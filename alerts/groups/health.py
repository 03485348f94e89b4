"""Faults of GPUs and of their links: XID errors, memory errors, heat, power, NVLink, XGMI and PCIe."""

from alerts.groups import links
from alerts.model import Action, Alert, Group, RecordingRule, Severity

GROUP = Group(
    "gputally-health",
    (
        *links.RECORDS,
        # By its last time: a counter that appears with the value 1 has no increase, and the GPU may be lost
        # by now.
        Alert(
            "GPUTallyXidCritical",
            """
              (
                    time()
                  -
                    max by (cluster, node, gpu, uuid, xid) (
                      max_over_time(
                        gputally_gpu_xid_last_timestamp_seconds{xid=~"[[ xid_critical ]]"}[
                          [[- xid_window_seconds ~ "s" -]]
                        ]
                      )
                    )
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
                    time()
                  -
                    max by (cluster, node, gpu, uuid, xid) (
                      max_over_time(
                        gputally_gpu_xid_last_timestamp_seconds{xid=~"[[ xid_warning ]]"}[
                          [[- xid_window_seconds ~ "s" -]]
                        ]
                      )
                    )
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
            "GPUTallyRowRemapFailure",
            """
              (max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_failure) == 1)
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.CRITICAL,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has no spare memory rows left.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} could not replace a faulty memory row. More memory errors will follow. "
                "Drain the node and have the card replaced."
            ),
            for_="1m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyRowRemapPending",
            """
              (max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_pending) == 1)
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} needs a reset to replace a memory row.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} has a faulty memory row that is replaced at its next reset. Reset it "
                "when its jobs have ended."
            ),
            for_="5m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRetiredPagesPending",
            """
              (max by (cluster, node, gpu, uuid) (gputally_gpu_retired_pages_pending) == 1)
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} needs a reset to retire memory pages.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} has faulty memory pages that stay in use until its next reset. Reset it "
                "when its jobs have ended."
            ),
            for_="5m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRecoveryNeeded",
            """
              (
                max by (cluster, node, gpu, uuid, recovery) (
                  label_replace(
                    gputally_gpu_recovery_action{action!="none"} == 1,
                    "recovery", "$1", "action", "(.+)"
                  )
                )
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.CRITICAL,
            summary=(
                "GPU {{ $labels.gpu }} on {{ $labels.node }} needs the recovery action that its driver "
                "reports."
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
            "GPUTallyThermalSlowdown",
            """
              (
                max by (cluster, node, gpu, uuid) (
                  avg_over_time(gputally_gpu_throttle_active{reason="hw_thermal_slowdown"}[5m])
                ) >= [[ throttle_ratio ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is slowed down by its thermal protection.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} was slowed down by its thermal protection for "
                "{{ $value | humanizePercentage }} of the last 5 minutes. Work on it runs at half speed or "
                "less. Check fans, air flow and room temperature."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyPowerBrake",
            """
              (
                max by (cluster, node, gpu, uuid) (
                  avg_over_time(gputally_gpu_throttle_active{reason="hw_power_brake_slowdown"}[5m])
                ) >= [[ throttle_ratio ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is slowed down by the server's power brake.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} was slowed down by the server's power brake for "
                "{{ $value | humanizePercentage }} of the last 5 minutes. A power supply has failed or is "
                "overloaded. Read the BMC's log."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyTemperatureNearLimit",
            """
              (
                (
                    max by (cluster, node, gpu, uuid) (
                      avg_over_time(gputally_gpu_temperature_margin_celsius[5m])
                    )
                  or
                      max by (cluster, node, gpu, uuid) (gputally_gpu_temperature_slowdown_celsius)
                    -
                      max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_temperature_celsius[5m]))
                ) < [[ temperature_margin_celsius ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is near its temperature limit.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                '{{ $labels.node }} is {{ printf "%.0f" $value }} degrees below the temperature at which it '
                "slows itself down. Check fans, air flow and room temperature before it does."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyMemoryTemperatureNearLimit",
            """
              (
                    max by (cluster, node, gpu, uuid) (gputally_gpu_sensor_critical_celsius{sensor="mem"})
                  -
                    max by (cluster, node, gpu, uuid) (
                      avg_over_time(gputally_gpu_sensor_celsius{sensor="mem"}[5m])
                    )
                < [[ temperature_margin_celsius ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="Memory of GPU {{ $labels.gpu }} on {{ $labels.node }} is near its temperature limit.",
            description=(
                "The memory of GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                '{{ $labels.node }} is {{ printf "%.0f" $value }} degrees below its critical temperature, at '
                "which the GPU slows down. Check fans, air flow and room temperature."
            ),
            for_="10m",
        ),
        *links.ALERTS,
        # A kernel that waits for another GPU keeps the GPU busy, and neither draws power nor moves memory.
        RecordingRule(
            "gpu:gputally_suspected_hang:ratio",
            """
                max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_power_watts[5m]))
              / on (cluster, node, gpu, uuid)
                max by (cluster, node, gpu, uuid) (last_over_time(gpu:gputally_idle_floor:watts[15m]))
              < [[ hang_power_factor ]]
            and
                max by (cluster, node, gpu, uuid) (min_over_time(gputally_gpu_utilization_ratio[5m]))
              >= [[ hang_utilization_ratio ]]
            unless
                max by (cluster, node, gpu, uuid) (
                  max_over_time(gputally_gpu_memory_utilization_ratio[5m])
                )
              >= [[ hang_memory_ratio ]]
            """,
        ),
        Alert(
            "GPUTallySuspectedHang",
            """
              gpu:gputally_suspected_hang:ratio
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is busy at idle power: its job may hang.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} has been busy without a break for 15 minutes, at no more than "
                '{{ printf "%.1f" $value }} times its power while idle, and without moving memory. A kernel '
                "that waits for another GPU looks like this. Find the owner with gputally whose, and check "
                "whether the job makes progress."
            ),
            for_="15m",
        ),
        Alert(
            "GPUTallyRasUncorrected",
            """
              (
                sum by (cluster, node, gpu, uuid) (
                  sum by (cluster, node, gpu, uuid, type) (
                    max by (cluster, node, gpu, uuid, block, type) (
                      (gputally_gpu_ras_errors_total{type="uncorrected"})
                    )
                  )
                ) > 0
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.CRITICAL,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has uncorrectable RAS errors.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} has had {{ $value }} uncorrectable error(s) since its driver was loaded. "
                "Results computed on it may be wrong. Schedule no new work on it, and reset it when its jobs "
                "have ended."
            ),
            for_="1m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRasErrors",
            """
              (
                  sum by (cluster, node, gpu, uuid, type) (
                    max by (cluster, node, gpu, uuid, block, type) (
                      increase(gputally_gpu_ras_errors_total{type="deferred"}[1h])
                    )
                  ) > 0
                or
                  sum by (cluster, node, gpu, uuid, type) (
                    max by (cluster, node, gpu, uuid, block, type) (
                      increase(gputally_gpu_ras_errors_total{type="corrected"}[1h])
                    )
                  ) > [[ ras_corrected_per_hour ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has deferred or many corrected RAS errors.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                '{{ $labels.node }} had {{ printf "%.0f" $value }} {{ $labels.type }} errors in the last '
                "hour. Deferred errors become uncorrectable when the data is used. Have the card inspected "
                "before that."
            ),
        ),
    ),
)
