"""Faults of GPUs and of their links: XID errors, memory errors, heat, power, NVLink, XGMI and PCIe."""

from alerts.groups import faults, links
from alerts.model import Action, Alert, Group, RecordingRule, Severity

GROUP = Group(
    "gputally-health",
    (
        *faults.RECORDS,
        *links.RECORDS,
        *faults.ALERTS,
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
        # For half an hour: a burst of heat after the start of a job passes.
        Alert(
            "GPUTallySoftwareThermalSlowdown",
            """
              (
                max by (cluster, node, gpu, uuid) (
                  avg_over_time(gputally_gpu_throttle_active{reason="sw_thermal_slowdown"}[5m])
                ) >= [[ throttle_ratio ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is slowed down because it is too hot.",
            description=(
                "The driver has reduced the clocks of GPU {{ $labels.gpu }} ({{ $labels.model }}, "
                "{{ $labels.pci_bus_id }}) on node {{ $labels.node }} for half an hour, because the GPU or "
                "its memory is above its maximum operating temperature. Jobs on it, and on all GPUs that "
                "wait for it, are slower. Check fans, air flow and room temperature."
            ),
            for_="30m",
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
                (
                      max by (cluster, node, gpu, uuid) (gputally_gpu_sensor_critical_celsius{sensor="mem"})
                    -
                      max by (cluster, node, gpu, uuid) (
                        avg_over_time(gputally_gpu_sensor_celsius{sensor="mem"}[5m])
                      )
                  or
                      max by (cluster, node, gpu, uuid) (gputally_gpu_memory_temperature_limit_celsius)
                    -
                      max by (cluster, node, gpu, uuid) (
                        avg_over_time(gputally_gpu_memory_temperature_celsius[5m])
                      )
                  or
                      [[ memory_temperature_celsius ]]
                    -
                      max by (cluster, node, gpu, uuid) (
                        avg_over_time(gputally_gpu_memory_temperature_celsius[5m])
                      )
                    unless on (cluster, node, gpu, uuid)
                      gputally_gpu_sensor_celsius
                ) < [[ temperature_margin_celsius ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="Memory of GPU {{ $labels.gpu }} on {{ $labels.node }} is near its temperature limit.",
            description=(
                "The memory of GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                '{{ $labels.node }} is {{ printf "%.0f" $value }} degrees below its limit, at which the GPU '
                "slows down. Check fans, air flow and room temperature."
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
