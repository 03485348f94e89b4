"""Devices (undivided GPUs and MIG devices): their utilisation, and the part of each that an owner holds.

GPUs are counted as whole GPUs: a MIG device counts as its share of the GPU, and a device that several pods
hold at once is divided between them.
"""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-devices",
    (
        RecordingRule(
            "device:gputally_utilization:ratio",
            """
              max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
            or
              max by (cluster, node, gpu, uuid) (gputally_mig_graphics_active_ratio)
            """,
        ),
        # Several containers of a pod never hold more than the device.
        RecordingRule(
            "device:gputally_pod_held:ratio",
            """
            clamp_max(
              sum by (cluster, node, gpu, uuid, namespace, pod) (
                rate(gputally_pod_held_seconds_total[ [[- rate_window -]] ])
              ),
              1
            ) > 0
            """,
        ),
        RecordingRule(
            "device:gputally_pod_busy:ratio",
            """
            clamp_max(
              sum by (cluster, node, gpu, uuid, namespace, pod) (
                rate(gputally_pod_busy_seconds_total[ [[- rate_window -]] ])
              ),
              1
            )
            """,
        ),
        RecordingRule(
            "device:gputally_pod_memory_used:bytes",
            """
            sum by (cluster, node, gpu, uuid, namespace, pod) (
              max by (cluster, node, gpu, uuid, namespace, pod, container) (gputally_pod_memory_used_bytes)
            )
            """,
        ),
        RecordingRule(
            "device:gputally_host_held:ratio",
            """
            clamp_max(
              sum by (cluster, node, gpu, uuid, owner) (
                rate(gputally_host_held_seconds_total[ [[- rate_window -]] ])
              ),
              1
            ) > 0
            """,
        ),
        RecordingRule(
            "device:gputally_host_busy:ratio",
            """
            clamp_max(
              sum by (cluster, node, gpu, uuid, owner) (
                rate(gputally_host_busy_seconds_total[ [[- rate_window -]] ])
              ),
              1
            )
            """,
        ),
        RecordingRule(
            "device:gputally_host_memory_used:bytes",
            "max by (cluster, node, gpu, uuid, owner) (gputally_host_memory_used_bytes)",
        ),
        # With time-slicing, the parts of all owners that hold a device add up to 1.
        RecordingRule(
            "device:gputally_pod_part:ratio",
            """
              device:gputally_pod_held:ratio
            / on (cluster, node, gpu, uuid) group_left ()
              clamp_min(
                sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
                1
              )
            """,
        ),
        RecordingRule(
            "device:gputally_host_part:ratio",
            """
              device:gputally_host_held:ratio
            / on (cluster, node, gpu, uuid) group_left ()
              clamp_min(
                sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
                1
              )
            """,
        ),
        RecordingRule(
            "device:gputally_held:gpus",
            """
                device:gputally_share:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                clamp_max(
                  sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
                  1
                )
            or
              device:gputally_share:ratio * 0
            """,
        ),
        # Not known where that of any owner is not: work of MPS clients is no idle time.
        RecordingRule(
            "device:gputally_busy:gpus",
            """
                device:gputally_share:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                clamp_max(
                  sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_busy:ratio"}),
                  1
                )
              unless on (cluster, node, gpu, uuid)
                (
                    device:gputally_pod_held:ratio
                  unless on (cluster, node, gpu, uuid, namespace, pod)
                    device:gputally_pod_busy:ratio
                )
              unless on (cluster, node, gpu, uuid)
                (
                    device:gputally_host_held:ratio
                  unless on (cluster, node, gpu, uuid, owner)
                    device:gputally_host_busy:ratio
                )
            or
              device:gputally_held:gpus == 0
            """,
        ),
    ),
)
