"""Who waits for a GPU, and why: what pods request against what nodes and queues have.

These rules read kube-state-metrics and Kueue's metrics, scraped with honor_labels; without them they are
silent. They count devices as Kubernetes does: with MIG or time-slicing a GPU is several devices.
"""

from alerts.model import Alert, Audience, Group, RecordingRule, Severity

GROUP = Group(
    "gputally-capacity",
    (
        # Of two instances of kube-state-metrics, either. A pod of a StatefulSet may exist twice by its name.
        RecordingRule(
            "pod:gputally_requested:devices",
            """
            sum by (cluster, node, namespace, pod, resource) (
                max by (cluster, node, namespace, pod, uid, container, resource) (
                  kube_pod_container_resource_requests{resource=~"[[ gpu_resources ]]"}
                )
              * on (cluster, namespace, pod, uid) group_left ()
                max by (cluster, namespace, pod, uid) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)
            )
            """,
        ),
        RecordingRule(
            "pod:gputally_pending:devices",
            """
              (
                  label_replace(
                      pod:gputally_requested:devices
                    and on (cluster, namespace, pod)
                      (kube_pod_status_scheduled{condition="true"} == 1),
                    "reason", "Starting", "pod", ".*"
                  )
                or on (cluster, namespace, pod, resource)
                  label_replace(
                      pod:gputally_requested:devices
                    and on (cluster, namespace, pod)
                      (kube_pod_status_reason{reason="SchedulingGated"} == 1),
                    "reason", "SchedulingGated", "pod", ".*"
                  )
                or on (cluster, namespace, pod, resource)
                  label_replace(
                      pod:gputally_requested:devices
                    and on (cluster, namespace, pod)
                      (kube_pod_status_scheduled{condition="false"} == 1),
                    "reason", "Unschedulable", "pod", ".*"
                  )
                or on (cluster, namespace, pod, resource)
                  label_replace(pod:gputally_requested:devices, "reason", "NotScheduled", "pod", ".*")
              )
            and on (cluster, namespace, pod)
              (kube_pod_status_phase{phase="Pending"} == 1)
            """,
        ),
        RecordingRule(
            "pod:gputally_pending:seconds",
            """
              time() - max by (cluster, namespace, pod) (kube_pod_created)
            and on (cluster, namespace, pod)
              pod:gputally_pending:devices
            """,
        ),
        # Of nodes that accept pods: ready and not cordoned.
        RecordingRule(
            "node:gputally_allocatable:devices",
            """
              max by (cluster, node, resource) (
                kube_node_status_allocatable{resource=~"[[ gpu_resources ]]"} > 0
              )
            and on (cluster, node)
              (kube_node_status_condition{condition="Ready",status="true"} == 1)
            unless on (cluster, node)
              (kube_node_spec_unschedulable == 1)
            """,
        ),
        RecordingRule(
            "node:gputally_requestable:devices",
            """
              node:gputally_allocatable:devices
            - on (cluster, node, resource)
              (
                  sum by (cluster, node, resource) (pod:gputally_requested:devices)
                or
                  node:gputally_allocatable:devices * 0
              )
            """,
        ),
        RecordingRule(
            "resource:gputally_allocatable:devices",
            "sum by (cluster, resource) (node:gputally_allocatable:devices)",
        ),
        RecordingRule(
            "resource:gputally_requested:devices",
            "sum by (cluster, resource) (pod:gputally_requested:devices)",
        ),
        RecordingRule(
            "resource:gputally_requestable:devices",
            "sum by (cluster, resource) (node:gputally_requestable:devices)",
        ),
        RecordingRule(
            "resource:gputally_pending:devices",
            "sum by (cluster, resource, reason) (pod:gputally_pending:devices)",
        ),
        # cluster:gputally_gpus_allocated:count also has those that are used without an allocation.
        RecordingRule(
            "cluster:gputally_allocated_by_kubelet:gpus",
            """
            sum by (cluster) (
                device:gputally_share:ratio
              and on (cluster, node, gpu, uuid)
                (
                    max by (cluster, node, gpu, uuid, namespace, pod) (gputally_pod_active == 1)
                  and on (cluster, node, namespace, pod)
                    gputally_pod_info{requested="true"}
                )
            )
            """,
        ),
        # Every replica of Kueue reports the same values.
        RecordingRule(
            "queue:gputally_quota:devices",
            """
            sum by (cluster, cluster_queue, resource) (
              max by (cluster, cluster_queue, flavor, resource) (
                kueue_cluster_queue_nominal_quota{resource=~"[[ gpu_resources ]]"}
              )
            )
            """,
        ),
        RecordingRule(
            "queue:gputally_reserved:devices",
            """
            sum by (cluster, cluster_queue, resource) (
              max by (cluster, cluster_queue, flavor, resource) (
                kueue_cluster_queue_resource_reservation{resource=~"[[ gpu_resources ]]"}
              )
            )
            """,
        ),
        RecordingRule(
            "queue:gputally_pending:workloads",
            """
              sum by (cluster, cluster_queue) (
                max by (cluster, cluster_queue, status) (kueue_pending_workloads)
              )
            and on (cluster, cluster_queue)
              queue:gputally_quota:devices
            """,
        ),
        # On one node: eight GPUs that are free on eight nodes are of no use to a pod that requests eight.
        Alert(
            "GPUTallyPodsPendingFreeGpus",
            """
            count by (cluster, namespace, resource) (
                  pod:gputally_pending:devices{reason=~"Unschedulable|NotScheduled"}
                <= on (cluster, resource) group_left ()
                  max by (cluster, resource) (node:gputally_requestable:devices)
              and on (cluster, namespace, pod)
                pod:gputally_pending:seconds > [[ pending_seconds ]]
            )
            """,
            Severity.WARNING,
            summary="Pods of {{ $labels.namespace }} wait for {{ $labels.resource }} that a node has free.",
            description=(
                "{{ $value }} pod(s) of namespace {{ $labels.namespace }} have waited for more than [[ "
                "pending_seconds ]] s, and a node has as many free {{ $labels.resource }} as each "
                "requests. Something else keeps them from it: CPU or memory, a taint, an affinity, a "
                "volume or the scheduler. kubectl describe pod shows the reason."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyPodsPendingIdleGpus",
            """
              avg_over_time(cluster:gputally_idle:gpus[30m])
            >= on (cluster)
              min by (cluster) (
                  sum by (cluster, namespace, pod) (
                    pod:gputally_pending:devices{reason=~"Unschedulable|SchedulingGated"}
                  )
                and on (cluster, namespace, pod)
                  pod:gputally_pending:seconds > [[ pending_seconds ]]
              )
            """,
            Severity.WARNING,
            summary="Pods wait for GPUs while others are held and idle.",
            description=(
                '{{ printf "%.1f" $value }} GPUs{{ with $labels.cluster }} of cluster {{ . }}{{ end }} '
                "were held and idle on average in the last 30 minutes: enough for a pod that has waited "
                "for more than [[ pending_seconds ]] s. The dashboard Idle GPUs shows the pods that hold "
                "them, and Capacity the pods that wait."
            ),
            for_="30m",
        ),
        Alert(
            "GPUTallyPodNotStarting",
            """
              sum by (cluster, namespace, pod) (pod:gputally_pending:devices{reason="Starting"})
            and on (cluster, namespace, pod)
              (
                  time() - max by (cluster, namespace, pod) (kube_pod_status_scheduled_time)
                > [[ starting_seconds ]]
              )
            """,
            Severity.WARNING,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} holds GPUs and does not start.",
            description=(
                "Pod {{ $labels.pod }} of namespace {{ $labels.namespace }} was assigned to a node more "
                "than [[ starting_seconds ]] s ago and its containers have not started. Its {{ $value }} "
                "GPU(s) are idle, and no other pod can use them. kubectl describe pod shows the reason: an "
                "image, a volume or a missing Secret."
            ),
            for_="5m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyGpuQuotaExhausted",
            """
              max by (cluster, namespace, resourcequota, resource) (
                kube_resourcequota{type="used",resource=~"requests.([[ gpu_resources ]])"}
              )
            >=
              max by (cluster, namespace, resourcequota, resource) (
                kube_resourcequota{type="hard",resource=~"requests.([[ gpu_resources ]])"} > 0
              )
            """,
            Severity.INFO,
            summary="GPU quota of namespace {{ $labels.namespace }} is used up.",
            description=(
                "Namespace {{ $labels.namespace }} has used all {{ $value }} of its {{ $labels.resource }} "
                "(ResourceQuota {{ $labels.resourcequota }}) for an hour. Kubernetes refuses to create "
                "further pods with GPUs, and their Jobs wait without a pod. End what is idle, or ask for "
                "more."
            ),
            for_="1h",
            audience=Audience.TEAM,
            enabled=False,
        ),
        Alert(
            "GPUTallyQueueQuotaExhausted",
            """
                queue:gputally_pending:workloads > 0
              and on (cluster, cluster_queue)
                (queue:gputally_reserved:devices >= (queue:gputally_quota:devices > 0))
            and on (cluster)
              cluster:gputally_gpus_free:count > 0
            """,
            Severity.INFO,
            summary="Workloads of queue {{ $labels.cluster_queue }} wait for quota while GPUs are free.",
            description=(
                "{{ $value }} workload(s) of Kueue's ClusterQueue {{ $labels.cluster_queue }} have waited "
                "for an hour. Its GPU quota is reserved, but the cluster has free GPUs. Raise the quota, "
                "or let the queue borrow in a cohort."
            ),
            for_="1h",
        ),
    ),
    interval="1m",
)
