"""The state file: whatever is in it, it is refused, or resumed to a ledger that adds up and can be served."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

from gputally.ledger.state_file import Rejected, Saved, decode, encode
from gputally.metrics.exposition import render_text
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Gpu, Reading, Snapshot
from tests.support.exporter import parse_samples
from tests.support.ledger_samples import assert_balanced, new_ledger, settle
from tests.support.ledger_states import state


def one_input(data: bytes) -> None:
    """`data` as the whole file, and as the content of a file with a valid checksum."""
    for document in (data, _with_checksum(data)):
        with suppress(Rejected):
            resume_all(decode(document).state)


def signed(state: Mapping[str, Any]) -> bytes:
    """The content of a file with this state."""
    return json.dumps(Saved(state, 1.0, 1)._asdict()).encode()


def resume_all(state: Mapping[str, Any]) -> None:
    """Resumes every GPU, and serves and saves the result."""
    ledger = new_ledger(boot_id=state["boot_id"], resume=state)
    readings = [
        Reading(
            gpu=Gpu(uuid, index, "nvidia", "H100"),
            energy_millijoules=gpu["meter"]["counter"] + 1000,
            power_watts=None,
            processes=(),
        )
        for index, (uuid, gpu) in enumerate(state["gpus"].items())
    ]
    for at in (0, 5, 10):
        settle(ledger, at, readings)
        assert_balanced(ledger)
    snapshot = Snapshot(
        taken_at_seconds=1,
        age_seconds=0,
        readings=tuple(readings),
        sources=(),
        gpu_ledgers=ledger.gpu_ledgers(),
        charges=ledger.charges(),
    )
    text = render_text(build_families(snapshot, read_exporter_facts("1", "node-1"))).decode()
    assert all(value >= 0 for values in parse_samples(text).values() for value in values.values())
    assert decode(encode(Saved(ledger.state(), 1.0, 1))).state == ledger.state()


def _with_checksum(content: bytes) -> bytes:
    return b'{"format":"gputally ledger","version":2,"crc32":"%08x","content":%b}\n' % (
        crc32(content),
        content,
    )


CORPUS = [
    encode(Saved(state(1000, owners=3), 1.0, 1)),
    signed(state(0)),
    b"{}",
]
