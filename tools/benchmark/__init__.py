"""What exporters cost, measured side by side on the driver stand-in; see tools/bench."""
