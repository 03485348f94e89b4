"""Whether Docker or Podman can start the stack from images instead of building it."""

import shutil
import subprocess

_SECONDS = 5.0
COMPOSE_FILE = "compose.yaml"


def compose_command() -> str:
    """`docker compose` or `podman compose`, if its engine responds; else empty."""
    for engine in ("docker", "podman"):
        if shutil.which(engine) and _succeeds(engine, "info") and _succeeds(engine, "compose", "version"):
            return f"{engine} compose"
    return ""


def _succeeds(*command: str) -> bool:
    try:
        return not subprocess.run(command, check=False, capture_output=True, timeout=_SECONDS).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
