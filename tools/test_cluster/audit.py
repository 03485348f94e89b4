"""What the accounts of pods asked the API server for, and whether they got it: from its audit log."""

import http
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch that goes on is answered, and not yet complete.
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One kind of request."""

    verb: str
    resource: str
    refused: bool


def policy_file(folder: Path) -> Path:
    return folder / "audit.yaml"


def log_file(folder: Path) -> Path:
    return folder / "audit.log"


def asked(folder: Path, namespace: str, account: str) -> set[Asked]:
    """What this account has asked for so far, in the cluster whose folder it is."""
    user = f"system:serviceaccount:{namespace}:{account}"
    found = set()
    # The last line may be one that is being written.
    for line in log_file(folder).read_text().split("\n")[:-1]:
        event = json.loads(line)
        if event["user"]["username"] == user and "objectRef" in event:
            code = event.get("responseStatus", {}).get("code")
            found.add(Asked(event["verb"], event["objectRef"]["resource"], code == http.HTTPStatus.FORBIDDEN))
    return found
