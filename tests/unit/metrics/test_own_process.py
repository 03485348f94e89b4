"""What the exporter says about itself and its machine."""

from pathlib import Path

from gputally.metrics.own_process import read_exporter_facts


def test_the_boot_time_is_that_of_the_kernel() -> None:
    (line,) = [one for one in Path("/proc/stat").read_text().splitlines() if one.startswith("btime ")]
    found = read_exporter_facts("1", "node-1").machine.boot_time_seconds
    assert found is not None
    assert abs(found - int(line.split()[1])) <= 2  # both are rounded
    assert found == int(found), "whole seconds do not jitter"
