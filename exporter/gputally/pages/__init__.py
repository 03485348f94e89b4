"""What the exporter serves at each path: metrics, readiness and the landing page."""
