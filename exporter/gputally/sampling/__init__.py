"""Runs every source, guarded, and makes one `Snapshot` of the results."""
