"""tools/bench: compares the costs of exporters on the driver stand-in."""
