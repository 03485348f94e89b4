"""The dashboard of AMD's machines: their GPUs and no others."""

from pathlib import Path

from dashboards.conductor import DASHBOARD
from tests.bundle.panel_cases import always, assert_answers, query


def _gpu(metric: str, whose: str, **more: str) -> str:
    """GPU 0 of its vendor: on a host with both, each counts its own from 0."""
    labels = {"cluster": "c", "node": "n", "gpu": "0", "uuid": f"GPU-{whose}", **more}
    written = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"gputally_gpu_{metric}{{{written}}}"


_INFO = {_gpu("info", vendor, vendor=vendor, model=vendor.upper()): always(1) for vendor in ("amd", "nvidia")}
_AMD = '{cluster="c", gpu="0", model="AMD", node="n", uuid="GPU-amd"}'


def test_a_card_of_nvidia_in_the_same_machine_is_left_out(tmp_path: Path) -> None:
    said = _INFO | {
        _gpu("power_watts", "amd"): always(500),
        _gpu("power_watts", "nvidia"): always(700),
        _gpu("power_limit_watts", "amd"): always(1000),
        _gpu("up", "amd"): always(1),
        _gpu("up", "nvidia"): always(0),
    }
    assert_answers(
        tmp_path,
        said,
        {
            query(DASHBOARD, "GPUs that answer", "B"): {"{}": 0},
            query(DASHBOARD, "GPUs", "C"): {_AMD: 500},
            query(DASHBOARD, "GPUs", "D"): {_AMD: 0.5},
        },
    )


def test_a_link_that_went_down_is_missed(tmp_path: Path) -> None:
    said = _INFO | {
        _gpu("xgmi_up", "amd", link="0"): always(1),
        _gpu("xgmi_up", "amd", link="1"): always(0),
    }
    assert_answers(tmp_path, said, {query(DASHBOARD, "Links up"): {'{gpu="0", node="n"}': 1}})


def test_only_errors_that_were_not_corrected_are_alarming(tmp_path: Path) -> None:
    said = _INFO | {
        _gpu("ras_errors_total", "amd", block="umc", type="corrected"): always(9),
        _gpu("ras_errors_total", "amd", block="umc", type="uncorrected"): always(1),
        _gpu("ras_errors_total", "amd", block="gfx", type="uncorrected"): always(2),
    }
    assert_answers(tmp_path, said, {query(DASHBOARD, "Uncorrected"): {"{}": 3}})


def test_the_nearest_sensor_to_its_limit_counts(tmp_path: Path) -> None:
    said = _INFO | {
        _gpu("sensor_celsius", "amd", sensor="junction"): always(80),
        _gpu("sensor_critical_celsius", "amd", sensor="junction"): always(100),
        _gpu("sensor_celsius", "amd", sensor="vrsoc"): always(70),
    }
    assert_answers(tmp_path, said, {query(DASHBOARD, "Degrees left"): {'{sensor="junction"}': 20}})
