"""Every setting once: field, flag, environment variables, default, help and how its text is read.

A flag wins over the environment, the environment over the default. The environment variable of a
setting is GPUTALLY_ and the flag's name; some have a second name that other exporters use.
"""

import argparse
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from gputally.devices.simulated import MODEL_NAMES
from gputally.logs import FORMATS, LEVELS
from gputally.values import (
    boolean,
    count,
    directory,
    duration,
    existing_file,
    integer,
    names,
    one_of,
    output_file,
    port,
    timestamp,
    url_path,
)

READERS = ("auto", "nvml", "nvidia-smi", "amdgpu", "rocm-smi", "simulated")


class ConfigError(ValueError):
    """A setting has a value that is not allowed; the text names both."""


def _setting(
    default: Any,
    flag: str,
    help: str,
    parse: Callable[[str], Any] = str,
    *,
    group: str = "serving",
    also_env: Sequence[str] = (),
    metavar: str | None = None,
) -> Any:
    return field(
        default=default,
        metadata={
            "flag": flag,
            "help": help,
            "parse": parse,
            "group": group,
            "env": ("GPUTALLY_" + flag[2:].replace("-", "_").upper(), *also_env),
            "metavar": metavar,
        },
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of `serve` and `simulate`."""

    listen_address: str = _setting(
        ":9400",
        "--listen-address",
        "address to serve on: [HOST]:PORT, all interfaces without HOST",
        metavar="ADDR",
    )
    port: int | None = _setting(
        None,
        "--port",
        "port to serve on, instead of the one in --listen-address",
        port,
        also_env=["EXPORTER_PORT"],
    )
    metrics_path: str = _setting(
        "/metrics",
        "--metrics-path",
        "where the metrics are",
        url_path,
        also_env=["METRICS_PATH"],
        metavar="PATH",
    )
    web_config: Path | None = _setting(
        None,
        "--web-config",
        "TLS, client certificates and basic auth: a file in the format of Prometheus exporter-toolkit",
        existing_file,
        metavar="FILE",
    )
    hostname_override: str = _setting(
        "",
        "--hostname-override",
        "name of this host in gputally_exporter_info and on the page",
        metavar="NAME",
    )

    reader: str = _setting(
        "auto",
        "--reader",
        "where readings come from: auto takes nvml, else nvidia-smi, for GPUs of NVIDIA, and amdgpu, else "
        "rocm-smi, for those of AMD. Whose GPUs the host has is looked up once, at the start",
        one_of(*READERS),
        group="reading",
        metavar="|".join(READERS),
    )
    interval_seconds: float = _setting(
        5.0,
        "--interval",
        "time between two samples",
        duration,
        group="reading",
        also_env=["COLLECTION_INTERVAL"],
    )
    timeout_seconds: float = _setting(
        4.0,
        "--timeout",
        "time after which a source that has not answered is reported as down",
        duration,
        group="reading",
    )
    max_age_seconds: float = _setting(
        60.0,
        "--max-age",
        "how long the last readings of a hanging source are served, and /readyz is content",
        duration,
        group="reading",
    )
    pcie_throughput: bool = _setting(
        False,
        "--pcie-throughput",
        "read PCIe throughput: takes 40 ms per GPU and sample; for all GPUs of AMD together, one second",
        boolean,
        group="reading",
    )
    process_metrics: bool = _setting(
        False, "--process-metrics", "export a series for each process on a GPU", boolean, group="reading"
    )
    release_driver: bool = _setting(
        False,
        "--release-driver",
        "let go of the driver between samples, so that it can be unloaded; XID errors are not seen then",
        boolean,
        group="reading",
    )
    nvidia_smi: str = _setting(
        "nvidia-smi",
        "--nvidia-smi",
        "the command of the nvidia-smi reader",
        group="reading",
        metavar="COMMAND",
    )
    rocm_smi: str = _setting(
        "rocm-smi",
        "--rocm-smi",
        "the command of the rocm-smi reader; where it is not found, amd-smi is taken",
        group="reading",
        metavar="COMMAND",
    )
    accounting: bool = _setting(
        False,
        "--accounting",
        "also ask the driver for processes that ended between two samples (see gputally enable-accounting)",
        boolean,
        group="reading",
    )
    procfs: Path = _setting(
        Path("/proc"),
        "--procfs",
        "where the host's /proc is mounted",
        directory,
        group="reading",
        metavar="DIR",
    )
    sysfs: Path = _setting(
        Path("/sys"), "--sysfs", "where the host's /sys is mounted", directory, group="reading", metavar="DIR"
    )

    pod_logs: Path = _setting(
        Path("/var/log/pods"),
        "--pod-logs",
        "where the kubelet keeps the pods' logs: the names of its folders name the pods",
        Path,
        group="owners",
        metavar="DIR",
    )
    container_logs: Path = _setting(
        Path("/var/log/containers"),
        "--container-logs",
        "the same, by container",
        Path,
        group="owners",
        metavar="DIR",
    )
    pod_resources_socket: Path = _setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "--pod-resources-socket",
        "where the kubelet says which container it gave which GPU",
        Path,
        group="owners",
        metavar="SOCKET",
    )
    kubelet_pods_socket: Path = _setting(
        Path("/var/lib/kubelet/pods-api/pods-api.sock"),
        "--kubelet-pods-socket",
        "where the kubelet (1.37 and newer) tells of its pods",
        Path,
        group="owners",
        metavar="SOCKET",
    )
    kubernetes: bool = _setting(
        False,
        "--kubernetes",
        "also ask the API server for the pods of this node: their labels, workloads and requests",
        boolean,
        group="owners",
    )
    node_name: str = _setting(
        "",
        "--node-name",
        "name of this node in Kubernetes",
        group="owners",
        also_env=["NODE_NAME"],
        metavar="NAME",
    )
    pod_labels: tuple[str, ...] = _setting(
        (),
        "--pod-labels",
        "pod labels to put on gputally_pod_info, by commas; * at the end stands for any ending",
        names,
        group="owners",
    )

    pod_annotations: tuple[str, ...] = _setting(
        (), "--pod-annotations", "the same for the annotations of pods", names, group="owners"
    )
    node_labels: tuple[str, ...] = _setting(
        (),
        "--node-labels",
        "labels of this node to put on gputally_node_labels_info, with --kubernetes",
        names,
        group="owners",
    )

    state_file: Path | None = _setting(
        None,
        "--state-file",
        "keep the books here, so that energy and GPU-seconds go on after a restart",
        Path,
        group="books",
        metavar="FILE",
    )
    retention_seconds: float = _setting(
        300.0,
        "--retention",
        "how long the series of a pod or process stay after it has gone",
        duration,
        group="books",
    )

    once: bool = _setting(
        False,
        "--once",
        "take one sample, print it (or write --metrics-file), and exit",
        boolean,
        group="output",
    )
    metrics_file: Path | None = _setting(
        None,
        "--metrics-file",
        "also write the metrics to this file with each sample, for node_exporter's textfile collector",
        output_file,
        group="output",
        metavar="FILE",
    )
    log_level: str = _setting(
        "info",
        "--log-level",
        "how much to log",
        one_of(*LEVELS),
        group="output",
        also_env=["LOG_LEVEL"],
        metavar="|".join(LEVELS),
    )
    log_format: str = _setting(
        "text", "--log-format", "how to log", one_of(*FORMATS), group="output", metavar="|".join(FORMATS)
    )
    log_file: Path | None = _setting(
        None,
        "--log-file",
        "log to this file instead of standard error",
        output_file,
        group="output",
        metavar="FILE",
    )

    gpus: int | None = _setting(None, "--gpus", "simulated GPUs (default: 8)", count, group="simulator")
    model: str | None = _setting(
        None,
        "--model",
        f"their model: {', '.join(MODEL_NAMES)} (default: h100)",
        one_of(*MODEL_NAMES),
        group="simulator",
    )
    seed: int | None = _setting(
        None, "--seed", "same seed, same values (default: 0)", integer, group="simulator"
    )
    began_at: float | None = _setting(
        None,
        "--began",
        "when their story began, in seconds since 1970 (default: now)",
        timestamp,
        group="simulator",
    )
    scenario: Path | None = _setting(
        None,
        "--scenario",
        "what happens on them: a TOML file",
        existing_file,
        group="simulator",
        metavar="FILE",
    )

    @property
    def hostname(self) -> str:
        return self.hostname_override or socket.gethostname()


GROUPS = {
    "serving": "serving",
    "reading": "reading the GPUs",
    "owners": "whose processes they are",
    "books": "what they are charged for",
    "output": "output",
    "simulator": "simulator (with `gputally simulate` or --reader simulated)",
}


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (try {self.prog} --help)\n")


def add_flags(parser: argparse.ArgumentParser, names: Sequence[str] = ()) -> None:
    """Add the flags of all settings, or of those named."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in fields(Config):
        if names and setting.name not in names:
            continue
        meta = setting.metadata
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(GROUPS[meta["group"]])
        groups[meta["group"]].add_argument(
            meta["flag"], dest=setting.name, default=None, help=_help_text(setting), **_argument_form(setting)
        )


def _argument_form(setting: Field[Any]) -> dict[str, Any]:
    if setting.metadata["parse"] is boolean:
        return {"nargs": "?", "const": "true", "metavar": "true|false"}
    return {"metavar": setting.metadata["metavar"] or setting.metadata["parse"].__name__.upper()}


def _help_text(setting: Field[Any]) -> str:
    shown = "" if setting.default in (None, "", False, ()) else f"; default {_shown(setting)}"
    return f"{setting.metadata['help']}{shown} [{', '.join(setting.metadata['env'])}]".replace("%", "%%")


def _shown(setting: Field[Any]) -> str:
    return f"{setting.default:g}s" if setting.metadata["parse"] is duration else str(setting.default)


def read_config(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Config:
    """Settings from flags, else environment, else defaults. Raises ConfigError."""
    values: dict[str, Any] = {}
    for setting in fields(Config):
        given = _given(setting, arguments, environment)
        if given is None:
            continue
        name, text = given
        try:
            values[setting.name] = setting.metadata["parse"](text)
        except ValueError as error:
            raise ConfigError(f"{name}: {text!r} is not allowed; it takes {error}") from None
    config = Config(**values)
    if config.reader != "simulated":
        for setting in fields(Config):
            if setting.metadata["group"] == "simulator" and getattr(config, setting.name) is not None:
                raise ConfigError(
                    f"{setting.metadata['flag']} is for the simulator: use `gputally simulate` or "
                    "--reader simulated"
                )
    if config.once and config.state_file is not None:
        raise ConfigError("--state-file is of no use with --once: one sample has nothing to go on from")
    return config


def _given(
    setting: Field[Any], arguments: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    flag_text = getattr(arguments, setting.name, None)
    if flag_text is not None:
        return setting.metadata["flag"], flag_text
    for name in setting.metadata["env"]:
        if environment.get(name, "") != "":
            return name, environment[name]
    return None
