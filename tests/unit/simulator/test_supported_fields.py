"""A simulated NVIDIA GPU has the fields that the real GPU has, and no other."""

from dataclasses import fields
from pathlib import Path

import pytest

from gputally.metrics.catalog import GPU_METRICS
from gputally.model import Activity, Reading
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.nvidia_models import NVIDIA_MODELS
from tools.rendering.metrics_page import readers_of

ROOT = Path(__file__).parents[3]
GPM = frozenset(field.name for field in fields(Activity))
REMAPPING = frozenset({"remapped_rows", "remapped_rows_pending", "remapped_rows_failure", "remap_banks"})
RETIREMENT = frozenset({"retired_pages", "retired_pages_pending"})
ECC = frozenset({"ecc_errors", "ecc_location_errors"})
NVLINK = frozenset({"nvlink_up", "nvlink_errors", "nvlink_bytes"})
THRESHOLDS = frozenset({"temperature_slowdown_celsius", "temperature_shutdown_celsius"})
MARGIN = frozenset({"temperature_margin_celsius", "temperature_slowdown_offset_celsius"})
MEMORY_LIMIT = frozenset({"memory_temperature_limit_celsius"})
MEMORY_TEMPERATURE = frozenset({"memory_temperature_celsius"}) | MEMORY_LIMIT
FANS = frozenset({"fan_speed_ratio"})
MIG = frozenset({"mig_mode"})
RECOVERY = frozenset({"recovery_action"})
FABRIC = frozenset({"fabric_state", "fabric_status", "fabric_clique", "fabric_problem"})
ACCOUNTING = frozenset({"accounted"})
"""Off by default in the driver."""
ONLY_OTHERS = frozenset(metric.field for metric in GPU_METRICS if "nvml" not in readers_of(metric))
"""Fields that no NVIDIA reader fills."""
DATA_CENTER_PCIE = FABRIC | MEMORY_TEMPERATURE | FANS | MIG | NVLINK | GPM
GEFORCE = (
    frozenset({"clock_application_hertz"}) | FABRIC | MEMORY_TEMPERATURE | MIG | NVLINK | GPM | ECC | RECOVERY
)

ABSENT = {
    "a100": FABRIC | FANS | GPM | RETIREMENT | MARGIN,
    "a100-80gb": FABRIC | FANS | GPM | RETIREMENT | MARGIN,
    "h100": FANS | RETIREMENT | MEMORY_LIMIT | {"fabric_problem"},
    "h200": FANS | RETIREMENT | MEMORY_LIMIT | {"fabric_problem"},
    "b200": FANS | RETIREMENT | MEMORY_LIMIT | THRESHOLDS,
    "gb200": FANS | RETIREMENT | MEMORY_LIMIT | THRESHOLDS,
    "l4": DATA_CENTER_PCIE | RETIREMENT,
    "l40s": DATA_CENTER_PCIE | RETIREMENT,
    "t4": DATA_CENTER_PCIE | REMAPPING | RECOVERY | MARGIN,
    "rtx4090": GEFORCE | REMAPPING | RETIREMENT,
    "gtx1080ti": GEFORCE
    | REMAPPING
    | RETIREMENT
    | MARGIN
    | {"ecc_mode", "energy_millijoules", "jpeg_utilization_ratio", "ofa_utilization_ratio"},
}


def absent_fields(model: str) -> frozenset[str]:
    (reading,) = Engine(default_scenario(1, model), pcie_throughput=True).readings(100, since=95)
    return frozenset(field.name for field in fields(Reading) if getattr(reading, field.name) is None)


@pytest.fixture(scope="module")
def not_simulated() -> frozenset[str]:
    """Fields that no simulated GPU has: a metric may exist before the simulator has a value for it."""
    return frozenset.intersection(*map(absent_fields, NVIDIA_MODELS))


@pytest.mark.parametrize("model", NVIDIA_MODELS)
def test_a_simulated_gpu_has_the_fields_of_the_real_one_and_no_other(
    model: str, not_simulated: frozenset[str]
) -> None:
    assert absent_fields(model) - not_simulated == ABSENT[model] - not_simulated


def test_every_field_that_a_rule_or_dashboard_uses_is_simulated(not_simulated: frozenset[str]) -> None:
    unused = not_simulated - ACCOUNTING - ONLY_OTHERS
    names = {metric.name for metric in GPU_METRICS if metric.field in unused}
    generated = [*(ROOT / "helm/gputally").rglob("*.json"), *(ROOT / "alerts").rglob("*.py")]
    assert {name for name in names for file in generated if name in file.read_text()} == set()


def test_ecc_mode_is_false_where_ecc_is_off_and_absent_where_the_gpu_has_none() -> None:
    modes = [
        Engine(default_scenario(1, model)).readings(1)[0].ecc_mode for model in ("t4", "rtx4090", "gtx1080ti")
    ]
    assert modes == [True, False, None]


def test_desktop_gpus_have_no_serial_number() -> None:
    serials = {model: Engine(default_scenario(1, model)).readings(1)[0].gpu.serial for model in NVIDIA_MODELS}
    assert [model for model, serial in serials.items() if serial is None] == ["rtx4090", "gtx1080ti"]


def test_the_oldest_gpu_counts_fewer_throttle_reasons() -> None:
    (reading,) = Engine(default_scenario(1, "gtx1080ti")).readings(1)
    assert set(reading.throttle_seconds or {}) == {("sw_power_cap",), ("sync_boost",)}
