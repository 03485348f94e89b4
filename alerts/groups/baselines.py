"""What is usual for a GPU: the most links and the fastest PCIe link that it had, and its power while idle.

Recorded every five minutes, so that the alerts, which are evaluated every minute, read one value instead of a
day or a week.
"""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-baselines",
    (
        RecordingRule(
            "gpu:gputally_gpu_nvlink_up:highest",
            "max_over_time(gpu:gputally_gpu_nvlink_up:sum[ [[- link_window -]] ])",
        ),
        RecordingRule(
            "gpu:gputally_gpu_xgmi_up:highest",
            "max_over_time(gpu:gputally_gpu_xgmi_up:sum[ [[- link_window -]] ])",
        ),
        # In lanes of generation 1: each generation has twice the speed of the one before. An idle link slows
        # down to save power.
        RecordingRule(
            "gpu:gputally_pcie_speed:lanes",
            """
              max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_pcie_width[5m]))
            *
                2
              ^
                (max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_pcie_generation[5m])) - 1)
            """,
        ),
        RecordingRule(
            "gpu:gputally_pcie_best:lanes",
            "max_over_time(gpu:gputally_pcie_speed:lanes[ [[- pcie_window -]] ])",
        ),
        # The speed that three of four GPUs reach. Of fewer than four GPUs none can be called the exception.
        RecordingRule(
            "model:gputally_pcie_usual:lanes",
            """
              quantile by (cluster, node, model) (
                0.25,
                  gpu:gputally_pcie_best:lanes
                * on (cluster, node, uuid) group_left (model)
                  max by (cluster, node, uuid, model) (gputally_gpu_info)
              )
            and on (cluster, node, model)
              count by (cluster, node, model) (max by (cluster, node, uuid, model) (gputally_gpu_info)) >= 4
            """,
        ),
        RecordingRule(
            "gpu:gputally_idle_power:watts",
            """
              max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts)
            and
              max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_utilization_ratio[5m])) == 0
            """,
        ),
        # Its own, else the lowest of its model, else a tenth of its power limit.
        RecordingRule(
            "gpu:gputally_idle_floor:watts",
            """
              min_over_time(gpu:gputally_idle_power:watts[1d])
            or on (cluster, node, gpu, uuid)
              max by (cluster, node, gpu, uuid) (
                  max by (cluster, node, gpu, uuid, model) (gputally_gpu_info)
                * on (cluster, model) group_left ()
                  min by (cluster, model) (
                      min_over_time(gpu:gputally_idle_power:watts[1d])
                    * on (cluster, node, uuid) group_left (model)
                      max by (cluster, node, uuid, model) (gputally_gpu_info)
                  )
              )
            or on (cluster, node, gpu, uuid)
                (
                    max by (cluster, node, gpu, uuid) (gputally_gpu_power_enforced_limit_watts)
                  or
                    max by (cluster, node, gpu, uuid) (gputally_gpu_power_limit_watts)
                )
              / 10
            """,
        ),
    ),
    interval="5m",
)
