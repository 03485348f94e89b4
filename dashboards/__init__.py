"""Grafana dashboards as code: one module each, which defines DASHBOARD."""

from typing import Any

Json = dict[str, Any]
