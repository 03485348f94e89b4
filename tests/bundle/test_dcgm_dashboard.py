"""GPU Monitoring (DCGM): nvidia-smi fills in values that DCGM lacks, and only those."""

from pathlib import Path

from dashboards.dcgm import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query

_TARGET = 'cluster="c", job="j", instance="10.0.0.7:9400"'


def _dcgm(field: str, gpu: int, **more: str) -> str:
    extra = "".join(f', {name}="{value}"' for name, value in more.items())
    return f'DCGM_FI_DEV_{field}{{{_TARGET}, Hostname="n", gpu="{gpu}", UUID="GPU-{gpu}"{extra}}}'


def _smi(metric: str, gpu: int) -> str:
    return f'nvidia_smi_{metric}{{{_TARGET}, uuid="{gpu}", gpu_id="{gpu}"}}'


def _result(host: str, gpu: int) -> str:
    return f'{{Hostname="{host}", cluster="c", gpu="{gpu}", instance="10.0.0.7:9400"}}'


def test_nvidia_smi_fills_in_missing_values_without_duplicates(tmp_path: Path) -> None:
    series = {
        _dcgm("POWER_USAGE", 0): always(300),
        _smi("power_usage_watts", 0): always(301),
        _smi("power_usage_watts", 1): always(200),
        _dcgm("GPU_TEMP", 0): always(60),
        _smi("temperature_celsius", 0): always(61),
    }
    assert_results(
        tmp_path,
        series,
        {
            query(DASHBOARD, "Hottest GPU"): {"{}": 60},
            query(DASHBOARD, "Temperature"): {_result("n", 0): 60},
            query(DASHBOARD, "GPUs"): {"{}": 1},
            query(DASHBOARD, "Memory clock"): {},
        },
    )
    (tmp_path / "power").mkdir()
    power = query(DASHBOARD, "Power by GPU")
    assert_results(tmp_path / "power", series, {power: {_result("n", 0): 300, _result("10.0.0.7", 1): 200}})


def test_the_pods_of_a_gpu_are_summed_up_to_100_percent(tmp_path: Path) -> None:
    series = {
        _dcgm("GPU_UTIL", 0, namespace="ml", pod="a"): always(30),
        _dcgm("GPU_UTIL", 0, namespace="ml", pod="b"): always(40),
        _dcgm("GPU_UTIL", 1, namespace="ml", pod="c"): always(100),
        _dcgm("GPU_UTIL", 1, namespace="ml", pod="d"): always(100),
    }
    utilization = query(DASHBOARD, "GPU utilisation (DCGM)")
    assert_results(tmp_path, series, {utilization: {_result("n", 0): 70, _result("n", 1): 100}})


def test_memory_is_in_bytes_from_either_exporter(tmp_path: Path) -> None:
    series = {
        _dcgm("FB_USED", 0): always(3),
        f'nvidia_smi_memory_used_bytes{{{_TARGET}, uuid="b"}}': always(1000),
        f'nvidia_smi_gpu_info{{{_TARGET}, uuid="b", index="1"}}': always(1),
    }
    memory = query(DASHBOARD, "Memory by GPU")
    assert_results(tmp_path, series, {memory: {_result("n", 0): 3 * 1024**2, _result("10.0.0.7", 1): 1000}})


def test_only_exporters_of_jobs_that_report_gpus_can_be_down(tmp_path: Path) -> None:
    series = {
        _dcgm("GPU_TEMP", 0): always(60),
        f"up{{{_TARGET}}}": always(1),
        'up{cluster="c", job="j", instance="10.0.0.8:9400"}': always(0),
        'up{cluster="c", job="other", instance="10.0.0.9:80"}': always(0),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Exporters down"): {"{}": 1}})
