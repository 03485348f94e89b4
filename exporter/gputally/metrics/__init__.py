"""`Snapshot` -> Prometheus text: `catalog` -> `families` -> `exposition`."""
