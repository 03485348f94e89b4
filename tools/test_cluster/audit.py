"""The requests of pods' accounts to the API server, from its audit log."""

import http
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A running watch has a response that is not complete.
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One kind of request."""

    verb: str
    resource: str
    refused: bool


def policy_file(directory: Path) -> Path:
    return directory / "audit.yaml"


def log_file(directory: Path) -> Path:
    return directory / "audit.log"


def asked(directory: Path, namespace: str, account: str) -> set[Asked]:
    """The requests of this account so far, in the cluster of this directory."""
    user = f"system:serviceaccount:{namespace}:{account}"
    found = set()
    # The last line may be incomplete.
    for line in log_file(directory).read_text().split("\n")[:-1]:
        event = json.loads(line)
        if event["user"]["username"] == user and "objectRef" in event:
            code = event.get("responseStatus", {}).get("code")
            found.add(Asked(event["verb"], event["objectRef"]["resource"], code == http.HTTPStatus.FORBIDDEN))
    return found
