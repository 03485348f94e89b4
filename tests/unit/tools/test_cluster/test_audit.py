"""What accounts of pods asked for is read from the API server's log."""

import json
from pathlib import Path
from typing import Any

from tools.test_cluster import audit
from tools.test_cluster.audit import Asked


def event(account: str, verb: str, code: int, **more: Any) -> str:
    about = {
        "user": {"username": f"system:serviceaccount:{account}"},
        "verb": verb,
        "objectRef": {"resource": "pods"},
        "responseStatus": {"code": code},
    }
    return json.dumps(about | more) + "\n"


def test_each_kind_of_request_of_one_account_has_its_response(tmp_path: Path) -> None:
    audit.log_file(tmp_path).write_text(
        event("a:exporter", "list", 200)
        + event("a:exporter", "list", 200)
        + event("a:exporter", "watch", 403)
        + event("a:other", "delete", 200)
        + event("b:exporter", "create", 200)
        + event("a:exporter", "get", 404, objectRef={"resource": "nodes"})
    )

    assert audit.asked(tmp_path, "a", "exporter") == {
        Asked("list", "pods", refused=False),
        Asked("watch", "pods", refused=True),
        Asked("get", "nodes", refused=False),
    }


def test_other_paths_and_incomplete_lines_are_omitted(tmp_path: Path) -> None:
    page = json.loads(event("a:exporter", "get", 200))
    del page["objectRef"]
    half = event("a:exporter", "list", 200)[:40]
    audit.log_file(tmp_path).write_text(json.dumps(page) + "\n" + half)

    assert audit.asked(tmp_path, "a", "exporter") == set()
