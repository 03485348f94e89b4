"""Generates files from other files of the repository: pages, the chart's parts, manifests."""
