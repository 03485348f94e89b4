"""A real Prometheus that scrapes."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.exporter import Exporter
from tools.servers.prometheus import Prometheus, running


def prometheus_in(directory: Path) -> AbstractContextManager[Prometheus]:
    """With the configuration that is in the directory."""
    return running(directory, directory / "prometheus.yml", directory / "data")


def prometheus_scraping_address(
    directory: Path, address: str, **settings: Any
) -> AbstractContextManager[Prometheus]:
    """It scrapes this address with these settings of a job, whether or not an exporter listens there."""
    job = {"job_name": "gputally", **settings, "static_configs": [{"targets": [address]}]}
    (directory / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))  # JSON is YAML
    return prometheus_in(directory)


def prometheus_scraping(
    exporter: Exporter, directory: Path, protocol: str, path: str = "/metrics"
) -> AbstractContextManager[Prometheus]:
    return prometheus_scraping_address(
        directory,
        exporter.address,
        scrape_interval="1s",
        metrics_path=path,
        scrape_protocols=[protocol],
        honor_labels=True,
    )
