"""The exporters under comparison: GPUTally, its peers, the plain script and the static server."""

import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tools import ROOT, Failed
from tools.dependencies import programs

_HERE = Path(__file__).parent


class Role(Enum):
    """The role of a contender in the targets."""

    OURS = "ours"
    PEER = "peer"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Contender:
    """An exporter and its command, in which `{port}` and `{interval}` are filled in."""

    name: str
    what: str
    role: Role
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def samples_on_its_own(self) -> bool:
        """Whether it samples the GPUs at a configurable interval, independent of scrapes."""
        return any("{interval}" in word for word in self.command)

    def started_as(self, port: int, interval_seconds: float) -> list[str]:
        return [word.format(port=port, interval=f"{interval_seconds:g}") for word in self.command]


OURS = Contender(
    "gputally",
    "this exporter, `serve --reader nvml`",
    Role.OURS,
    (
        *(sys.executable, "-m", "gputally", "serve", "--reader", "nvml", "--log-level", "error"),
        *("--listen-address", "127.0.0.1:{port}", "--interval", "{interval}s"),
    ),
    {"PYTHONPATH": str(ROOT / "exporter")},
)
PLAIN = Contender(
    "plain-script",
    "prometheus_client + pynvml, 27 values per GPU, read at every scrape",
    Role.PEER,
    (sys.executable, str(_HERE / "plain_exporter.py"), "{port}"),
)
ALL_SMI = Contender(
    "all-smi",
    "all-smi `api` (Rust)",
    Role.PEER,
    ("all-smi", "api", "--port", "{port}", "--interval", "{interval}"),
    # By default it logs every request.
    {"RUST_LOG": "error"},
)
# Peers that tools/programs installs.
_PINNED = (
    ALL_SMI,
    Contender(
        "nvitop-exporter",
        "nvitop-exporter (Python)",
        Role.PEER,
        ("nvitop-exporter", "--port", "{port}", "--interval", "{interval}"),
    ),
)
# Peers that no package registry has: used if they are on PATH.
_ON_PATH = (
    Contender(
        "nvidia_gpu_exporter",
        "nvidia_gpu_exporter (Go), its default: nvidia-smi at every scrape",
        Role.PEER,
        ("nvidia_gpu_exporter", "--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    ),
    Contender(
        "nvidia_gpu_prometheus_exporter",
        "nvidia_gpu_prometheus_exporter (Go), NVML at every scrape",
        Role.PEER,
        ("nvidia_gpu_prometheus_exporter", "-web.listen-address=127.0.0.1:{port}"),
    ),
    Contender(
        "dcgm-exporter",
        "dcgm-exporter (Go, embedded DCGM)",
        Role.PEER,
        ("dcgm-exporter", "--address=127.0.0.1:{port}", "--collect-interval={interval}000"),
    ),
    Contender(
        "gpuwatch",
        "gpuwatch (Python, nvidia-smi)",
        Role.PEER,
        ("gpuwatch", "--port", "{port}"),
    ),
)
NAMES = (OURS.name, "static-bytes", PLAIN.name, *(c.name for c in (*_PINNED, *_ON_PATH)))


def floor(body: Path) -> Contender:
    """A server of the bytes in that file."""
    return Contender(
        "static-bytes",
        "the floor: an asyncio server that sends a stored response of GPUTally and does nothing else",
        Role.FLOOR,
        (sys.executable, str(_HERE / "static_server.py"), "{port}", str(body)),
    )


def find_peers(only: Collection[str]) -> tuple[list[Contender], dict[str, str]]:
    """The installed peers, and the reasons why others are missing; `only` names the peers to use, or is
    empty.
    """
    peers: list[Contender] = []
    missing: dict[str, str] = {}
    for peer in (PLAIN, *_PINNED, *_ON_PATH):
        if only and peer.name not in only:
            continue
        program: str | None = peer.command[0]
        if peer in _PINNED:
            try:
                program = str(programs.path(peer.command[0]))
            except Failed as failure:
                missing[peer.name] = str(failure).splitlines()[0]
                continue
        elif peer in _ON_PATH:
            program = shutil.which(peer.command[0])
        if program is None:
            missing[peer.name] = "not on PATH"
            continue
        peers.append(
            Contender(peer.name, peer.what, peer.role, (program, *peer.command[1:]), peer.environment)
        )
    return peers, missing
