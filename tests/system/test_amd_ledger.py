"""The running exporter while the energy counter of an MI300X increases: it charges what was counted."""

from pathlib import Path

import pytest

from tests.support.amd_meters import card_directory, energy_counter, increasing_energy
from tests.support.amd_trees import log_pods, plant
from tests.support.exporter import Exporter, Samples
from tests.support.ledger_series import check_balance

WATTS = 141  # the power in the card's files
UUID = "GPU-2250f807caf2231a"
TRAIN, NOTEBOOK = ("team-b", "train-0", "main"), ("team-c", "notebook-7", "jupyter")


def shared(samples: Samples, pod: tuple[str, ...]) -> int:
    """Millijoules of a pod that shared the card."""
    joules = samples.get("gputally_pod_energy_joules_total", {}).get(("1", UUID, *pod, "shared"), 0.0)
    return round(joules * 1000)


def test_two_pods_on_one_card_while_its_energy_counter_increases(tmp_path: Path) -> None:
    host = plant("mi300x", tmp_path)
    card = card_directory(host, "0000:27:00.0")
    before = energy_counter(card)
    arguments = (
        # Long enough for several samples of occupancy in each interval, also on a busy machine.
        *("serve", "--reader", "amdgpu", "--interval", "1s"),
        *("--sysfs", str(host / "sys"), "--procfs", str(host / "proc")),
        *("--pod-logs", str(log_pods(tmp_path / "pods"))),
    )
    scrapes = 0
    with Exporter(tmp_path / "log", *arguments) as exporter:

        def enough() -> bool:
            nonlocal scrapes
            scrapes += 1
            samples = exporter.samples()
            check_balance(samples)
            return shared(samples, TRAIN) > 2 * WATTS * 1000

        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_energy_joules_total", "1") == before / 1000,
            "the ledger begins before the counter increases",
        )
        with increasing_energy({card: WATTS}):
            exporter.wait_until(enough, "two seconds' worth is charged")
        counted = energy_counter(card)
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_energy_joules_total", "1") == counted / 1000,
            "all that was counted is in the ledger",
        )
        samples = exporter.samples()
        check_balance(samples)
    assert scrapes > 2
    train, notebook = shared(samples, TRAIN), shared(samples, NOTEBOOK)
    assert train + notebook == counted - before
    assert train == pytest.approx(2 * notebook, rel=1e-3), "76 and 38 compute units"
