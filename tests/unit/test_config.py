"""Settings: one declaration for flag, environment variable, default and help."""

import argparse
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.config import Config, ConfigError, OneLineParser, add_flags, read_config
from gputally.values import duration


def parse(*arguments: str, **environment: str) -> Config:
    parser = OneLineParser(prog="gputally serve")
    add_flags(parser)
    return read_config(parser.parse_args(arguments), environment)


def test_defaults_are_those_of_the_dataclass() -> None:
    assert parse() == Config()


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_default() -> None:
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
    ],
)
def test_names_that_other_exporters_use_work_too(
    variable: str, value: str, field: str, expected: object
) -> None:
    assert getattr(parse(**{variable: value}), field) == expected


def test_an_empty_variable_is_no_setting() -> None:
    assert parse(GPUTALLY_PORT="").port is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--interval", "soon"), "--interval: 'soon' is not allowed; it takes a duration from 100ms to 24h"),
        (("--interval", "0"), "--interval: '0'"),
        (("--port", "70000"), "--port: '70000' is not allowed; it takes a port from 0 to 65535"),
        (("--reader", "dcgm"), "--reader: 'dcgm' is not allowed; it takes one of auto, nvml"),
        (("--metrics-path", "metrics"), "--metrics-path: 'metrics'"),
        (("--procfs", "/no/such"), "--procfs: '/no/such' is not allowed; it takes a directory that exists"),
        (("--web-config", "/no/such"), "--web-config: '/no/such' is not allowed; it takes a file"),
        (("--metrics-file", "/no/such/x.prom"), "--metrics-file: '/no/such/x.prom'"),
        (("--once", "perhaps"), "--once: 'perhaps' is not allowed; it takes true or false"),
        (("--gpus", "4"), "--gpus is for the simulator"),
        (("--reader", "simulated", "--gpus", "0"), "--gpus: '0'"),
        (("--reader", "simulated", "--model", "voodoo2"), "--model: 'voodoo2' is not allowed; it takes one"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    assert str(error.value).startswith(named)
    assert "\n" not in str(error.value)


def test_a_wrong_variable_is_named_as_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^GPUTALLY_PORT: 'x'"):
        parse(GPUTALLY_PORT="x")


def test_switches_can_be_given_bare_or_with_a_value() -> None:
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
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    for setting in fields(Config):
        assert setting.metadata["flag"] in text
        assert setting.metadata["env"][0] in text


def test_paths_are_read_as_paths(tmp_path: Path) -> None:
    assert parse("--procfs", str(tmp_path)).procfs == tmp_path
    assert parse("--metrics-file", str(tmp_path / "x.prom")).metrics_file == tmp_path / "x.prom"
