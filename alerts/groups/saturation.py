"""Is it full, or will it be?"""

from alerts.groups.phrases import GPU, WHERE, of_gpu, with_card, with_parent_card
from alerts.model import Alert, Audience, Group, Severity


def _used(scope: str) -> str:
    """What is not free is full, whoever has it: the driver's own reserve too."""
    free, total = (of_gpu(f"gputally_{scope}_memory_{what}_bytes") for what in ("free", "total"))
    return f"1 - {free} / {total} > [[ memory_full_ratio ]]"


_OF_POD = "device:gputally_pod_memory_used:bytes"
_FREE = f"({of_gpu('gputally_gpu_memory_free_bytes')} or {of_gpu('gputally_mig_memory_free_bytes')})"
# More than half an hour ago, three times over, and for as long as the alert waits: a sawtooth, a plateau or a
# warm-up does not do that.
_LEAK = (
    f"max by (cluster, node, namespace, pod) ("
    f"predict_linear({_OF_POD}[90m], [[ leak_horizon_hours ]] * 3600) - {_OF_POD}"
    f" > on ({GPU}) group_left () {_FREE}"
    f" and {_OF_POD} > {_OF_POD} offset 30m"
    f" and {_OF_POD} offset 30m > {_OF_POD} offset 1h"
    f" and {_OF_POD} offset 1h > {_OF_POD} offset 90m"
    f" and {_OF_POD} offset 2h)"
)

GROUP = Group(
    "gputally-saturation",
    (
        Alert(
            "GPUTallyMemoryNearlyFull",
            f"{with_card(_used('gpu'))} or {with_parent_card(_used('mig'))}",
            Severity.WARNING,
            summary="The memory of a GPU is nearly full.",
            description=f"{WHERE} ({{{{ $labels.uuid }}}}) has had {{{{ $value | humanizePercentage }}}} of "
            "its memory taken for 15 minutes. What asks for more fails: see in "
            "gputally_pod_memory_used_bytes who has it.",
            for_="15m",
            keep_firing_for="15m",
        ),
        Alert(
            "GPUTallyMemoryLeak",
            _LEAK,
            Severity.WARNING,
            summary="The GPU memory of a pod grows without end.",
            description="Pod {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} has taken "
            "more GPU memory every half hour, and will want {{ $value | humanize1024 }}B more in "
            "[[ leak_horizon_hours ]] hours, which is more than its GPU has free. It will run out of memory: "
            "save its work and restart it.",
            for_="30m",
            keep_firing_for="30m",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyNoFreeGpu",
            "cluster:gputally_gpus_free:count < 0.01",
            Severity.INFO,
            summary="Every GPU of the cluster is taken.",
            description="For 30 minutes no GPU{{ with $labels.cluster }} of cluster {{ . }}{{ end }} has "
            "been free. New pods wait. The dashboards of efficiency show who holds GPUs without using them.",
            for_="30m",
            keep_firing_for="30m",
            enabled=False,  # a fleet that is full may be just as it should be
        ),
    ),
)
