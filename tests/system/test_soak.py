"""The soak in short: every fault and every restart once, audited as in an hour of `tools/soak`."""

from pathlib import Path

from tools.soaking.faults import FAULTS, RESTARTS
from tools.soaking.soak import Soak

SEED = 21


def test_no_fault_loses_a_joule_or_charges_the_wrong_owner(tmp_path: Path) -> None:
    with Soak(tmp_path, SEED, retention_seconds=3) as soak:
        for fault in (*FAULTS, *RESTARTS):
            soak.round(fault)
        soak.warm_up()
    assert soak.failures == []
    assert (soak.lost, dict(soak.wrong)) == (0, {})
    assert soak.scrapes.answered > 0
    assert set(soak.faults) >= {*FAULTS, *RESTARTS}
