"""Queries that were written for other exporters, asked of a real Prometheus that scrapes ours."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.exporter import Exporter
from tests.support.prometheus import prometheus_scraping_address
from tools.servers.prometheus import Prometheus

GPUS = {"0", "1", "2"}
SCENARIO = """
gpus = 3
model = "{model}"

[[workload]]
shape = "training"
gpus = [0]
pod = "ml/training-job"

[[workload]]
shape = "inference"
gpus = [0]
load = "50%"
pod = "ml/training-job-123"

[[workload]]
shape = "training"
gpus = [1]
pod = "vision/finetune"
"""
"""Two pods on GPU 0, one on GPU 1, none on GPU 2."""

DASHBOARD_12239_PER_GPU = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
    "avg by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP)",
    "max by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP)",
)
DASHBOARD_12239_TOTALS = {
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})': "avg(gputally_gpu_temperature_celsius)",
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})': "sum(gputally_gpu_power_watts)",
}

DASHBOARD_14574 = (
    'nvidia_smi_gpu_info{uuid="$gpu"}',
    'nvidia_smi_pstate{uuid="$gpu"}',
    'nvidia_smi_temperature_gpu{uuid="$gpu"}',
    'nvidia_smi_fan_speed_ratio{uuid="$gpu"}',
    'nvidia_smi_utilization_gpu_ratio{uuid="$gpu"}',
    'nvidia_smi_utilization_memory_ratio{uuid="$gpu"}',
    'nvidia_smi_memory_used_bytes{uuid="$gpu"}',
    'nvidia_smi_memory_used_bytes{uuid="$gpu"} / nvidia_smi_memory_total_bytes{uuid="$gpu"}',
    'nvidia_smi_power_draw_watts{uuid="$gpu"}',
    'nvidia_smi_power_draw_watts{uuid="$gpu"} / nvidia_smi_power_default_limit_watts{uuid="$gpu"}',
    'nvidia_smi_power_draw_watts{uuid="$gpu"} / nvidia_smi_enforced_power_limit_watts{uuid="$gpu"}',
    'nvidia_smi_power_draw_watts{uuid="$gpu"} / nvidia_smi_power_limit_watts{uuid="$gpu"}',
    'rate(nvidia_smi_energy_joules_total{uuid="$gpu"}[1m])',
    'sum(increase(nvidia_smi_energy_joules_total{uuid="$gpu"}[24h])) / 3.6e6',
    'nvidia_smi_compute_mode{uuid="$gpu"}',
    'nvidia_smi_clocks_current_graphics_clock_hz{uuid="$gpu"}',
    'nvidia_smi_clocks_current_graphics_clock_hz{uuid="$gpu"}'
    ' / nvidia_smi_clocks_max_graphics_clock_hz{uuid="$gpu"}',
    'nvidia_smi_clocks_current_memory_clock_hz{uuid="$gpu"}',
    'nvidia_smi_clocks_current_memory_clock_hz{uuid="$gpu"}'
    ' / nvidia_smi_clocks_max_memory_clock_hz{uuid="$gpu"}',
    'nvidia_smi_clocks_current_sm_clock_hz{uuid="$gpu"}',
    'nvidia_smi_clocks_current_video_clock_hz{uuid="$gpu"}',
    *(
        f'nvidia_smi_clocks_{spelling}_reasons_{reason}{{uuid="$gpu"}}'
        for spelling in ("event", "throttle")
        for reason in (
            "gpu_idle",
            "applications_clocks_setting",
            "sw_power_cap",
            "sw_thermal_slowdown",
            "hw_thermal_slowdown",
            "hw_power_brake_slowdown",
            "sync_boost",
        )
    ),
)

PROCESS_ENERGY = (
    "rate(my_gpu_process_energy_joules[1m])",
    'increase(my_gpu_process_energy_joules{pod="training-job"}[1h])',
    'rate(my_gpu_process_energy_joules{namespace="ml"}[1m])',
    "sum(rate(my_gpu_process_energy_joules[1m]))",
    "sum by (namespace) (rate(my_gpu_process_energy_joules[5m]))",
    'increase(my_gpu_process_energy_joules{pod="training-job-123"}[1h])',
    'increase(my_gpu_process_energy_joules{pod="training-job-123"}[1h]) / 3600000',
    "(increase(my_gpu_process_energy_joules[1h]) / 3600000) * 0.10",
    "my_gpu_process_sm_utilization_ratio / rate(my_gpu_process_energy_joules[1m])",
    "topk(10, rate(my_gpu_process_energy_joules[5m]))",
    "sum(my_gpu_process_active)",
    "sum by (namespace) (my_gpu_process_active)",
)

OPENCOST_USE = (
    'avg(avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=""}[1m])) by (container, pod, namespace)',
    'max(max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=""}[1m])) by (container, pod, namespace)',
)
OPENCOST_CARD = (
    'avg(avg_over_time(DCGM_FI_DEV_DEC_UTIL{container!=""}[1m]))'
    " by (container, pod, namespace, device, modelName, UUID)"
)


@contextmanager
def scraped(directory: Path, profile: str, model: str = "h100") -> Iterator[Prometheus]:
    """A Prometheus that has two scrapes or more of an exporter with that profile."""
    scenario = directory / "scenario.toml"
    scenario.write_text(SCENARIO.format(model=model))
    began = str(time.time() - 600)  # by now they work
    arguments = (
        "--scenario",
        str(scenario),
        "--scenario-start",
        began,
        "--interval",
        "1s",
        "--compat",
        profile,
    )
    with (
        Exporter(directory / "log", "simulate", *arguments) as exporter,
        prometheus_scraping_address(directory, exporter.address, scrape_interval="500ms") as prometheus,
    ):
        prometheus.wait_for("count(sum by (pod) (rate(gputally_pod_energy_joules_total[1m])) > 0) == 3")
        yield prometheus


def values(answer: list[dict[str, Any]], *labels: str) -> dict[tuple[str, ...], float]:
    """The answer by these labels, which must tell its series apart."""
    found = {
        tuple(entry["metric"].get(label, "") for label in labels): float(entry["value"][1])
        for entry in answer
    }
    assert len(found) == len(answer)
    return found


def label_values(prometheus: Prometheus, series: str, label: str) -> list[str]:
    """As Grafana asks for the choices of a variable."""
    found: list[str] = prometheus.api(f"label/{label}/values", **{"match[]": series})
    return found


def fill_in(query: str, choices: dict[str, list[str]]) -> str:
    """As Grafana does it for "All"."""
    for variable, chosen in choices.items():
        query = query.replace(f"${variable}", "(" + "|".join(v.replace(".", r"\\.") for v in chosen) + ")")
    return query


def test_every_panel_of_dashboard_12239_shows_every_gpu(tmp_path: Path) -> None:
    with scraped(tmp_path, "dcgm") as prometheus:
        choices = {
            variable: label_values(prometheus, "DCGM_FI_DEV_GPU_TEMP", variable)
            for variable in ("instance", "gpu")
        }
        assert len(choices["instance"]) == 1
        for query in DASHBOARD_12239_PER_GPU:
            answer = prometheus.wait_for(fill_in(query, choices))
            assert {entry["metric"]["gpu"] for entry in answer} == GPUS, query
        for query, ours in DASHBOARD_12239_TOTALS.items():
            prometheus.wait_for(f"({fill_in(query, choices)}) == ({ours}) > 0")


def test_with_dcgm_names_each_pod_of_a_shared_gpu_has_its_own_values(tmp_path: Path) -> None:
    with scraped(tmp_path, "dcgm") as prometheus:
        memory = values(prometheus.wait_for('DCGM_FI_DEV_FB_USED{gpu="0"}'), "namespace", "pod", "container")
        assert set(memory) == {("ml", "training-job", "main"), ("ml", "training-job-123", "main")}
        assert len(set(memory.values())) == 2
        prometheus.wait_for(
            'sum(DCGM_FI_DEV_FB_USED{gpu="0"}) * 2^20 == sum(gputally_pod_memory_used_bytes{gpu="0"})'
        )
        temperature = values(prometheus.wait_for('DCGM_FI_DEV_GPU_TEMP{gpu="0"}'), "pod")
        assert set(temperature) == {("",)}


def test_every_field_of_dashboard_14574_exists_for_every_gpu(tmp_path: Path) -> None:
    # A card with a fan.
    with scraped(tmp_path, "nvidia-smi", "rtx4090") as prometheus:
        assert label_values(prometheus, "nvidia_smi_index", "job") == ["gputally"]
        gpus = label_values(prometheus, 'nvidia_smi_index{job="gputally"}', "uuid")
        assert len(gpus) == len(GPUS)
        for gpu in gpus:
            for query in DASHBOARD_14574:
                assert len(prometheus.wait_for(query.replace("$gpu", gpu))) == 1, query


def test_every_example_query_of_my_gpu_exporter_has_a_plausible_result(tmp_path: Path) -> None:
    with scraped(tmp_path, "process-energy") as prometheus:
        for query in PROCESS_ENERGY:
            answers = [float(entry["value"][1]) for entry in prometheus.wait_for(query)]
            assert all(math.isfinite(answer) and answer >= 0 for answer in answers), (query, answers)
        prometheus.wait_for("count(rate(my_gpu_process_energy_joules[1m]) > 0) == 3")
        running = values(prometheus.wait_for("sum by (namespace) (my_gpu_process_active)"), "namespace")
        assert running == {("ml",): 2, ("vision",): 1}
        shared = values(prometheus.wait_for('my_gpu_process_energy_joules{gpu="0"}'), "pod")
        assert set(shared) == {("training-job",), ("training-job-123",)}
        assert len(set(shared.values())) == 2
        prometheus.wait_for(
            'sum(my_gpu_process_energy_joules{gpu="0"}) <= sum(gputally_gpu_energy_joules_total{gpu="0"})'
        )


def test_opencost_gets_the_use_of_every_container_and_its_gpu(tmp_path: Path) -> None:
    pods = {("ml", "training-job"), ("ml", "training-job-123"), ("vision", "finetune")}
    with scraped(tmp_path, "opencost") as prometheus:
        for query in OPENCOST_USE:
            used = values(prometheus.wait_for(query), "namespace", "pod")
            assert set(used) == pods, query
            assert all(0 < share <= 1 for share in used.values()), (query, used)
        cards = [entry["metric"] for entry in prometheus.wait_for(OPENCOST_CARD)]
        assert {(card["namespace"], card["pod"]) for card in cards} == pods
        assert all(card["device"] and card["modelName"] and card["UUID"] for card in cards)
