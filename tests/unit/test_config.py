"""Settings: one declaration for flag, environment variable, default and help."""

import argparse
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.commands.command_line import OneLineParser, add_flags
from gputally.config import ALIASES, SETTINGS, Config, read_config
from gputally.flags import ConfigError, duration, metric_prefix, milliseconds
from tests.support.texts import missing


def parse(*arguments: str, **environment: str) -> Config:
    parser = OneLineParser(prog="gputally serve")
    add_flags(parser, SETTINGS)
    return read_config(parser.parse_args(arguments), environment)


def test_defaults_are_those_of_the_dataclass() -> None:
    assert parse() == Config()


def test_a_flag_takes_precedence_over_the_environment_and_that_over_the_default() -> None:
    assert parse(GPUTALLY_INTERVAL="15s").interval_seconds == 15
    assert parse("--interval", "1m", GPUTALLY_INTERVAL="15s").interval_seconds == 60


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("EXPORTER_PORT", "9531", "port", 9531),
        ("COLLECTION_INTERVAL", "30", "interval_seconds", 30.0),
        ("LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("LOG_LEVEL", "INFO", "log_level", "info"),
        ("GPUTALLY_ROCM_SMI", "/opt/rocm/bin/rocm-smi", "rocm_smi", "/opt/rocm/bin/rocm-smi"),
        ("METRICS_PATH", "/gpu", "metrics_path", "/gpu"),
        ("NODE_NAME", "gpu-1", "node_name", "gpu-1"),
        ("DCGM_EXPORTER_LISTEN", ":9401", "listen_address", ":9401"),
        ("DCGM_EXPORTER_INTERVAL", "30000", "interval_seconds", 30.0),
        ("DCGM_EXPORTER_KUBERNETES", "false", "pods", False),
    ],
)
def test_names_of_other_exporters_are_accepted(
    variable: str, value: str, field: str, expected: object
) -> None:
    assert getattr(parse(**{variable: value}), field) == expected


def test_an_empty_variable_is_ignored() -> None:
    assert parse(GPUTALLY_PORT="").port is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--interval", "soon"), "--interval: 'soon' ... a duration from 100ms to 24h"),
        (("--interval", "0"), "--interval: '0'"),
        (("--port", "70000"), "--port: '70000' ... a port from 0 to 65535"),
        (("--reader", "dcgm"), "--reader: 'dcgm' ... one of auto, nvml"),
        (("--metrics-path", "metrics"), "--metrics-path: 'metrics'"),
        (("--procfs", "/no/such"), "--procfs: '/no/such' ... a directory that exists"),
        (("--web-config", "/no/such"), "--web-config: '/no/such' ... a file"),
        (("--metrics-file", "/no/such/x.prom"), "--metrics-file: '/no/such/x.prom'"),
        (("--once", "perhaps"), "--once: 'perhaps' ... true or false"),
        (
            ("--compat", "dcgm,dgcm"),
            "--compat: 'dcgm,dgcm' ... one or more of dcgm, dcgm-4.9",
        ),
        (("--metric-prefix", "my-gpu"), "--metric-prefix: 'my-gpu' ... letters"),
        (("-c", "30s"), "--collect-interval: '30s' ... a number of milliseconds"),
        (
            ("--interval", "5s", "--collect-interval", "30000"),
            "--interval 5s ... --collect-interval 30000",
        ),
        (
            ("--web.listen-address", ":1", "-a", ":2"),
            "--address :2 ... --web.listen-address :1",
        ),
        (
            ("--pods", "false", "--kubernetes", "--node-name", "x"),
            "--kubernetes ... --pods false",
        ),
        (("--kubernetes",), "--kubernetes needs --node-name"),
        (("--kubernetes-enabled=false", "--sidecar"), "--sidecar ... --pods false"),
        (("--compat", "pod-gpu", "--metrics-path", "/gpu/metrics"), "--metrics-path cannot be /gpu/metrics"),
        (("--gpus", "4"), "--gpus is for the simulator"),
        (("--reader", "simulated", "--gpus", "0"), "--gpus: '0'"),
        (("--reader", "simulated", "--model", "voodoo2"), "--model: 'voodoo2' ... one"),
    ],
)
def test_a_wrong_value_is_named_with_the_allowed_ones(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    flag, *terms = named.split(" ... ")
    assert str(error.value).startswith(flag)
    assert missing(str(error.value), *terms) == []
    assert "\n" not in str(error.value)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^GPUTALLY_PORT: 'x'"):
        parse(GPUTALLY_PORT="x")


def test_switches_can_have_a_value() -> None:
    assert parse("--once").once
    assert not parse("--once", "false").once
    assert parse(GPUTALLY_ONCE="yes").once


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        assert 0.1 <= duration(text) <= 86400
    except ValueError as error:
        assert "duration" in str(error)


@given(st.integers(1, 86400))
def test_durations_in_every_unit_agree(seconds: int) -> None:
    assert duration(f"{seconds}") == duration(f"{seconds}s") == duration(f"{seconds * 1000}ms") == seconds


def test_every_setting_appears_in_help_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, SETTINGS)
    text = " ".join(parser.format_help().split())
    for setting in fields(Config):
        assert setting.metadata["flag"] in text
        assert setting.metadata["env"] in text
    for alias in ALIASES:
        assert all(name in text for name in (*alias.flags, alias.env))


