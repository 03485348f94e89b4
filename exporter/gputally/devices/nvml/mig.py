"""The MIG devices of one GPU: listed at every sample, identified once."""

import math
import re
from dataclasses import dataclass

from gputally.devices import Values
from gputally.devices.nvml import gpm
from gputally.devices.nvml.library import Query
from gputally.devices.nvml.process_lists import ProcessLists
from gputally.devices.nvml.scalars import MEMORY, read_memory
from gputally.model import Gpu, MigInstance, MigReading

FILLS = frozenset(
    {
        "mig",
        "MigReading.multiprocessors",
        "MigReading.processes",
        *(f"MigReading.{field}" for field in (*MEMORY, *gpm.METRICS)),
    }
)
_NAMED = re.compile(r"\bMIG\s+(\S+)$")
_MIB = 1024**2
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class _KnownMig:
    """A MIG device that was identified."""

    query: Query
    instance: MigInstance
    multiprocessors: int | None


class MigDevices:
    """Reads the MIG devices of one GPU in MIG mode."""

    def __init__(self, parent: Query, gpu: Gpu, activity: gpm.Gpm | None, lists: ProcessLists) -> None:
        self._parent = parent
        self._gpu = gpu
        self._gpm = activity
        self._lists = lists
        self._known: dict[str, _KnownMig] = {}
        self._activities: dict[int, gpm.GpmSampler] = {}

    def read(self, total_bytes: int | None) -> tuple[MigReading, ...]:
        """`total_bytes` is the whole GPU's memory, from which profiles take their names."""
        known = {}
        most = self._parent.number("mig", "nvmlDeviceGetMaxMigDeviceCount") or 0
        for index in range(most):
            handle = self._parent.call("mig", "nvmlDeviceGetMigDeviceHandleByIndex", index)
            if handle is None:
                continue
            query = Query(self._parent.library, handle)
            uuid = query.call("mig", "nvmlDeviceGetUUID")
            device = self._known.get(uuid) or self._identify(query, uuid, total_bytes)
            if device is not None:
                device.query.handle = handle
                known[uuid] = device
        if known.keys() != self._known.keys():
            self.forget()
            self._known = known
        ratios = self._ratios()
        return tuple(
            MigReading(
                instance=device.instance,
                multiprocessors=device.multiprocessors,
                processes=self._lists.processes(device.query),
                **read_memory(device.query),
                **ratios.get(device.instance.gpu_instance_id, {}),
            )
            for device in self._known.values()
        )

    def ask_again(self) -> None:
        """Repeats unsupported queries at the next read."""
        for device in self._known.values():
            device.query.forget()
        for activity in self._activities.values():
            activity.ask_again()

    def forget(self) -> None:
        for activity in self._activities.values():
            activity.free()
        self._activities = {}
        self._known = {}

    def _identify(self, query: Query, uuid: str | None, total_bytes: int | None) -> _KnownMig | None:
        gpu_instance = query.number("mig", "nvmlDeviceGetGpuInstanceId")
        compute_instance = query.number("mig", "nvmlDeviceGetComputeInstanceId")
        if not uuid or gpu_instance is None or compute_instance is None:
            return None  # it was destroyed while it was read
        attributes = query.call("mig", "nvmlDeviceGetAttributes_v2")
        profile = named_profile(query.call("mig", "nvmlDeviceGetName") or "")
        if profile is None and attributes is not None and total_bytes:
            profile = profile_name(
                attributes.gpuInstanceSliceCount,
                attributes.computeInstanceSliceCount,
                attributes.memorySizeMB * _MIB,
                total_bytes,
            )
        instance = MigInstance(
            uuid=uuid,
            parent_uuid=self._gpu.uuid,
            parent_index=self._gpu.index,
            gpu_instance_id=gpu_instance,
            compute_instance_id=compute_instance,
            profile=profile,
        )
        return _KnownMig(query, instance, None if attributes is None else attributes.multiprocessorCount)

    def _ratios(self) -> dict[int, Values]:
        """Activity by GPU instance: NVML does not separate the compute instances of one GPU instance."""
        if self._gpm is None:
            return {}
        for device in self._known.values():
            gpu_instance = device.instance.gpu_instance_id
            if gpu_instance not in self._activities:
                self._activities[gpu_instance] = gpm.one_instance(
                    self._gpm, self._parent.handle, gpu_instance
                )
        return {gpu_instance: activity.read() for gpu_instance, activity in self._activities.items()}


def named_profile(device_name: str) -> str | None:
    """The profile at the end of a MIG device's name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb"."""
    match = _NAMED.search(device_name)
    return match[1] if match else None


def profile_name(gpu_slices: int, compute_slices: int, memory_bytes: int, total_bytes: int) -> str:
    """nvidia-smi's name of the profile, for drivers that do not report it.

    The memory in it is nominal: the share of the GPU, in eighths and rounded up, of the GPU's size in
    whole GiB.
    """
    eighths = math.ceil(8 * memory_bytes / total_bytes)
    gigabytes = round(eighths / 8 * math.ceil(total_bytes / _GIB))
    prefix = f"{compute_slices}c." if 0 < compute_slices < gpu_slices else ""
    return f"{prefix}{gpu_slices}g.{gigabytes}gb"
