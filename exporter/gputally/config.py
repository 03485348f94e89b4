"""Every setting once: field, flag, environment variable, default, help and parser.

A flag wins over the environment, the environment over the default. The environment variable of a
setting is GPUTALLY_ and the name of the flag.
"""

import argparse
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from gputally.declarations import Group
from gputally.devices.vendors import READER_NAMES, VENDORS
from gputally.flags import (
    Alias,
    ConfigError,
    Settings,
    boolean,
    count,
    directory,
    duration,
    existing_file,
    gateway_url,
    integer,
    metric_prefix,
    milliseconds,
    names,
    one_of,
    output_file,
    path_or_none,
    port,
    read_values,
    setting,
    several_of,
    timestamp,
    url_path,
    web_url,
)
from gputally.metrics.catalog import PROCESS_METRICS
from gputally.metrics.compat import DEFAULT_METRIC_PREFIX, PROFILES
from gputally.metrics.sets import SETS, Chosen, UnknownNameError, choose, skipped_fields
from gputally.simulator import MODEL_NAMES

POD_GPU_PATH = "/gpu/metrics"
"""The metrics path of pod-gpu-metrics-exporter."""
READERS = ("auto", *READER_NAMES, "simulated")
_READERS_OF_VENDORS = ", and ".join(
    f"{', else '.join(row.name for row in vendor.readers)}, for {vendor.title} GPUs" for vendor in VENDORS
)
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of `serve` and `simulate`."""

    listen_address: str = setting(
        ":9400",
        "--listen-address",
        "address to serve on: [HOST]:PORT, all interfaces without HOST",
        metavar="ADDR",
    )
    port: int | None = setting(
        None,
        "--port",
        "port to serve on, instead of the one in --listen-address",
        port,
    )
    metrics_path: str = setting(
        "/metrics",
        "--metrics-path",
        "path of the metrics",
        url_path,
        metavar="PATH",
    )
    web_config: Path | None = setting(
        None,
        "--web-config",
        "enable TLS, client certificates and basic auth: a web configuration file of the Prometheus "
        "exporter-toolkit",
        existing_file,
        metavar="FILE",
    )
    live_page: bool = setting(
        True,
        "--live-page",
        "serve the live page at / and its JSON below /api/v1; false disables both",
        boolean,
    )
    grafana_url: str = setting(
        "",
        "--grafana-url",
        "address of the Grafana that has GPUTally's dashboards: the live page links to them",
        web_url,
        metavar="URL",
    )
    hostname_override: str = setting(
        "",
        "--hostname-override",
        "host name in gputally_exporter_info and on the live page, instead of the system's",
        metavar="NAME",
    )

    metrics: str = setting(
        "standard",
        "--metrics",
        "set of metrics to export: standard is what GPUTally's dashboards, alerts and bills use, core less, "
        "full everything",
        one_of(*SETS),
        metavar="|".join(SETS),
    )
    metrics_include: tuple[str, ...] = setting(
        (),
        "--metrics-include",
        "also export these metrics and groups of metrics, separated by commas, with all their label values: "
        + ", ".join(Group),
        names,
        metavar="NAMES",
    )
    metrics_exclude: tuple[str, ...] = setting(
        (),
        "--metrics-exclude",
        "do not export these metrics and groups, separated by commas",
        names,
        metavar="NAMES",
    )
    compat: tuple[str, ...] = setting(
        (),
        "--compat",
        "also serve the metrics under the names of these tools, separated by commas: " + ", ".join(PROFILES),
        several_of(*PROFILES),
        metavar="NAMES",
    )
    metric_prefix: str = setting(
        "",
        "--metric-prefix",
        "prefix of the metrics of --compat process-energy; enables that profile; without it "
        + DEFAULT_METRIC_PREFIX,
        metric_prefix,
        metavar="NAME",
    )
    relay: str = setting(
        "",
        "--relay",
        f"read another exporter, add pod labels to its series and serve them at {POD_GPU_PATH}, instead of "
        "--compat pod-gpu: http://HOST:PORT/PATH, or a file name, in which * and ? match any characters",
        metavar="URL|FILE",
    )
    relay_metrics: bool = setting(
        False, "--relay-metrics", "append the relayed series to --metrics-path as well", boolean
    )

    reader: str = setting(
        "auto",
        "--reader",
        f"source of the readings: auto uses {_READERS_OF_VENDORS}. Vendors are detected once, at start",
        one_of(*READERS),
        group="reading",
        metavar="|".join(READERS),
    )
    interval_seconds: float = setting(
        5.0,
        "--interval",
        "time between two samples",
        duration,
        group="reading",
    )
    timeout_seconds: float = setting(
        4.0,
        "--timeout",
        "time after which a source that has not responded is reported as down",
        duration,
        group="reading",
    )
    max_age_seconds: float = setting(
        60.0,
        "--max-age",
        "time for which the last readings of a hanging source are served and /readyz reports ready",
        duration,
        group="reading",
    )
    pcie_throughput: bool = setting(
        False,
        "--pcie-throughput",
        "read the PCIe throughput also of GPUs where that blocks: adds 40 ms per NVIDIA GPU before Hopper, "
        "or one second for all AMD GPUs, to each sample",
        boolean,
        group="reading",
    )
    process_metrics: bool = setting(
        False, "--process-metrics", "export series per process on a GPU", boolean, group="reading"
    )
    release_driver: bool = setting(
        False,
        "--release-driver",
        "release the driver between samples, so that it can be unloaded; disables XID errors; no effect "
        "while persistence mode is off",
        boolean,
        group="reading",
    )
    nvidia_smi: str = setting(
        "nvidia-smi",
        "--nvidia-smi",
        "command of the nvidia-smi reader",
        group="reading",
        metavar="COMMAND",
    )
    rocm_smi: str = setting(
        "rocm-smi",
        "--rocm-smi",
        "command of the rocm-smi reader; if it is not found, amd-smi is used",
        group="reading",
        metavar="COMMAND",
    )
    accounting: bool = setting(
        False,
        "--accounting",
        "also read processes that ended between two samples from the driver's accounting (see gputally "
        "enable-accounting)",
        boolean,
        group="reading",
    )
    procfs: Path = setting(
        Path("/proc"),
        "--procfs",
        "mount point of the host's /proc",
        directory,
        group="reading",
        metavar="DIR",
    )
    sysfs: Path = setting(
        Path("/sys"), "--sysfs", "mount point of the host's /sys", directory, group="reading", metavar="DIR"
    )

    pods: bool = setting(True, "--pods", "name the pods; false disables pod names", boolean, group="owners")
    sidecar: bool = setting(
        False,
        "--sidecar",
        "attribute all visible processes to this pod, and exit when its other containers exit (needs "
        "shareProcessNamespace)",
        boolean,
        group="owners",
    )
    pod_logs: Path | None = setting(
        Path("/var/log/pods"),
        "--pod-logs",
        "the kubelet's directory of pod logs: its subdirectories name the pods; none disables it",
        path_or_none,
        group="owners",
        metavar="DIR",
    )
    container_logs: Path = setting(
        Path("/var/log/containers"),
        "--container-logs",
        "the kubelet's directory of container logs, used in the same way",
        Path,
        group="owners",
        metavar="DIR",
    )
    pod_resources_socket: Path | None = setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "--pod-resources-socket",
        "the kubelet's socket that reports which GPU is allocated to which container; none disables it",
        path_or_none,
        group="owners",
        metavar="SOCKET",
    )
    kubelet_pods_socket: Path = setting(
        Path("/var/lib/kubelet/pods-api/pods-api.sock"),
        "--kubelet-pods-socket",
        "the kubelet's socket that lists its pods (Kubernetes 1.37 and newer)",
        Path,
        group="owners",
        metavar="SOCKET",
    )
    kubernetes: bool = setting(
        False,
        "--kubernetes",
        "also watch the pods of this node at the API server: labels, workloads and requests",
        boolean,
        group="owners",
    )
    node_name: str = setting(
        "",
        "--node-name",
        "name of this node in Kubernetes",
        group="owners",
        metavar="NAME",
    )
    pod_labels: tuple[str, ...] = setting(
        (),
        "--pod-labels",
        "pod labels to export on gputally_pod_info, separated by commas; a trailing * matches any ending",
        names,
        group="owners",
    )

    pod_annotations: tuple[str, ...] = setting(
        (),
        "--pod-annotations",
        "pod annotations to export on gputally_pod_info, in the same form",
        names,
        group="owners",
    )
    node_labels: tuple[str, ...] = setting(
        (),
        "--node-labels",
        "node labels to export on gputally_node_labels_info, in the same form; needs --kubernetes",
        names,
        group="owners",
    )

    nested_pods: bool = setting(
        False,
        "--nested-pods",
        "also charge pods and containers inside of containers and users' sessions (kind, minikube, rootless "
        "Docker): a user who creates cgroups there can then have other pods charged for this work",
        boolean,
        group="owners",
    )

    state_file: Path | None = setting(
        None,
        "--state-file",
        "file in which the ledger is kept, so that energy and GPU-seconds continue after a restart",
        Path,
        group="ledger",
        metavar="FILE",
    )
    retention_seconds: float = setting(
        300.0,
        "--retention",
        "time for which the series of a pod or process remain after it has exited",
        duration,
        group="ledger",
    )

    once: bool = setting(
        False,
        "--once",
        "take one sample, print it (or write --metrics-file), and exit",
        boolean,
        group="output",
    )
    push_gateway: str = setting(
        "",
        "--push-gateway",
        "with --once: push the sample to this Pushgateway instead of printing it: http://HOST:PORT",
        gateway_url,
        group="output",
        metavar="URL",
    )
    metrics_file: Path | None = setting(
        None,
        "--metrics-file",
        "also write the metrics to this file with each sample, for node_exporter's textfile collector",
        output_file,
        group="output",
        metavar="FILE",
    )
    log_level: str = setting(
        "info",
        "--log-level",
        "lowest level that is logged",
        one_of(*LOG_LEVELS, also={"warn": "warning"}),
        group="output",
        metavar="|".join(LOG_LEVELS),
    )
    log_format: str = setting(
        "text",
        "--log-format",
        "format of the log",
        one_of(*LOG_FORMATS),
        group="output",
        metavar="|".join(LOG_FORMATS),
    )
    log_file: Path | None = setting(
        None,
        "--log-file",
        "log to this file instead of standard error",
        output_file,
        group="output",
        metavar="FILE",
    )

    gpus: int | None = setting(
        None, "--gpus", "number of simulated GPUs (default: 8)", count, group="simulator"
    )
    model: str | None = setting(
        None,
        "--model",
        f"model of the simulated GPUs: {', '.join(MODEL_NAMES)} (default: h100)",
        one_of(*MODEL_NAMES),
        group="simulator",
        metavar="NAME",
    )
    seed: int | None = setting(
        None, "--seed", "seed: the same seed gives the same values (default: 0)", integer, group="simulator"
    )
    began_at: float | None = setting(
        None,
        "--scenario-start",
        "start of the scenario, in seconds since 1970 (default: now)",
        timestamp,
        group="simulator",
    )
    scenario: Path | None = setting(
        None,
        "--scenario",
        "scenario file (TOML) with GPUs, workloads and faults",
        existing_file,
        group="simulator",
        metavar="FILE",
    )

    @property
    def hostname(self) -> str:
        return self.hostname_override or socket.gethostname()

    @property
    def profiles(self) -> tuple[str, ...]:
        """The other tools whose metric names are served."""
        chosen = (*self.compat, *(("process-energy",) if self.metric_prefix else ()))
        return tuple(dict.fromkeys(chosen))

    @property
    def chosen_metrics(self) -> Chosen:
        """Raises UnknownNameError."""
        return choose(self.metrics, self.metrics_include, self.metrics_exclude)

    @property
    def skipped_fields(self) -> frozenset[str]:
        """The fields of `Reading` that need not be read: a profile may use any of them."""
        return frozenset() if self.profiles else skipped_fields(self.chosen_metrics)

    @property
    def nvidia_smi_rows(self) -> bool:
        """Whether a profile serves all columns of nvidia-smi."""
        return "nvidia-smi" in self.profiles


GROUPS = {
    "serving": "serving",
    "reading": "reading GPUs",
    "owners": "attribution to pods and host owners",
    "ledger": "ledger",
    "output": "output",
    "simulator": "simulator (with `gputally simulate` or --reader simulated)",
}

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
    Alias(_NVIDIA_GPU, "log_format", ("--log.format",), parse=one_of(*LOG_FORMATS, also={"logfmt": "text"})),
)

SETTINGS = Settings(Config, GROUPS, ALIASES)


def read_config(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Config:
    """Settings from flags, else environment, else defaults. Raises ConfigError."""
    config = Config(**read_values(SETTINGS, arguments, environment))
    _refuse_contradictions(config)
    _refuse_unknown_metrics(config)
    return config


def _refuse_unknown_metrics(config: Config) -> None:
    for flag, given in (
        ("--metrics-include", config.metrics_include),
        ("--metrics-exclude", config.metrics_exclude),
    ):
        try:
            choose(config.metrics, given)
        except UnknownNameError as error:
            raise ConfigError(f"{flag}: {error}") from None
    of_processes = {Group.PROCESSES, *(one.name for one in PROCESS_METRICS)}
    if not config.process_metrics and of_processes.intersection(config.metrics_include):
        raise ConfigError("--metrics-include of metrics of single processes needs --process-metrics")


def _refuse_contradictions(config: Config) -> None:
    if config.reader != "simulated":
        for one in fields(Config):
            if one.metadata["group"] == "simulator" and getattr(config, one.name) is not None:
                raise ConfigError(
                    f"{one.metadata['flag']} is for the simulator: use `gputally simulate` or "
                    "--reader simulated"
                )
    if config.once and config.state_file is not None:
        raise ConfigError("--state-file cannot be used with --once: one sample has no ledger to continue")
    if config.push_gateway and not config.once:
        raise ConfigError("--push-gateway needs --once: Prometheus scrapes an exporter that keeps running")
    if config.push_gateway and config.metrics_file is not None:
        raise ConfigError("--push-gateway cannot be used with --metrics-file: the sample goes to one place")
    if not config.pods and config.kubernetes:
        raise ConfigError("--kubernetes cannot be used with --pods false: it names the pods of this node")
    if config.kubernetes and not config.node_name and config.reader != "simulated":
        raise ConfigError("--kubernetes needs --node-name (in a pod: NODE_NAME from the downward API)")
    if not config.pods and config.sidecar:
        raise ConfigError("--sidecar cannot be used with --pods false: it names its own pod")
    if config.metrics_path == POD_GPU_PATH and (config.relay or "pod-gpu" in config.profiles):
        user = "--relay" if config.relay else "--compat pod-gpu"
        raise ConfigError(f"--metrics-path cannot be {POD_GPU_PATH}: {user} serves that path")
    if config.relay_metrics and not config.relay:
        raise ConfigError("--relay-metrics needs --relay")
    if config.once and config.relay:
        raise ConfigError("--relay cannot be used with --once: nothing is served")
