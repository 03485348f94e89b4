"""`gputally whose PID...`: whose process is it, for any process, without any GPU."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gputally.attribution import Knowledge, KnowledgeSource
from gputally.attribution.join import Whose, join_knowledge
from gputally.attribution.owners import Owners
from gputally.model import Owner, Unavailable


def whose(pids: Sequence[int], sources: Sequence[KnowledgeSource], procfs: Path) -> dict[int, Whose]:
    """Owners of these processes, as far as the sources know them."""
    known: dict[str, Knowledge] = {}
    for source in sources:
        try:
            known[source.name] = source.read()
        except Unavailable:
            continue  # what it would have known is missing from the answer, which then says so
        finally:
            source.close()
    found = Owners(procfs).find(pids, join_knowledge(known))
    return {pid: one.owner for pid, one in found.items()}


def answer_text(owners: dict[int, Whose]) -> str:
    return "\n".join(f"{pid}: {_words(owner)}" for pid, owner in owners.items())


def _words(owner: Whose) -> str:
    facts = {
        key: value for key, value in asdict(owner).items() if value and key not in ("kind", "name", "reason")
    }
    details = " ".join(f"{key}={value}" for key, value in facts.items())
    if isinstance(owner, Owner):
        head = "pod" if owner.kind == "pod" else owner.name
        return f"{head} {details}".rstrip()
    return f"unknown ({owner.reason}) {details}".rstrip()


def answer_json(owners: dict[int, Whose]) -> str:
    rows = []
    for pid, owner in owners.items():
        kind = owner.kind if isinstance(owner, Owner) else "unknown"
        rows.append({"pid": pid, "kind": kind, **{k: v for k, v in asdict(owner).items() if v}})
    return json.dumps(rows, indent=2)
