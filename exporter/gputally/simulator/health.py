"""Memory health and links of one GPU: the counters that faults move."""

from gputally.model import Labelled
from gputally.simulator.cards import AmdCard, NvidiaCard
from gputally.simulator.faults import GpuFaults
from gputally.simulator.scenario import ECC_LOCATIONS

KIB = 1024


def ras_errors(card: AmdCard, faults: GpuFaults, second: int) -> tuple[Labelled, Labelled]:
    """AMD's errors by block, and their sums. Deferred ones are in no sum, as in the driver's."""
    found = faults.ras(second)
    blocks: dict[tuple[str, ...], float] = {
        (block, kind): float(found.get((block, kind), 0))
        for block in card.ras_blocks
        for kind in card.ras_types
    }
    sums: dict[tuple[str, ...], float] = {
        (kind, "volatile"): sum(blocks[block, kind] for block in card.ras_blocks)
        for kind in ("uncorrected", "corrected")
    }
    return blocks, sums


def ecc_errors(faults: GpuFaults, corrected_before: int, second: int) -> tuple[Labelled, Labelled]:
    """ECC errors in all, and by location. A card's life is longer than its driver's: aggregate is more."""
    found = faults.ecc(second)
    totals: dict[tuple[str, ...], float] = {}
    places: dict[tuple[str, ...], float] = {}
    for kind in ("corrected", "uncorrected"):
        for lifetime in ("volatile", "aggregate"):
            total = 0
            for location in ECC_LOCATIONS:
                count = found.get((kind, location), 0)
                if (kind, lifetime, location) == ("corrected", "aggregate", "device_memory"):
                    count += corrected_before
                places[kind, lifetime, location] = float(count)
                total += count
            totals[kind, lifetime] = float(total)
    return totals, places


def retired_pages(faults: GpuFaults, second: int) -> Labelled:
    return {("single_bit",): 0.0, ("double_bit",): float(faults.remapped(second))}


def remapped_rows(faults: GpuFaults, second: int) -> Labelled:
    return {("correctable",): 0.0, ("uncorrectable",): float(faults.remapped(second))}


def remap_banks(card: NvidiaCard, faults: GpuFaults, second: int) -> Labelled:
    """A bank that has given a spare row away has fewer left; remapping fails in one that has none."""
    empty = int(faults.remap_failed(second))
    used = min(faults.remapped(second), card.remap_banks - empty)
    return {
        ("max",): float(card.remap_banks - used - empty),
        ("high",): float(used),
        ("partial",): 0.0,
        ("low",): 0.0,
        ("none",): float(empty),
    }


class Nvlinks:
    """NVIDIA's links of one GPU. What is nearly always the same is built once."""

    def __init__(self, card: NvidiaCard, faults: GpuFaults) -> None:
        self._card = card
        self._faults = faults
        links = [str(link) for link in range(card.links)]
        self._all_up: Labelled = {(link,): 1.0 for link in links}
        self._no_errors: Labelled = {(link, kind): 0.0 for link in links for kind in card.nvlink_errors}

    def up(self, second: int) -> Labelled:
        down = self._faults.links_down(second)
        return {**self._all_up, **{(str(link),): 0.0 for link in down}} if down else self._all_up

    def errors(self, second: int) -> Labelled:
        """A link that goes down has lost a few packets first, and then failed to recover."""
        failures, noise = self._faults.link_failures(second), self._faults.link_errors(second)
        if not failures and not noise:
            return self._no_errors
        errors = {key: none + noise.get(key, 0) for key, none in self._no_errors.items()}
        lost, recovery = self._card.nvlink_errors[:2]
        for link, times in failures.items():
            errors[str(link), lost] += 12.0 * times
            errors[str(link), recovery] += float(times)
        return errors

    def moved(self, total_kib: int) -> Labelled:
        """Bytes, in KiB that divide evenly by the links: the driver counts in KiB and by link."""
        links = self._card.links
        return {
            ("tx",): float(total_kib // links * links * KIB),
            ("rx",): float(total_kib * 31 // 32 // links * links * KIB),
        }


class XgmiLinks:
    """AMD's links of one GPU."""

    def __init__(self, card: AmdCard, faults: GpuFaults) -> None:
        self._links = [str(link) for link in range(card.links)]
        self._faults = faults

    def up(self, second: int) -> Labelled:
        down = {str(link) for link in self._faults.links_down(second)}
        return {(link,): float(link not in down) for link in self._links}

    def moved(self, total_kib: int) -> Labelled:
        """Bytes by link, in the KiB that the firmware counts; all links carry the same."""
        written = total_kib // len(self._links)
        by_direction = (("read", written * 31 // 32), ("write", written))
        return {
            (link, direction): float(kib * KIB) for direction, kib in by_direction for link in self._links
        }
