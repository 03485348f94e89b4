"""Pieces of PromQL and of text that many alerts share."""

GPU = "cluster, node, gpu, uuid"
"""What a GPU is known by; it stays the same when the exporter is restarted and its address changes."""


def of_gpu(metric: str, *more: str) -> str:
    """One sample per GPU, whatever target it came from."""
    return f"max by ({', '.join((GPU, *more))}) ({metric})"


def with_card(expression: str) -> str:
    """The expression, per GPU, with the labels by which a robot or a technician finds the card.

    A filter keeps its meaning: gputally_gpu_info is always 1.
    """
    card = "max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)"
    return f"({expression}) * on (cluster, node, uuid) group_left (pci_bus_id, model) {card}"


def with_parent_card(expression: str) -> str:
    """The expression, per MIG device, with the labels of the card that it is a part of."""
    parent = "max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)"
    card = (
        "label_replace(max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info), "
        '"parent_uuid", "$1", "uuid", "(.+)")'
    )
    return (
        f"({expression}) * on (cluster, node, uuid) group_left (parent_uuid) {parent}"
        f" * on (cluster, node, parent_uuid) group_left (pci_bus_id, model) {card}"
    )


WHERE = "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) of node {{ $labels.node }}"
"""How a description begins: the GPU as people say it."""

DEVICE_SOURCES = "nvml|nvidia-smi|amdgpu|rocm-smi|simulated"
"""The sources that read GPUs; the others know about pods, or keep the books."""


def of_node(metric: str, *more: str) -> str:
    """One sample per node, whatever target it came from."""
    return f"max by ({', '.join(('cluster', 'node', *more))}) ({metric})"


ANSWERS = of_node(f'gputally_source_up{{source=~"{DEVICE_SOURCES}"}}')
"""1 for a node whose GPUs can be read, by whichever source; 0 where none of them answers."""

MODEL = "on (cluster, node, uuid) group_left (model) max by (cluster, node, uuid, model) (gputally_gpu_info)"
"""After `*`: puts the model on what is per GPU."""
