"""Reader `amdgpu`: AMD GPUs as the kernel shows them in /sys and /proc, without ROCm.

`discovery` finds them, `card` reads one of them with `files`, `hwmon`, `ras` and `gpu_metrics`, and
`process_finder` finds their processes. The files are documented at https://docs.kernel.org/gpu/amdgpu/
"""

import logging
import re
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gputally.devices import Errors, Report
from gputally.devices.amd import pair_dies
from gputally.devices.amdgpu.card import CARD_FILLS, CardReader
from gputally.devices.amdgpu.discovery import DrmCard, find_cards, find_render_device, read_driver_version
from gputally.devices.amdgpu.files import Files
from gputally.devices.amdgpu.process_finder import ProcessFinder
from gputally.model import Gpu, Labelled, Reading

log = logging.getLogger(__name__)

FILLS = CARD_FILLS | {"pcie_throughput_bytes_per_second"}
"""The fields that this reader can fill: see `readers_that_fill`."""


class AmdgpuReader:
    """Reads AMD GPUs through the files of the kernel's amdgpu driver.

    `pcie_throughput`: read PCIe throughput, which takes one second.
    """

    name = "amdgpu"

    def __init__(self, sysfs: Path, procfs: Path, *, pcie_throughput: bool = False) -> None:
        self._sysfs = sysfs
        self._procfs = procfs
        self._pcie_throughput = pcie_throughput
        self._finder = ProcessFinder(sysfs, procfs)
        self._errors: Errors = Counter()
        self._readers: dict[DrmCard, CardReader] = {}
        self._known: dict[str, Gpu] = {}
        """By PCI address. A GPU keeps its index while others appear and disappear."""
        self._lost: set[str] = set()

    def read(self) -> Report:
        cards = find_cards(self._sysfs, self._errors)
        driver_version = read_driver_version(self._sysfs, self._procfs)
        found = self._finder.find([card.pci_address for card in cards], driver_version)
        self._readers = {card: self._readers.get(card) or CardReader(card, self._errors) for card in cards}
        throughput = (
            read_throughput([card.directory for card in cards], self._errors) if self._pcie_throughput else {}
        )
        readings = []
        for card, reader in self._readers.items():
            gpu = self._identify(card, driver_version)
            residents = {part: who for (address, part), who in found.items() if address == card.pci_address}
            devices = {
                part: find_render_device(self._sysfs, who.render_minor)
                for part, who in residents.items()
                if part is not None
            }
            reading = reader.read(gpu, residents, devices)
            if not gpu.uuid:  # without a uuid its values have no series
                reading = Reading(gpu=gpu, up=False)
            if reading.up:
                reading = replace(reading, pcie_throughput_bytes_per_second=throughput.get(card.directory))
            readings.append(reading)
        self._note_lost({reading.gpu.pci_bus_id or "" for reading in readings if not reading.up})
        ordered = sorted(readings, key=lambda reading: reading.gpu.index)
        return Report(pair_dies(ordered), dict(self._errors + self._finder.errors))

    def close(self) -> None:
        self._finder.close()

    def _identify(self, card: DrmCard, driver_version: str | None) -> Gpu:
        known = self._known.get(card.pci_address)
        if known is not None and not card.uuid:
            return known
        index = len(self._known) if known is None else known.index
        gpu = self._known[card.pci_address] = card.gpu(index, driver_version)
        return gpu

    def _note_lost(self, lost: set[str]) -> None:
        for address in sorted(lost - self._lost):
            log.warning("GPU %s is lost", address)
        for address in sorted(self._lost - lost):
            log.info("GPU %s is back", address)
        self._lost = lost


_FIELD = "pcie_throughput_bytes_per_second"
_PACKETS = re.compile(r"([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,5})")


def read_throughput(directories: Iterable[Path], errors: Errors) -> dict[Path, Labelled]:
    """By device directory, of the GPUs that support it; a suspended GPU is not woken up."""
    measured: list[tuple[Path, Labelled | None, Errors]] = []

    def measure(directory: Path) -> None:
        files = Files(directory, Counter())
        measured.append((directory, None if files.suspended() else _read(files), files.errors))

    # Daemon threads, so that a GPU that hangs cannot keep the program from exiting.
    threads = [threading.Thread(target=measure, args=(directory,), daemon=True) for directory in directories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, _, counted in measured:
        errors.update(counted)
    return {directory: throughput for directory, throughput, _ in measured if throughput is not None}


def _read(files: Files) -> Labelled | None:
    text = files.text(_FIELD, "pcie_bw")
    throughput = None if text is None else parse_packets(text)
    if text is not None and throughput is None:
        files.errors[_FIELD, "malformed"] += 1
    return throughput


def parse_packets(text: str) -> Labelled | None:
    """From received and sent packets of the last second and the maximum size of a packet: an upper bound."""
    match = _PACKETS.fullmatch(text)
    if match is None:
        return None
    received, sent, most_bytes = map(int, match.groups())
    return {("rx",): received * most_bytes, ("tx",): sent * most_bytes}
