"""Writes the metrics to a file for node_exporter's textfile collector."""

import os
from pathlib import Path


def write_metrics_file(path: Path, body: bytes) -> None:
    """Replace the file atomically: a reader gets the old metrics or the new ones, never a part."""
    # The collector reads *.prom, so the unfinished file must not match.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(body)
        unfinished.chmod(0o644)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
