"""GPU memory that is full or will be, and clusters without a free GPU."""

from alerts.model import Alert, Audience, Group, Severity

GROUP = Group(
    "gputally-saturation",
    (
        # Off by default, because most trainers and inference servers take all memory on purpose. Memory that
        # is not free is in use, the driver's own reserve included.
        Alert(
            "GPUTallyMemoryNearlyFull",
            """
            max by (cluster, node, namespace, pod) (
                device:gputally_pod_memory_used:bytes * 0
              + on (cluster, node, gpu, uuid) group_left ()
                (
                      1
                    -
                        max by (cluster, node, gpu, uuid) (gputally_gpu_memory_free_bytes)
                      /
                        max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes)
                  or
                      1
                    -
                        max by (cluster, node, gpu, uuid) (gputally_mig_memory_free_bytes)
                      /
                        max by (cluster, node, gpu, uuid) (gputally_mig_memory_total_bytes)
                )
            ) > [[ memory_full_ratio ]]
            """,
            Severity.INFO,
            summary="GPU memory of pod {{ $labels.namespace }}/{{ $labels.pod }} is nearly full.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} uses a GPU or MIG "
                "device that has had {{ $value | humanizePercentage }} of its memory in use for 15 minutes. "
                "If that is not intended, further allocations will fail: use smaller batches or a larger GPU."
            ),
            for_="15m",
            keep_firing_for="15m",
            audience=Audience.TEAM,
            enabled=False,
        ),
        # Growth in three half hours in a row excludes a sawtooth, a plateau and a warm-up.
        Alert(
            "GPUTallyMemoryLeak",
            """
            max by (cluster, node, namespace, pod) (
                    predict_linear(
                      device:gputally_pod_memory_used:bytes[1h30m],
                      [[ leak_horizon_hours ]] * 3600
                    )
                  -
                    device:gputally_pod_memory_used:bytes
                > on (cluster, node, gpu, uuid) group_left ()
                  (
                      max by (cluster, node, gpu, uuid) (gputally_gpu_memory_free_bytes)
                    or
                      max by (cluster, node, gpu, uuid) (gputally_mig_memory_free_bytes)
                  )
              and
                device:gputally_pod_memory_used:bytes > device:gputally_pod_memory_used:bytes offset 30m
              and
                  device:gputally_pod_memory_used:bytes offset 30m
                >
                  device:gputally_pod_memory_used:bytes offset 1h
              and
                  device:gputally_pod_memory_used:bytes offset 1h
                >
                  device:gputally_pod_memory_used:bytes offset 1h30m
              and
                device:gputally_pod_memory_used:bytes offset 2h
            )
            """,
            Severity.WARNING,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} may leak GPU memory.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has used more GPU "
                "memory every half hour. It will need {{ $value | humanize1024 }}B more in "
                "[[ leak_horizon_hours ]] hours, which is more than its GPU has free, and will run out of "
                "memory. Save its work and restart it."
            ),
            for_="30m",
            keep_firing_for="30m",
            audience=Audience.TEAM,
        ),
        # Off by default, because a fully allocated fleet may be intended.
        Alert(
            "GPUTallyNoFreeGpu",
            "cluster:gputally_gpus_free:count < 0.01",
            Severity.INFO,
            summary="No GPU{{ with $labels.cluster }} of cluster {{ . }}{{ end }} is free.",
            description=(
                "No GPU{{ with $labels.cluster }} of cluster {{ . }}{{ end }} has been free for 30 minutes. "
                "New pods that request one stay pending. The dashboard Idle GPUs shows which pods hold GPUs "
                "without using them."
            ),
            for_="30m",
            keep_firing_for="30m",
            enabled=False,
        ),
    ),
    interval="5m",
)
