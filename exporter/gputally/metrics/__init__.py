"""From a `Snapshot` to what Prometheus reads: `catalog` -> `families` -> `exposition`."""
