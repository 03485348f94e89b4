"""What other tools call our settings, so that a command line of theirs goes on working."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputally.logs import FORMATS
from gputally.values import milliseconds, one_of


@dataclass(frozen=True, slots=True)
class Alias:
    """Flags or an environment variable of another tool, and the setting of ours that they stand for."""

    tool: str
    setting: str
    """The field of Config."""
    flags: tuple[str, ...] = ()
    env: str = ""
    parse: Callable[[str], Any] | None = None
    """How the text is read, where that is not as the setting reads it."""
    note: str = ""
    least: bool = False
    """That tool has several where we have one: the smallest of them counts."""


_CONDUCTOR = "AMD conductor"
_DCGM = "dcgm-exporter"
_MY_GPU = "my-gpu-exporter"
_NVIDIA_GPU = "nvidia_gpu_exporter"
_SCANS = "the smaller of the two"

ALIASES = (
    Alias(_CONDUCTOR, "port", env="EXPORTER_PORT"),
    Alias(_CONDUCTOR, "interval_seconds", env="COLLECTION_INTERVAL"),
    Alias(_CONDUCTOR, "log_level", env="LOG_LEVEL"),
    Alias(_CONDUCTOR, "metrics_path", env="METRICS_PATH"),
    Alias("Kubernetes", "node_name", env="NODE_NAME"),
    Alias(_MY_GPU, "interval_seconds", ("--dcgm-update-frequency",), note=_SCANS, least=True),
    Alias(_MY_GPU, "interval_seconds", ("--process-scan-interval",), note=_SCANS, least=True),
    Alias(_MY_GPU, "pods", ("--kubernetes-enabled",)),
    Alias(_MY_GPU, "retention_seconds", ("--metric-retention",)),
    Alias(_DCGM, "listen_address", ("-a", "--address"), "DCGM_EXPORTER_LISTEN"),
    Alias(
        _DCGM,
        "interval_seconds",
        ("-c", "--collect-interval"),
        "DCGM_EXPORTER_INTERVAL",
        milliseconds,
        "in milliseconds",
    ),
    Alias(_DCGM, "pods", ("-k",), "DCGM_EXPORTER_KUBERNETES"),
    Alias(
        _DCGM,
        "pod_resources_socket",
        ("--pod-resources-kubelet-socket",),
        "DCGM_POD_RESOURCES_KUBELET_SOCKET",
    ),
    Alias(_DCGM, "web_config", ("--web-config-file",), "DCGM_EXPORTER_WEB_CONFIG_FILE"),
    Alias(_DCGM, "log_format", env="DCGM_EXPORTER_LOG_FORMAT"),
    Alias(_NVIDIA_GPU, "listen_address", ("--web.listen-address",)),
    Alias(_NVIDIA_GPU, "metrics_path", ("--web.telemetry-path",)),
    Alias(_NVIDIA_GPU, "web_config", ("--web.config.file",)),
    Alias(_NVIDIA_GPU, "nvidia_smi", ("--nvidia-smi-command",)),
    Alias(_NVIDIA_GPU, "interval_seconds", ("--collect.interval",)),
    Alias(_NVIDIA_GPU, "timeout_seconds", ("--collect.timeout",)),
    Alias(_NVIDIA_GPU, "log_level", ("--log.level",)),
    Alias(_NVIDIA_GPU, "log_format", ("--log.format",), parse=one_of(*FORMATS, also={"logfmt": "text"})),
)