def test_paths_are_read_as_paths(tmp_path: Path) -> None:
    assert parse("--procfs", str(tmp_path)).procfs == tmp_path
    assert parse("--metrics-file", str(tmp_path / "x.prom")).metrics_file == tmp_path / "x.prom"


def test_the_command_line_of_my_gpu_exporter_keeps_its_meaning() -> None:
    config = parse(
        "--dcgm-update-frequency=1s",
        "--process-scan-interval=10s",
        "--kubernetes-enabled=true",
        "--pod-resources-socket=/run/kubelet.sock",
        "--metric-retention=10m",
        "--metric-prefix=my_gpu_process",
        "--listen-address=:9401",
        "--metrics-path=/energy",
        "--log-level=warn",
    )
    assert config == Config(
        interval_seconds=1.0,
        pods=True,
        pod_resources_socket=Path("/run/kubelet.sock"),
        retention_seconds=600.0,
        metric_prefix="my_gpu_process",
        listen_address=":9401",
        metrics_path="/energy",
        log_level="warning",
    )
    assert config.profiles == ("process-energy",)


def test_the_command_line_of_cmpp_keeps_its_meaning(tmp_path: Path) -> None:
    log, metrics = tmp_path / "cm-purplepill.log", tmp_path / "cmpp_metrics.prom"
    files = ("--log-file", str(log), "--metrics-file", str(metrics))
    assert parse("--port", "9531", "--interval", "15", *files, "--hostname-override", "gpu-1") == Config(
        port=9531, interval_seconds=15.0, log_file=log, metrics_file=metrics, hostname_override="gpu-1"
    )


def test_the_command_line_of_dcgm_exporter_keeps_its_meaning(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.touch()
    config = parse("-a", ":9401", "-c", "1000", "-k", "--web-config-file", str(web))
    assert config == Config(listen_address=":9401", interval_seconds=1.0, pods=True, web_config=web)


def test_the_command_line_of_nvidia_gpu_exporter_keeps_its_meaning() -> None:
    config = parse(
        *("--web.listen-address=:9835", "--web.telemetry-path=/m", "--nvidia-smi-command=/opt/nvidia-smi"),
        *("--log.level=warn", "--log.format=logfmt", "--collect.interval=10s", "--collect.timeout=2s"),
    )
    assert config == Config(
        listen_address=":9835",
        metrics_path="/m",
        nvidia_smi="/opt/nvidia-smi",
        log_level="warning",
        interval_seconds=10.0,
        timeout_seconds=2.0,
    )


def test_a_flag_and_its_alias_may_have_the_same_value() -> None:
    assert parse("--interval", "30s", "--collect-interval", "30000").interval_seconds == 30


def test_a_flag_of_another_tool_takes_precedence_over_our_variable() -> None:
    assert parse("-a", ":1", GPUTALLY_LISTEN_ADDRESS=":2").listen_address == ":1"
    assert parse(DCGM_EXPORTER_LISTEN=":1", GPUTALLY_LISTEN_ADDRESS=":2").listen_address == ":2"


def test_every_alias_belongs_to_a_setting_and_no_flag_occurs_twice() -> None:
    settings = {setting.name: setting.metadata["flag"] for setting in fields(Config)}
    assert {alias.setting for alias in ALIASES} <= set(settings)
    flags = [flag for alias in ALIASES for flag in alias.flags]
    assert len({*flags, *settings.values()}) == len(flags) + len(settings)


def test_profiles_are_separated_by_commas_and_unique() -> None:
    config = parse(GPUTALLY_COMPAT="dcgm, nvidia-smi,dcgm,process-energy", GPUTALLY_METRIC_PREFIX="mine")
    assert config.profiles == ("dcgm", "nvidia-smi", "process-energy")


@given(st.text())
def test_any_text_is_a_prefix_of_metrics_or_a_value_error(text: str) -> None:
    try:
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", metric_prefix(text))
    except ValueError as error:
        assert "letters" in str(error)


@given(st.integers(100, 86_400_000))
def test_milliseconds_are_converted_to_seconds(number: int) -> None:
    assert milliseconds(str(number)) == pytest.approx(number / 1000)


@pytest.mark.parametrize("flag", ["--metrics-include", "--metrics-exclude"])
def test_an_unknown_metric_is_refused_with_the_nearest(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag}: .* 'powr'; the nearest name is power"):
        parse(flag, "xid,powr")


def test_metrics_are_a_set_with_additions_and_without_exceptions() -> None:
    config = parse("--metrics", "core", "--metrics-include", "nvlink", "--metrics-exclude", "xid,pods")
    groups = {one.group for one in config.chosen_metrics.values()}
    assert "nvlink" in groups
    assert not groups & {"xid", "pods", "modes"}


def test_single_processes_are_included_only_where_they_are_measured() -> None:
    with pytest.raises(ConfigError, match="needs --process-metrics"):
        parse("--metrics-include", "processes")
    assert parse("--metrics-include", "processes", "--process-metrics").process_metrics


def test_a_profile_may_use_every_field() -> None:
    assert "nvlink_errors" in parse("--metrics", "core").skipped_fields
    assert parse("--metrics", "core", "--compat", "dcgm").skipped_fields == frozenset()
