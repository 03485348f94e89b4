"""`gputally whose PID...`: the owner of any process, with or without a GPU."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from gputally.attribution import PodReport, PodSource
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import index_pods
from gputally.model import Owner, Unavailable, Unknown


def whose(
    pids: Sequence[int], sources: Sequence[PodSource], procfs: Path, *, nested: bool = False
) -> dict[int, Owner | Unknown]:
    """The owners of these processes, named as far as the pod sources can be read."""
    reports: dict[str, PodReport] = {}
    for source in sources:
        try:
            reports[source.name] = source.read()
        except Unavailable:
            continue  # an owner that only this source can name is reported as unknown
        finally:
            source.close()
    found = ProcessOwners(procfs, nested=nested).find(pids, index_pods(reports))
    return {pid: one.owner for pid, one in found.items()}


def report_lines(owners: dict[int, Owner | Unknown]) -> Iterator[str]:
    return (f"{pid}: {_line(owner)}" for pid, owner in owners.items())


def _line(owner: Owner | Unknown) -> str:
    facts = {
        key: value for key, value in asdict(owner).items() if value and key not in ("kind", "name", "reason")
    }
    details = " ".join(f"{key}={value}" for key, value in facts.items())
    if isinstance(owner, Owner):
        head = "pod" if owner.kind == "pod" else owner.name
        return f"{head} {details}".rstrip()
    return f"unknown ({owner.reason}) {details}".rstrip()


def report_json(owners: dict[int, Owner | Unknown]) -> list[str]:
    rows = []
    for pid, owner in owners.items():
        kind = owner.kind if isinstance(owner, Owner) else "unknown"
        rows.append({"pid": pid, "kind": kind, **{k: v for k, v in asdict(owner).items() if v}})
    return json.dumps(rows, indent=2).split("\n")
