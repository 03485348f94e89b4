"""Reads another exporter of the same GPUs and puts pods on its series. Imported only for --relay.

`source` reads (HTTP by `fetch`, or files) and drops what is no valid text; `upstream` guards it as `collect`
guards a reader; `who` knows the one pod on a device; `text` writes its labels into the lines.
"""
