"""Reads another exporter of the same GPUs and adds pod labels to its series. Imported only for --relay.

`upstream` is the source, by HTTP (`fetch`) or from files; `pods` finds the only pod on a device; `text`
checks lines and adds labels.
"""
