"""A real Prometheus scrapes the real exporter, in either format."""

from pathlib import Path

import pytest

from tests.support.exporter import Exporter
from tests.support.prometheus import prometheus_scraping


@pytest.mark.parametrize("protocol", ["PrometheusText0.0.4", "OpenMetricsText1.0.0"])
def test_prometheus_stores_every_series_that_is_served(protocol: str, tmp_path: Path) -> None:
    with (
        Exporter(tmp_path / "log", "simulate", "--gpus", "8", "--process-metrics") as exporter,
        prometheus_scraping(exporter, tmp_path, protocol) as prometheus,
    ):
        prometheus.wait_for('gputally_gpu_up{job="gputally"}')
        served = exporter.samples()
        for name, values in served.items():
            stored = prometheus.wait_for(f'count({{__name__="{name}",job="gputally"}})')
            assert int(stored[0]["value"][1]) >= len(values), name
        (target,) = prometheus.api("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        metadata = prometheus.api("metadata")
        assert metadata["gputally_gpu_power_watts"][0]["type"] == "gauge"
        counter = metadata.get("gputally_gpu_energy_joules_total") or metadata["gputally_gpu_energy_joules"]
        assert counter[0]["type"] == "counter"
