"""Grafana dashboards as code: one module each, which defines DASHBOARD."""
