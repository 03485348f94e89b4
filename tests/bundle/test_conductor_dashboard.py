"""AMD conductor: AMD GPUs only."""

from pathlib import Path

from dashboards.conductor import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query


def _gpu(metric: str, gpu_of: str, **more: str) -> str:
    """GPU 0 of its vendor: on a host with both, each counts its own from 0."""
    labels = {"cluster": "c", "node": "n", "gpu": "0", "uuid": f"GPU-{gpu_of}", **more}
    written = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"gputally_gpu_{metric}{{{written}}}"


_INFO = {_gpu("info", vendor, vendor=vendor, model=vendor.upper()): always(1) for vendor in ("amd", "nvidia")}
_AMD = '{cluster="c", gpu="0", model="AMD", node="n", uuid="GPU-amd"}'


def test_an_nvidia_gpu_of_the_same_node_is_left_out(tmp_path: Path) -> None:
    series = _INFO | {
        _gpu("power_watts", "amd"): always(500),
        _gpu("power_watts", "nvidia"): always(700),
        _gpu("power_limit_watts", "amd"): always(1000),
        _gpu("up", "amd"): always(1),
        _gpu("up", "nvidia"): always(0),
    }
    assert_results(
        tmp_path,
        series,
        {
            query(DASHBOARD, "GPUs", "B"): {"{}": 0},
            query(DASHBOARD, "GPUs now", "C"): {_AMD: 500},
            query(DASHBOARD, "GPUs now", "D"): {_AMD: 0.5},
        },
    )


def test_a_link_that_is_down_does_not_count(tmp_path: Path) -> None:
    series = _INFO | {
        _gpu("xgmi_links", "amd", state="up"): always(1),
        _gpu("xgmi_links", "amd", state="down"): always(1),
    }
    labels = '{cluster="c", gpu="0", model="AMD", node="n", uuid="GPU-amd"}'
    assert_results(tmp_path, series, {query(DASHBOARD, "XGMI links up"): {labels: 1}})


def test_only_uncorrected_errors_count(tmp_path: Path) -> None:
    series = _INFO | {
        _gpu("ras_errors_total", "amd", block="umc", type="corrected"): always(9),
        _gpu("ras_errors_total", "amd", block="umc", type="uncorrected"): always(1),
        _gpu("ras_errors_total", "amd", block="gfx", type="uncorrected"): always(2),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Uncorrected errors"): {"{}": 3}})


def test_the_thermal_margin_is_to_the_critical_temperature_of_the_sensor(tmp_path: Path) -> None:
    series = _INFO | {
        _gpu("sensor_celsius", "amd", sensor="junction"): always(80),
        _gpu("sensor_critical_celsius", "amd", sensor="junction"): always(100),
        _gpu("sensor_celsius", "amd", sensor="vrsoc"): always(70),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Thermal margin"): {'{sensor="junction"}': 20}})
