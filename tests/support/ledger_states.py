"""States as a ledger writes them, told apart by their energy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputally.ledger.state_file import Saved, decode
from tests.support.ledger_samples import new_ledger, pod, reading, resident, settle

BOOT = "3f7a9c52-0000-4000-8000-000000000000"


def state(joules: int, *, owners: int = 1, boot_id: str = BOOT) -> Mapping[str, Any]:
    """Of one GPU that used so many joules, and its pods."""
    ledger = new_ledger(boot_id=boot_id)
    residents = [resident(pid, pod(f"train-{pid}"), busy=1) for pid in range(owners)]
    settle(ledger, 0, reading(0), residents)
    settle(ledger, 5, reading(joules), residents)
    return ledger.state()


def joules_in(saved: Saved) -> int:
    return int(saved.state["gpus"]["GPU-a"]["meter"]["total"]) // 1000


def held(path: Path) -> int:
    """The joules in the file."""
    return joules_in(decode(path.read_bytes()))
