"""Every setting once: field, flag, environment variables, default, help and how its text is read.

A flag wins over the environment, the environment over the default. The environment variable of a
setting is GPUTALLY_ and the flag's name; `aliases` has what other exporters call some of them.
"""

import argparse
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from gputally.aliases import ALIASES, Alias
from gputally.logs import FORMATS, LEVELS
from gputally.metrics.compat import DEFAULT_METRIC_PREFIX, PROFILES
from gputally.simulator import MODEL_NAMES
from gputally.values import (
    boolean,
    count,
    directory,
    duration,
    existing_file,
    integer,
    metric_prefix,
    names,
    one_of,
    output_file,
    path_or_none,
    port,
    several_of,
    timestamp,
    url_path,
)

POD_GPU_PATH = "/gpu/metrics"
"""Where pod-gpu-metrics-exporter has its metrics."""
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
    metavar: str | None = None,
) -> Any:
    return field(
        default=default,
        metadata={
            "flag": flag,
            "help": help,
            "parse": parse,
            "group": group,
            "env": "GPUTALLY_" + flag[2:].replace("-", "_").upper(),
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
    )
    metrics_path: str = _setting(
        "/metrics",
        "--metrics-path",
        "where the metrics are",
        url_path,
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

    compat: tuple[str, ...] = _setting(
        (),
        "--compat",
        "also serve the metrics under the names of other tools, by commas: " + ", ".join(PROFILES),
        several_of(*PROFILES),
        metavar="NAMES",
    )
    metric_prefix: str = _setting(
        "",
        "--metric-prefix",
        "what the names of --compat process-energy begin with, which it turns on; without it "
        + DEFAULT_METRIC_PREFIX,
        metric_prefix,
        metavar="NAME",
    )
    relay: str = _setting(
        "",
        "--relay",
        f"read this exporter, put pods on its series, and serve them at {POD_GPU_PATH}, in place of --compat "
        "pod-gpu: http://HOST:PORT/PATH, or a file; * and ? in its name stand for any",
        metavar="URL|FILE",
    )
    relay_metrics: bool = _setting(
        False, "--relay-metrics", "serve them with our metrics too, after them", boolean
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

    pods: bool = _setting(
        True, "--pods", "name the pods; with false, nobody is asked for their names", boolean, group="owners"
    )
    sidecar: bool = _setting(
        False,
        "--sidecar",
        "all processes that can be seen are of this pod, and the end of its other containers is ours, where "
        "it has shareProcessNamespace",
        boolean,
        group="owners",
    )
    pod_logs: Path | None = _setting(
        Path("/var/log/pods"),
        "--pod-logs",
        "where the kubelet keeps the pods' logs: the names of its folders name the pods; none: do not look",
        path_or_none,
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
    pod_resources_socket: Path | None = _setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "--pod-resources-socket",
        "where the kubelet says which container it gave which GPU; none: do not ask",
        path_or_none,
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
        one_of(*LEVELS, also={"warn": "warning"}),
        group="output",
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
        metavar="NAME",
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

    @property
    def profiles(self) -> tuple[str, ...]:
        """The other tools whose names are served."""
        asked = (*self.compat, *(("process-energy",) if self.metric_prefix else ()))
        return tuple(dict.fromkeys(asked))


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
    if not names:
        _add_aliases(parser)


def _add_aliases(parser: argparse.ArgumentParser) -> None:
    settings = {setting.name: setting for setting in fields(Config)}
    group = parser.add_argument_group("other tools' names for them")
    for alias in ALIASES:
        if alias.flags:
            setting = settings[alias.setting]
            note = f", {alias.note}" if alias.note else ""
            variable = f" [{alias.env}]" if alias.env else ""
            group.add_argument(
                *alias.flags,
                dest=alias.flags[0],
                default=None,
                help=f"{setting.metadata['flag']}{note} ({alias.tool}){variable}",
                **_argument_form(setting, alias.parse),
            )


def _argument_form(setting: Field[Any], parse: Callable[[str], Any] | None = None) -> dict[str, Any]:
    if setting.metadata["parse"] is boolean:
        return {"nargs": "?", "const": "true", "metavar": "true|false"}
    parse = parse or setting.metadata["parse"]
    return {"metavar": setting.metadata["metavar"] or parse.__name__.upper()}


def _help_text(setting: Field[Any]) -> str:
    shown = "" if setting.default in (None, "", False, ()) else f"; default {_shown(setting)}"
    only_variables = [alias.env for alias in _aliases(setting) if not alias.flags]
    variables = ", ".join([setting.metadata["env"], *only_variables])
    return f"{setting.metadata['help']}{shown} [{variables}]".replace("%", "%%")


def _shown(setting: Field[Any]) -> str:
    if setting.metadata["parse"] is boolean:
        return str(setting.default).lower()
    return f"{setting.default:g}s" if setting.metadata["parse"] is duration else str(setting.default)


def _aliases(setting: Field[Any]) -> list[Alias]:
    return [alias for alias in ALIASES if alias.setting == setting.name]


def read_config(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Config:
    """Settings from flags, else environment, else defaults. Raises ConfigError."""
    values: dict[str, Any] = {}
    for setting in fields(Config):
        given = _from_flags(setting, arguments) or _from_environment(setting, environment)
        if given:
            values[setting.name] = _agreed(setting, given)
    config = Config(**values)
    _refuse_contradictions(config)
    return config


@dataclass(frozen=True, slots=True)
class _Given:
    """A value of a setting, and the flag or variable that has it."""

    name: str
    text: str
    alias: Alias | None = None

    def value(self, setting: Field[Any]) -> Any:
        parse = (self.alias and self.alias.parse) or setting.metadata["parse"]
        try:
            return parse(self.text)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {self.text!r} is not allowed; it takes {error}") from None


def _from_flags(setting: Field[Any], arguments: argparse.Namespace) -> list[_Given]:
    """Under every name it has on the command line."""
    ours = getattr(arguments, setting.name, None)
    given = [] if ours is None else [_Given(setting.metadata["flag"], ours)]
    for alias in _aliases(setting):
        theirs = getattr(arguments, alias.flags[0], None) if alias.flags else None
        if theirs is not None:
            given.append(_Given(alias.flags[-1], theirs, alias))
    return given


def _from_environment(setting: Field[Any], environment: Mapping[str, str]) -> list[_Given]:
    """Under the first of its names that the environment has: ours, then other tools'."""
    names = [(setting.metadata["env"], None), *((alias.env, alias) for alias in _aliases(setting))]
    return [_Given(name, environment[name], alias) for name, alias in names if environment.get(name)][:1]


def _agreed(setting: Field[Any], given: Sequence[_Given]) -> Any:
    values = [one.value(setting) for one in given]
    if all(one.alias is not None and one.alias.least for one in given):
        return min(values)
    for one, value in zip(given, values, strict=True):
        if value != values[0]:
            raise ConfigError(
                f"{given[0].name} {given[0].text} and {one.name} {one.text} contradict each other: "
                "both are names of one setting"
            )
    return values[0]


def _refuse_contradictions(config: Config) -> None:
    if config.reader != "simulated":
        for setting in fields(Config):
            if setting.metadata["group"] == "simulator" and getattr(config, setting.name) is not None:
                raise ConfigError(
                    f"{setting.metadata['flag']} is for the simulator: use `gputally simulate` or "
                    "--reader simulated"
                )
    if config.once and config.state_file is not None:
        raise ConfigError("--state-file is of no use with --once: one sample has nothing to go on from")
    if not config.pods and config.kubernetes:
        raise ConfigError("--kubernetes asks for the pods of this node, --pods false forbids it")
    if not config.pods and config.sidecar:
        raise ConfigError("--sidecar names its own pod, --pods false forbids it")
    if config.metrics_path == POD_GPU_PATH and (config.relay or "pod-gpu" in config.profiles):
        there = "what is relayed" if config.relay else "--compat pod-gpu"
        raise ConfigError(f"--metrics-path cannot be {POD_GPU_PATH}: {there} has it")
    if config.relay_metrics and not config.relay:
        raise ConfigError("--relay-metrics is of no use without --relay")
    if config.once and config.relay:
        raise ConfigError("--relay is of no use with --once: nothing is served")
