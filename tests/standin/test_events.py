"""XID events: delivered once to each listener, by a wait that blocks."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml

Play = Callable[[str], Path]
# A wait that is not woken is in C, where only the end of the process reaches it.
pytestmark = pytest.mark.timeout(120, method="thread")
AN_HOUR = 3_600_000
XID = nvml.nvmlEventTypeXidCriticalError
TWO_GPUS = "frame 0\ngpu 0\nuuid GPU-0\n{first}\ngpu 1\nuuid GPU-1\n{second}\n"


@pytest.fixture
def listening(play: Play) -> Callable[[str], Any]:
    """An event set that listens to all GPUs of the scenario."""

    def listen(text: str) -> Any:
        play(text)
        events = nvml.nvmlEventSetCreate()
        for index in range(nvml.nvmlDeviceGetCount()):
            nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), XID, events)
        return events

    return listen


def drain(events: Any) -> list[tuple[str, int]]:
    told: list[tuple[str, int]] = []
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, 0)
        except nvml.NVMLError_Timeout:
            return told
        assert event.eventType == XID
        told.append((nvml.nvmlDeviceGetUUID(event.device), event.eventData))


def test_earlier_xids_are_delivered_once_to_the_first_listener(
    listening: Callable[[str], Any],
) -> None:
    events = listening(TWO_GPUS.format(first="xid 79 1\nxid 31 2", second="xid 48 1"))
    assert sorted(drain(events)) == [("GPU-0", 31), ("GPU-0", 31), ("GPU-0", 79), ("GPU-1", 48)]
    assert drain(events) == []
    nvml.nvmlEventSetFree(events)


def test_a_replaced_file_delivers_only_new_events(listening: Callable[[str], Any], play: Play) -> None:
    events = listening(TWO_GPUS.format(first="xid 79 1", second=""))
    assert drain(events) == [("GPU-0", 79)]
    play(TWO_GPUS.format(first="xid 79 3", second="xid 13 1"))
    told = nvml.nvmlEventSetWait_v2(events, AN_HOUR)
    assert [told.eventData, *(xid for _, xid in drain(events))] == [79, 79, 13]
    nvml.nvmlEventSetFree(events)


def test_a_frame_that_becomes_due_wakes_the_waiting_thread(listening: Callable[[str], Any]) -> None:
    events = listening("frame 0\ngpu 0\nuuid GPU-0\nframe 0.3\ngpu 0\nxid 94 1\n")
    assert nvml.nvmlEventSetWait_v2(events, AN_HOUR).eventData == 94
    nvml.nvmlEventSetFree(events)


def test_another_thread_can_wake_a_waiting_thread(listening: Callable[[str], Any], play: Play) -> None:
    events = listening(TWO_GPUS.format(first="", second=""))
    waiting = threading.Event()
    told: list[int] = []

    def wait() -> None:
        waiting.set()
        told.append(nvml.nvmlEventSetWait_v2(events, AN_HOUR).eventData)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiting.wait()
    play(TWO_GPUS.format(first="xid 63 1", second=""))
    waiter.join()
    assert told == [63]
    nvml.nvmlEventSetFree(events)


def test_a_wait_blocks_until_its_timeout(listening: Callable[[str], Any]) -> None:
    events = listening(TWO_GPUS.format(first="", second=""))
    began, used = time.monotonic(), time.thread_time()
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 500)
    assert time.monotonic() - began >= 0.5
    assert time.thread_time() - used < 0.25, "half a second of waiting takes no time of a processor"
    nvml.nvmlEventSetFree(events)


def test_a_lost_gpu_still_delivers_its_last_xid(listening: Callable[[str], Any], play: Play) -> None:
    events = listening(TWO_GPUS.format(first="", second=""))
    play(TWO_GPUS.format(first="xid 79 1\nlost 1", second=""))
    assert nvml.nvmlEventSetWait_v2(events, AN_HOUR).eventData == 79
    nvml.nvmlEventSetFree(events)


def test_only_known_event_types_can_be_registered(play: Play) -> None:
    play(TWO_GPUS.format(first="", second=""))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    supported = nvml.nvmlDeviceGetSupportedEventTypes(handle)
    assert supported & XID
    events = nvml.nvmlEventSetCreate()
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceRegisterEvents(handle, 1 << 40, events)
    nvml.nvmlEventSetFree(events)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlEventSetWait_v2(events, 0)


def test_a_set_with_a_lost_gpu_says_so_and_another_set_does_not(play: Play) -> None:
    play(TWO_GPUS.format(first="", second=""))
    sets = [nvml.nvmlEventSetCreate() for _ in range(3)]
    first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    for handle, events in ((first, sets[0]), (first, sets[1]), (second, sets[1]), (second, sets[2])):
        nvml.nvmlDeviceRegisterEvents(handle, XID, events)
    play("fault lost gpu=0\n" + TWO_GPUS.format(first="", second=""))
    for events in sets[:2]:
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            nvml.nvmlEventSetWait_v2(events, AN_HOUR)
    play("fault lost gpu=0\n" + TWO_GPUS.format(first="", second="xid 48 1"))
    assert nvml.nvmlEventSetWait_v2(sets[2], AN_HOUR).eventData == 48
    for events in sets:
        nvml.nvmlEventSetFree(events)
