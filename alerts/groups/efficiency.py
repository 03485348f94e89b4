"""GPUs that are held and idle, used without a request, used without a known owner, or never allocated.

The measure is the share of the held time in which a pod was busy: a counter, so that no short run between two
scrapes is missed. Where that is not known now (processes are not sampled, or an MPS server runs their work),
the utilisation of the device is used. A pod whose memory grows or shrinks is at work too: it loads a model or
data. The windows read the one-minute records of `gputally-devices`, far fewer samples than the scrapes.
"""

from alerts.model import Alert, Audience, Group, Severity

GROUP = Group(
    "gputally-efficiency",
    (
        Alert(
            "GPUTallyHeldIdle",
            """
            count by (cluster, node, namespace, pod) (
                (
                      sum_over_time(device:gputally_pod_busy:ratio[ [[- idle_window -]] ])
                    /
                      sum_over_time(device:gputally_pod_held:ratio[ [[- idle_window -]] ])
                    and on (cluster, node, gpu, uuid, namespace, pod)
                      device:gputally_pod_busy:ratio
                  or on (cluster, node, gpu, uuid, namespace, pod)
                      (device:gputally_pod_held:ratio > bool 0)
                    * on (cluster, node, gpu, uuid) group_left ()
                      max_over_time(device:gputally_utilization:ratio[ [[- idle_window -]] ])
                ) <= [[ idle_busy_ratio ]]
              and on (cluster, node, gpu, uuid, namespace, pod)
                device:gputally_pod_held:ratio
              and on (cluster, node, gpu, uuid, namespace, pod)
                last_over_time(
                  device:gputally_pod_held:ratio{namespace!~"[[ exempt_namespaces ]]"}[15m]
                    offset [[ idle_window ]]
                )
              unless on (cluster, node, gpu, uuid, namespace, pod)
                  max_over_time(device:gputally_pod_memory_used:bytes[ [[- idle_window -]] ])
                -
                  min_over_time(device:gputally_pod_memory_used:bytes[ [[- idle_window -]] ])
                > [[ idle_memory_mebibytes ]] * 1024 * 1024
            )
            """,
            Severity.INFO,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} holds idle GPUs.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has held "
                "{{ $value }} GPU(s) for [[ idle_window ]] and left them idle. Nothing else can use them. "
                "Delete the pod if its work is done; read its log if it hangs."
            ),
            for_="5m",
            keep_firing_for="15m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyHeldIdleLong",
            """
            count by (cluster, node, namespace, pod) (
                (
                      sum_over_time(device:gputally_pod_busy:ratio[ [[- idle_long_window -]] ])
                    /
                      sum_over_time(device:gputally_pod_held:ratio[ [[- idle_long_window -]] ])
                    and on (cluster, node, gpu, uuid, namespace, pod)
                      device:gputally_pod_busy:ratio
                  or on (cluster, node, gpu, uuid, namespace, pod)
                      (device:gputally_pod_held:ratio > bool 0)
                    * on (cluster, node, gpu, uuid) group_left ()
                      max_over_time(device:gputally_utilization:ratio[ [[- idle_long_window -]] ])
                ) <= [[ idle_busy_ratio ]]
              and on (cluster, node, gpu, uuid, namespace, pod)
                device:gputally_pod_held:ratio
              and on (cluster, node, gpu, uuid, namespace, pod)
                last_over_time(
                  device:gputally_pod_held:ratio{namespace!~"[[ exempt_namespaces ]]"}[15m]
                    offset [[ idle_long_window ]]
                )
              unless on (cluster, node, gpu, uuid, namespace, pod)
                  max_over_time(device:gputally_pod_memory_used:bytes[ [[- idle_long_window -]] ])
                -
                  min_over_time(device:gputally_pod_memory_used:bytes[ [[- idle_long_window -]] ])
                > [[ idle_memory_mebibytes ]] * 1024 * 1024
            )
            """,
            Severity.WARNING,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} has held idle GPUs for a long time.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has held "
                "{{ $value }} GPU(s) for [[ idle_long_window ]] and left them idle. Other work could use "
                "them. Delete the pod, or exempt its namespace if it has to stay."
            ),
            for_="5m",
            keep_firing_for="15m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyHeldUnderused",
            """
            count by (cluster, node, namespace, pod) (
                (
                      sum_over_time(device:gputally_pod_busy:ratio[ [[- underused_window -]] ])
                    /
                      sum_over_time(device:gputally_pod_held:ratio[ [[- underused_window -]] ])
                    and on (cluster, node, gpu, uuid, namespace, pod)
                      device:gputally_pod_busy:ratio
                  or on (cluster, node, gpu, uuid, namespace, pod)
                      (device:gputally_pod_held:ratio > bool 0)
                    * on (cluster, node, gpu, uuid) group_left ()
                      max_over_time(device:gputally_utilization:ratio[ [[- underused_window -]] ])
                ) <= [[ underused_busy_ratio ]]
              and on (cluster, node, gpu, uuid, namespace, pod)
                device:gputally_pod_held:ratio
              and on (cluster, node, gpu, uuid, namespace, pod)
                last_over_time(
                  device:gputally_pod_held:ratio{namespace!~"[[ exempt_namespaces ]]"}[15m]
                    offset [[ underused_window ]]
                )
            )
            """,
            Severity.INFO,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} is rarely busy on its GPUs.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has held "
                "{{ $value }} GPU(s) for [[ underused_window ]] and was busy for less than "
                "[[ underused_busy_ratio ]] of that time. A shared GPU or a MIG device would be "
                "enough: change its request."
            ),
            for_="15m",
            keep_firing_for="1h",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyUnrequestedUse",
            """
              count by (cluster, node, namespace, pod) (
                max by (cluster, node, gpu, uuid, namespace, pod) (
                  gputally_pod_processes{namespace!~"[[ exempt_namespaces ]]"}
                ) > 0
              )
            and on (cluster, namespace, pod)
              max by (cluster, namespace, pod) (gputally_pod_info{requested="false"})
            """,
            Severity.WARNING,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} uses GPUs that it did not request.",
            description=(
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has had processes "
                "on {{ $value }} GPU(s) for 10 minutes, and the kubelet allocated none to it. It takes "
                "memory and time from the pods to which they are allocated. Add a GPU request to the pod, or "
                "stop it."
            ),
            for_="10m",
            keep_firing_for="10m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyUnattributedProcesses",
            """
            count by (cluster, node, reason) (
              max by (cluster, node, gpu, uuid, reason) (gputally_gpu_unattributed_memory_used_bytes) > 0
            )
            """,
            Severity.WARNING,
            summary="Unattributed processes are using GPUs on {{ $labels.node }}.",
            description=(
                "On node {{ $labels.node }}, processes without a known owner use memory on {{ $value }} "
                "GPU(s) (reason: {{ $labels.reason }}). Their energy and GPU time are charged to no owner. "
                "Run gputally whose PID on the node; the usual cause is a privilege that the exporter lacks."
            ),
            for_="15m",
            keep_firing_for="15m",
        ),
        Alert(
            "GPUTallyGpusUnallocated",
            """
                  min_over_time(model:gputally_gpus_free:count[ [[- unused_window -]] ])
                /
                  model:gputally_gpus:count
              > [[ unused_ratio ]]
            and
              last_over_time(model:gputally_gpus:count[1h] offset [[ unused_window ]])
            """,
            Severity.INFO,
            summary="Some {{ $labels.model }} GPUs were never allocated.",
            description=(
                "{{ $value | humanizePercentage }} of the {{ $labels.model }} GPUs were free at every moment "
                "of the last [[ unused_window ]]. Return them, switch them off or assign them to other work."
            ),
            for_="1h",
            keep_firing_for="1h",
        ),
    ),
    interval="5m",
)
