"""Faults of NVLink, its fabric, XGMI and PCIe links; part of the group gputally-health."""

from alerts.model import Action, Alert, RecordingRule, Severity

RECORDS: tuple[RecordingRule, ...] = (
    RecordingRule(
        "gpu:gputally_gpu_nvlink_up:sum",
        """
          (
            max by (cluster, node, gpu, uuid) (gputally_gpu_nvlinks{state="up"})
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
    ),
    RecordingRule(
        "gpu:gputally_gpu_xgmi_up:sum",
        """
          (
            max by (cluster, node, gpu, uuid) (gputally_gpu_xgmi_links{state="up"})
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
    ),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GPUTallyNvlinkCrcErrors",
        """
          (
            max by (cluster, node, gpu, uuid) (
              rate(gputally_gpu_nvlink_errors_total{type=~"crc_.*"}[5m])
            ) >= [[ nvlink_crc_per_second ]]
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has many NVLink CRC errors.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has {{ $value | humanize }} CRC errors per second on its NVLinks: "
            "packets are sent again. Jobs on several GPUs are slow. Plan a reset, and a repair if the "
            "errors return."
        ),
        for_="5m",
    ),
    # A replay, a discard or a recovery that succeeds loses nothing; GPUTallyNvlinkCrcErrors has CRC errors.
    Alert(
        "GPUTallyNvlinkErrors",
        """
          (
              label_replace(
                sum by (cluster, node, gpu, uuid) (
                  max by (cluster, node, gpu, uuid, type) (
                    increase(gputally_gpu_nvlink_errors_total{type=~"link_recovery_failed|ecc_data"}[15m])
                  )
                ) > 0,
                "kind", "failed recoveries or lost data", "uuid", ".*"
              )
            or on (cluster, node, gpu, uuid)
              label_replace(
                max by (cluster, node, gpu, uuid) (
                  increase(gputally_gpu_nvlink_errors_total{type="replay"}[15m])
                ) >= 15 * [[ nvlink_replays_per_minute ]],
                "kind", "replays", "uuid", ".*"
              )
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has serious NVLink errors: {{ $labels.kind }}.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            '{{ $labels.node }} had {{ printf "%.0f" $value }} {{ $labels.kind }} on its NVLinks in 15 '
            "minutes. A link is failing. Find it with nvidia-smi nvlink -e, and reset the GPU when its jobs "
            "have ended."
        ),
        keep_firing_for="45m",
    ),
    # Fewer links than before, or than other GPUs of the model; a GPU with none was never connected.
    Alert(
        "GPUTallyNvlinkDown",
        """
              last_over_time(gpu:gputally_gpu_nvlink_up:highest[15m])
            -
              gpu:gputally_gpu_nvlink_up:sum
          > 0
        or
          (
                  max by (cluster, node, model) (gpu:gputally_gpu_nvlink_up:sum)
                - on (cluster, node, model) group_right ()
                  gpu:gputally_gpu_nvlink_up:sum
              > 0
            and
              gpu:gputally_gpu_nvlink_up:sum > 0
          )
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has NVLinks that are down.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has {{ $value }} NVLink(s) fewer than earlier in the last "
            "[[ link_window ]], or than the other GPUs of its model on the node. Jobs on several "
            "GPUs fail or are very slow. Drain the node and reset its GPUs."
        ),
        for_="5m",
        action=Action.DRAIN,
    ),
    # Fabric Manager and IMEX need minutes after a start. A GPU without a fabric has no state.
    Alert(
        "GPUTallyFabricNotReady",
        """
          (
              max by (cluster, node, gpu, uuid) (gputally_gpu_fabric_state) < 3
            or
              max by (cluster, node, gpu, uuid) (gputally_gpu_fabric_status) > 0
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.CRITICAL,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is not registered in its NVLink fabric.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} waits for its registration in the NVLink fabric, or the registration has "
            "failed. CUDA programs do not start on it. Check Fabric Manager or IMEX on the node."
        ),
        for_="10m",
        action=Action.DRAIN,
    ),
    Alert(
        "GPUTallyFabricDegraded",
        """
          (max by (cluster, node, gpu, uuid, problem) (gputally_gpu_fabric_problem{problem!="none"}) == 1)
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="The NVLink fabric of GPU {{ $labels.gpu }} on {{ $labels.node }} has a problem.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} reports {{ $labels.problem }} of its NVLink fabric. Jobs on several GPUs are "
            "slow or fail. Check the switches, their links and Fabric Manager."
        ),
        for_="10m",
    ),
    # Differences of single values: a day of raw samples is too much to read. After a reset the counter starts
    # from zero, and the difference is negative.
    Alert(
        "GPUTallyNvlinkRecovering",
        """
          (
                sum by (cluster, node, gpu, uuid) (
                    max by (cluster, node, gpu, uuid, type) (
                      gputally_gpu_nvlink_errors_total{type=~"recovery|link_recovery"}
                    )
                  -
                    max by (cluster, node, gpu, uuid, type) (
                      gputally_gpu_nvlink_errors_total{type=~"recovery|link_recovery"} offset 1d
                    )
                )
              >= [[ link_recoveries ]]
            or
                sum by (cluster, node, gpu, uuid) (
                    max by (cluster, node, gpu, uuid, type) (
                      gputally_gpu_nvlink_errors_total{type=~"recovery|link_recovery"}
                    )
                  -
                    max by (cluster, node, gpu, uuid, type) (
                      gputally_gpu_nvlink_errors_total{type=~"recovery|link_recovery"} offset 1h
                    )
                )
              >= [[ link_recoveries ]]
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="An NVLink of GPU {{ $labels.gpu }} on {{ $labels.node }} is recovered again and again.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            '{{ $labels.node }} had to recover its NVLinks {{ printf "%.0f" $value }} times within an hour '
            "or a day. Jobs continue, but such a link can fail within days, and all GPUs of its NVLink "
            "domain with it. Find the link with nvidia-smi nvlink -e, and replace it at a time that you "
            "choose."
        ),
        for_="5m",
    ),
    Alert(
        "GPUTallyXgmiDown",
        """
              last_over_time(gpu:gputally_gpu_xgmi_up:highest[15m])
            -
              gpu:gputally_gpu_xgmi_up:sum
          > 0
        or
          (
                  max by (cluster, node, model) (gpu:gputally_gpu_xgmi_up:sum)
                - on (cluster, node, model) group_right ()
                  gpu:gputally_gpu_xgmi_up:sum
              > 0
            and
              gpu:gputally_gpu_xgmi_up:sum > 0
          )
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has XGMI links that are down.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has {{ $value }} XGMI link(s) fewer than earlier in the last "
            "[[ link_window ]], or than the other GPUs of its model on the node. Jobs on several GPUs fail "
            "or are very slow. Drain the node and restart it."
        ),
        for_="5m",
        action=Action.DRAIN,
    ),
    # Against what this GPU reached before, or others of its model on the node reach: many clouds and boards
    # connect fewer lanes than the card has. An idle link slows down, so only busy GPUs count.
    Alert(
        "GPUTallyPcieDegraded",
        """
            (
                  max_over_time(gpu:gputally_pcie_speed:lanes[15m])
                /
                  last_over_time(gpu:gputally_pcie_best:lanes[15m])
                * on (cluster, node, uuid) group_left (pci_bus_id, model)
                  max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
              < 1
            or
                  max_over_time(gpu:gputally_pcie_speed:lanes[15m])
                * on (cluster, node, uuid) group_left (pci_bus_id, model)
                  max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
                / on (cluster, node, model) group_left ()
                  last_over_time(model:gputally_pcie_usual:lanes[15m])
              < 1
            )
          and on (cluster, node, uuid)
              max by (cluster, node, uuid) (avg_over_time(gputally_gpu_utilization_ratio[15m]))
            >= [[ pcie_busy_ratio ]]
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is busy on a PCIe link below its usual speed.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} is busy, and its PCIe link reached at most "
            "{{ $value | humanizePercentage }} of the bandwidth that it had in the last [[ pcie_window ]], "
            "or that the other GPUs of its model on the node have. Loading and copying data is slow. Reseat "
            "the card or its riser at the next service."
        ),
        for_="5m",
    ),
    # DCGM's limit is the number of packets that a link of this speed may lose: 8 a minute on 16 lanes of
    # generation 3 (8 GT/s), which is also taken where the speed is unknown.
    Alert(
        "GPUTallyPcieReplays",
        """
          (
              max by (cluster, node, gpu, uuid) (rate(gputally_gpu_pcie_replays_total[5m])) * 60
            >
              ceil(
                  [[ pcie_replays_per_gigatransfer ]]
                *
                  (
                      max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_pcie_width[5m]))
                    *
                        2
                      ^
                        max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_pcie_generation[5m]))
                    or
                        max by (cluster, node, gpu, uuid) (gputally_gpu_pcie_replays_total)
                      * 0
                      + 128
                  )
              )
          )
        * on (cluster, node, uuid) group_left (pci_bus_id, model)
          max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        """,
        Severity.WARNING,
        summary="GPU {{ $labels.gpu }} on {{ $labels.node }} has many PCIe replays.",
        description=(
            "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
            "{{ $labels.node }} has {{ $value | humanize }} PCIe replays per minute, because of a bad "
            "contact, riser or slot. It may fall off the bus. Reseat the card at the next service."
        ),
        for_="10m",
    ),
)
