"""What a key is, in words: its comment, or what keys of this name are everywhere."""

from tools.chart_values.reading import Value

WELL_KNOWN = {
    "additionalLabels": "Labels of this object, besides `commonLabels`.",
    "affinity": "Affinity of the pods.",
    "annotations": "Annotations of this object, besides `commonAnnotations`.",
    "metricRelabelings": "Metric relabelings, as the operator has them.",
    "nodeSelector": "Only nodes with these labels.",
    "podAnnotations": "Annotations of the pods.",
    "podLabels": "Labels of the pods.",
    "pullPolicy": "When the image is pulled.",
    "registry": "Instead of `global.imageRegistry`.",
    "relabelings": "Added to its relabelings, as the operator has them.",
    "repository": "Name of the image.",
    "resources": "Requests and limits of the container.",
    "size": "Size of the volume.",
    "storageClass": "Class of the volume. Without it, the cluster's default.",
    "tag": "Tag of the image.",
    "tolerations": "Taints of nodes that the pods accept.",
    "whenDeleted": "What becomes of the volume when the chart is uninstalled.",
}


def description(value: Value) -> str:
    """Empty for a group without a comment; `enabled` is what its group is about."""
    return value.description or ("" if value.children else WELL_KNOWN.get(value.name, ""))
