"""XID codes with their meaning and the action, as short texts for tables on dashboards.

The source is NVIDIA's catalog for Ampere and newer. The codes that raise an alert are in alerts/settings.py.
"""

from dataclasses import dataclass
from enum import StrEnum

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


class Cause(StrEnum):
    """The part to check first."""

    PROGRAM = "program"
    DRIVER = "driver"
    CARD = "card"
    MEMORY = "memory"
    LINK = "link"
    MACHINE = "machine"
    NOTE = "note"
    """No error of its own: a detail of another error, or a test message."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. `action` is the immediate action, and after the semicolon the action if it repeats."""

    code: int
    meaning: str
    action: str
    cause: Cause


_RESTART = "restart the program; support if it repeats"
_FIX_PROGRAM = "restart the program; fix the bug in it"
_RESET = "reset the GPU; support if it repeats"
_REPLACE = "reset the GPU; replace the card if it repeats"
_WATCH = "nothing; support if it repeats"
_READ_TEXT = "read the line in dmesg, reset if it is fatal; check the link"


def _engines(name: str, *codes: int) -> tuple[Xid, ...]:
    return tuple(Xid(code, f"error in the {name}", _RESTART, Cause.PROGRAM) for code in codes)


_LISTED = (
    Xid(8, "GPU stopped processing", _RESTART, Cause.PROGRAM),
    Xid(11, "bad commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(13, "exception in a kernel", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(25, "illegal commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(31, "memory page fault", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(32, "corrupted commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(37, "driver firmware error", "nothing; check the program if it repeats", Cause.DRIVER),
    Xid(38, "driver firmware error", _WATCH, Cause.DRIVER),
    *_engines("copy engine", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    Xid(43, "a program was stopped", _WATCH, Cause.PROGRAM),
    Xid(44, "fault during a context switch", _WATCH, Cause.DRIVER),
    Xid(45, "cleaned up after another error", "follow the other code, if there is one", Cause.NOTE),
    Xid(46, "GPU stopped processing", _RESET, Cause.CARD),
    Xid(48, "uncorrectable memory error", _REPLACE, Cause.MEMORY),
    Xid(54, "auxiliary power is not connected", "check the power cable", Cause.MACHINE),
    Xid(60, "video processor exception", _RESTART, Cause.PROGRAM),
    Xid(62, "internal micro-controller halted", _RESET, Cause.CARD),
    Xid(63, "faulty memory row, to be replaced", "reset the GPU when its jobs have ended", Cause.MEMORY),
    Xid(64, "a memory row could not be replaced", "reset the GPU; replace the card", Cause.MEMORY),
    Xid(66, "illegal access by the driver", "nothing; check the software if it repeats", Cause.DRIVER),
    Xid(67, "illegal access by the driver", _WATCH, Cause.DRIVER),
    *_engines("video decoder", 68, 83, 84, 88, 89, 96, 97, 98),
    Xid(69, "wrong command class from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(74, "NVLink error", "reset the GPU; check the link and its other end", Cause.LINK),
    Xid(78, "vGPU could not start", "update driver and firmware", Cause.DRIVER),
    Xid(79, "fallen off the bus", "restart the machine; check power, slot and card", Cause.CARD),
    Xid(80, "corrupted data sent to the GPU", _FIX_PROGRAM, Cause.PROGRAM),
    *_engines("JPEG engine", 82, *range(99, 106)),
    *_engines("optical flow engine", 86, 139),
    Xid(92, "many memory errors, all corrected", "watch; support if it continues", Cause.MEMORY),
    Xid(93, "InfoROM is written too often", _WATCH, Cause.CARD),
    Xid(94, "memory error, one program ended", "restart it; reset the GPU when convenient", Cause.MEMORY),
    Xid(95, "uncontained memory error", _REPLACE, Cause.MEMORY),
    Xid(106, "test message", "nothing", Cause.NOTE),
    Xid(107, "test message", "nothing", Cause.NOTE),
    Xid(
        109, "context switch timed out", "check the job; reset the GPU if it does not recover", Cause.PROGRAM
    ),
    Xid(110, "security fault", "reset the GPU, or power off and on; support", Cause.CARD),
    Xid(119, "GPU's own processor (GSP) timed out", "reset the GPU; update the driver", Cause.DRIVER),
    Xid(120, "GPU's own processor (GSP) failed", "reset the GPU; update the driver", Cause.DRIVER),
    Xid(121, "error on the link to the CPU (C2C)", _WATCH, Cause.LINK),
    Xid(136, "an NVLink could not be trained", "reset the GPU; check the link", Cause.LINK),
    Xid(137, "forbidden access over NVLink", "nothing; check the program if it repeats", Cause.PROGRAM),
    Xid(140, "ECC error that could not be repaired", _REPLACE, Cause.MEMORY),
    Xid(141, "CUDA fast path error", _WATCH, Cause.DRIVER),
    Xid(142, "error in the video encoder", "support", Cause.PROGRAM),
    Xid(143, "GPU could not be initialised", _RESET, Cause.CARD),
    *(Xid(code, "NVLink error (Blackwell)", _READ_TEXT, Cause.LINK) for code in range(144, 151)),
    Xid(151, "key rotation failed", "restart the virtual machine; support", Cause.DRIVER),
    Xid(152, "error in the DLA's memory unit", _WATCH, Cause.CARD),
    Xid(153, "DLA timed out", _WATCH, Cause.CARD),
    Xid(
        154,
        "the driver's recovery action changed",
        "follow the recovery action; see the code before",
        Cause.NOTE,
    ),
    Xid(155, "NVLink was taken down by software", "reset the GPU; find out which software", Cause.LINK),
    Xid(156, "a part of the chip was retired", "reset the GPU when convenient", Cause.MEMORY),
    Xid(157, "a part could not be retired", _WATCH, Cause.MEMORY),
    Xid(158, "fatal timeout", _RESET, Cause.CARD),
    Xid(159, "error on the CPU's bus", "follow the other code, if there is one", Cause.MACHINE),
    Xid(160, "a memory channel was retired", "nothing; check the software", Cause.MEMORY),
    Xid(161, "a memory channel could not be retired", "nothing; check the software", Cause.MEMORY),
    Xid(167, "fatal timeout on PCIe", "follow the driver's recovery action", Cause.MACHINE),
    Xid(168, "memory lost to errors", "follow the driver's recovery action", Cause.MEMORY),
    Xid(169, "internal micro-controller halted", "follow the driver's recovery action", Cause.CARD),
    Xid(171, "detail of a 48: the error was in DRAM", "see 48", Cause.NOTE),
    Xid(172, "detail of a 48: the error was in SRAM", "see 48", Cause.NOTE),
)

XIDS = {xid.code: xid for xid in sorted(_LISTED, key=lambda xid: xid.code)}
