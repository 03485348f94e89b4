"""The reader: which AMD GPUs there are, and that it goes on when one of them does not."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

from gputally.devices import Report
from gputally.devices.amd_identity import pair_dies
from gputally.devices.amdgpu.card import CardReader
from gputally.devices.amdgpu.cards import Card, find_cards, find_render_device, read_driver_version
from gputally.devices.amdgpu.files import Errors
from gputally.devices.amdgpu.processes import ProcessFinder
from gputally.devices.amdgpu.throughput import read_throughput
from gputally.model import Gpu, Reading

log = logging.getLogger(__name__)


class AmdgpuReader:
    """Reads AMD GPUs through the files of the kernel's amdgpu driver.

    `pcie_throughput` also asks for PCIe throughput, which takes one second.
    """

    name = "amdgpu"

    def __init__(self, sysfs: Path, procfs: Path, *, pcie_throughput: bool = False) -> None:
        self._sysfs = sysfs
        self._procfs = procfs
        self._pcie_throughput = pcie_throughput
        self._finder = ProcessFinder(sysfs, procfs)
        self._errors: Errors = Counter()
        self._readers: dict[Card, CardReader] = {}
        self._known: dict[str, Gpu] = {}
        """By PCI address. A GPU keeps its index, whatever others come and go."""
        self._lost: set[str] = set()

    def read(self) -> Report:
        cards = find_cards(self._sysfs, self._errors)
        driver_version = read_driver_version(self._sysfs, self._procfs)
        found = self._finder.look([card.pci_address for card in cards])
        self._readers = {card: self._readers.get(card) or CardReader(card, self._errors) for card in cards}
        throughput = (
            read_throughput([card.folder for card in cards], self._errors) if self._pcie_throughput else {}
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
            if not gpu.uuid:  # nothing that it says can be booked
                reading = Reading(gpu=gpu, up=False)
            if reading.up:
                reading = replace(reading, pcie_throughput_bytes_per_second=throughput.get(card.folder))
            readings.append(reading)
        self._note_lost({reading.gpu.pci_bus_id or "" for reading in readings if not reading.up})
        ordered = sorted(readings, key=lambda reading: reading.gpu.index)
        return Report(pair_dies(ordered), dict(self._errors + self._finder.errors))

    def close(self) -> None:
        """Nothing is held open between two looks."""

    def _identify(self, card: Card, driver_version: str | None) -> Gpu:
        known = self._known.get(card.pci_address)
        if known is not None and not card.uuid:
            return known
        index = len(self._known) if known is None else known.index
        gpu = self._known[card.pci_address] = card.gpu(index, driver_version)
        return gpu

    def _note_lost(self, lost: set[str]) -> None:
        for address in sorted(lost - self._lost):
            log.warning("GPU %s does not answer", address)
        for address in sorted(self._lost - lost):
            log.info("GPU %s answers again", address)
        self._lost = lost
