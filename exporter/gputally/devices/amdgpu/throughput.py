"""PCIe throughput from the file pcie_bw, whose every read takes a second: all cards are asked at once."""

import re
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gputally.devices.amdgpu.files import Errors, Files
from gputally.model import Labelled

_FIELD = "pcie_throughput_bytes_per_second"
_PACKETS = re.compile(r"([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,5})")


def read_throughput(folders: Iterable[Path], errors: Errors) -> dict[Path, Labelled]:
    """By device folder, of the cards that can tell; one that sleeps is not woken up."""
    measured: list[tuple[Path, Labelled | None, Errors]] = []

    def measure(folder: Path) -> None:
        files = Files(folder, Counter())
        measured.append((folder, None if files.asleep() else _read(files), files.errors))

    # Daemons, so that a card that does not answer cannot keep the program from ending.
    threads = [threading.Thread(target=measure, args=(folder,), daemon=True) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, _, counted in measured:
        errors.update(counted)
    return {folder: throughput for folder, throughput, _ in measured if throughput is not None}


def _read(files: Files) -> Labelled | None:
    text = files.text(_FIELD, "pcie_bw")
    throughput = None if text is None else parse_packets(text)
    if text is not None and throughput is None:
        files.errors[_FIELD, "malformed"] += 1
    return throughput


def parse_packets(text: str) -> Labelled | None:
    """Received and sent packets of the last second, and the most bytes that one holds: an upper bound."""
    match = _PACKETS.fullmatch(text)
    if match is None:
        return None
    received, sent, most_bytes = map(int, match.groups())
    return {("rx",): received * most_bytes, ("tx",): sent * most_bytes}
