"""Generates the chart's schema, README and plain defaults from values.yaml, and checks it."""
