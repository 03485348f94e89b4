"""`cu_occupancy` of several processes on one GPU: the key that divides the GPU's busy time among them.

The file has the waves that a process has in flight at the time of the read, divided by the waves that fill a
compute unit, rounded up (kfd_get_cu_occupancy in the kernel's amdkfd/kfd_process.c). That is how much of the
GPU a process fills, not for how long: a matrix product that keeps every unit busy with 8 of 32 waves reads a
quarter. So it is no busy time, and a single value is no mean: it is read several times a second, only while
more than one process has queues on a GPU, because each read locks and reads the GPU's registers.

Each GPU has its own thread while it is watched, so that a GPU that hangs affects neither the others nor the
sample of the reader, which never waits for it.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from gputally.devices import Errors
from gputally.devices.amdgpu.files import ProcessFiles, parse_count

NodeProcess = tuple[int, int]
"""KFD's id of a GPU or partition, and a pid."""
Watched = Mapping[NodeProcess, tuple[str, ...]]
"""The directories with a process's `cu_occupancy` on a node."""

_PERIOD_SECONDS = 0.15
_SECONDS_PER_FILE = 0.005  # of many processes, fewer samples: at most 200 reads a second on one GPU
_MOST_SAMPLES = 2000  # after five minutes without a sample of the reader, which has failed or was dropped
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_GFX_9_4 = range(90400, 90500)  # MI300A, MI300X, MI308X, MI325X
_FIXED_IN = (6, 12)


def counts_every_die(gfx_version: int, driver_version: str | None) -> bool:
    """Whether the kernel counts the waves of all dies.

    On MI300 it read the GPU's first die only, until Linux 6.12 (e45b011d2c41, "Fix CU occupancy for GFX
    9.4.3"). The versions of AMD's own driver follow those of the kernel.
    """
    if gfx_version not in _GFX_9_4:
        return True
    match = _VERSION.match(driver_version or "")
    return match is not None and (int(match[1]), int(match[2])) >= _FIXED_IN


class CardOccupancy:
    """Sums up `cu_occupancy` of the processes on one GPU while there are any to watch."""

    def __init__(self, pci_address: str) -> None:
        self.pci_address = pci_address
        self._lock = threading.Lock()  # never held while a file is read
        self._watched: Watched = {}
        self._running = False
        self._samples_left = 0
        self._ended = threading.Event()
        self._sums: Counter[NodeProcess] = Counter()
        self._errors: Errors = Counter()

    def watch(self, watched: Watched) -> bool:
        """Replaces the processes to sample; true when the caller has to start `run`."""
        with self._lock:
            self._watched = watched
            self._samples_left = _MOST_SAMPLES
            if not watched:
                self._ended.set()
                return False
            self._ended.clear()
            starts, self._running = not self._running, True
            return starts

    def run(self) -> None:
        """Samples until there is nothing to watch, or the sums are no longer taken."""
        while self._goes_on():
            self.sample()
            self._ended.wait(max(_PERIOD_SECONDS, _SECONDS_PER_FILE * len(self._watched)))

    def sample(self) -> None:
        """Reads every file once."""
        errors: Errors = Counter()
        files = ProcessFiles("cu_occupancy", errors)
        found: Counter[NodeProcess] = Counter()
        for process, directories in self._watched.items():
            for directory in directories:
                content = files.read(f"{directory}/cu_occupancy")  # missing on GPUs newer than GFX9
                units = parse_count((content or b"").decode("ascii", "replace").strip())
                found[process] += max(units, 0)
        with self._lock:
            self._sums += found
            self._errors += errors

    def take(self) -> tuple[Mapping[NodeProcess, int], Errors]:
        """The sums and the errors since the last call."""
        with self._lock:
            taken = self._sums, self._errors
            self._sums, self._errors = Counter(), Counter()
        return taken

    def _goes_on(self) -> bool:
        with self._lock:
            self._samples_left -= 1
            self._running = bool(self._watched) and self._samples_left >= 0
            return self._running


def start_thread(card: CardOccupancy) -> None:
    # A daemon: a read that never returns must not keep the program from ending.
    threading.Thread(target=card.run, daemon=True, name=f"occupancy-{card.pci_address}").start()


class OccupancySampler:
    """Watches several GPUs, each with its own thread, which ends when there is nothing to watch."""

    def __init__(self, start: Callable[[CardOccupancy], None] = start_thread) -> None:
        self._start = start
        self._cards: dict[str, CardOccupancy] = {}

    def watch(self, watched: Mapping[str, Watched]) -> None:
        """Replaces the processes to sample, by PCI address."""
        for address in watched.keys() - self._cards.keys():
            self._cards[address] = CardOccupancy(address)
        for address, card in self._cards.items():
            if card.watch(watched.get(address, {})):
                self._start(card)

    def take(self, errors: Errors) -> dict[int, dict[int, int]]:
        """By node and pid, the sums above 0 since the last call; failed reads are added to `errors`."""
        sums: dict[int, dict[int, int]] = {}
        for card in self._cards.values():
            found, failed = card.take()
            for (gpu_id, pid), units in found.items():
                sums.setdefault(gpu_id, {})[pid] = units
            errors.update(failed)
        return sums

    def close(self) -> None:
        self.watch({})
