"""XID codes: NVIDIA's resolution, meaning, action and severity. Lists of the alerts, dashboards and documents
follow from this table.

The source is NVIDIA's catalogue for Ampere and newer, without the codes that it calls unused, and nverror.h
of driver 595.45.04 for codes that the catalogue does not have yet (173 to 176).
"""

from dataclasses import dataclass
from enum import StrEnum

from alerts.model import Severity

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


class Resolution(StrEnum):
    """The immediate action of NVIDIA's catalogue."""

    IGNORE = "none"
    RESTART_APP = "restart the program"
    RESET_GPU = "reset the GPU"
    RESTART_BM = "restart the machine"
    RESTART_VM = "restart the virtual machine"
    CHECK_MECHANICALS = "check the connections"
    CHECK_UVM = "check the driver's unified memory"
    UPDATE_SWFW = "update driver and firmware"
    CONTACT_SUPPORT = "support"
    WORKFLOW = "by the details in the kernel log"
    RECOVERY_ACTION = "the driver's recovery action"
    """The number alone does not decide: the text of the error does, which the driver turns into its recovery
    action."""
    UNPUBLISHED = "not published"


_REQUIRES_A_RESET = frozenset({Resolution.RESET_GPU, Resolution.RESTART_BM, Resolution.RESTART_VM})


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. `action` is the immediate action, and after the semicolon the action if it repeats."""

    code: int
    resolution: Resolution
    meaning: str
    action: str
    cause: Cause
    own_severity: Severity | None = None
    """Where the resolution does not decide it."""

    @property
    def severity(self) -> Severity | None:
        """Critical where NVIDIA requires a reset; None: no alert on the code."""
        return Severity.CRITICAL if self.resolution in _REQUIRES_A_RESET else self.own_severity


_RESTART = "restart the program; support if it repeats"
_FIX_PROGRAM = "restart the program; fix the bug in it"
_RESET = "reset the GPU; support if it repeats"
_REPLACE = "reset the GPU; replace the card if it repeats"
_WATCH = "nothing; support if it repeats"
_BY_ACTION = "follow the driver's recovery action"
_SUPPORT = "nothing; support"


def _engines(name: str, *codes: int) -> tuple[Xid, ...]:
    return tuple(
        Xid(code, Resolution.RESTART_APP, f"error in the {name}", _RESTART, Cause.PROGRAM) for code in codes
    )


_LISTED = (
    Xid(8, Resolution.RESTART_APP, "GPU stopped processing", _RESTART, Cause.PROGRAM),
    Xid(11, Resolution.RESTART_APP, "bad commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(13, Resolution.RESTART_APP, "exception in a kernel", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(25, Resolution.RESTART_APP, "illegal commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(31, Resolution.RESTART_APP, "memory page fault", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(32, Resolution.RESTART_APP, "corrupted commands from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(
        37,
        Resolution.IGNORE,
        "driver firmware error",
        "nothing; check the program if it repeats",
        Cause.DRIVER,
    ),
    Xid(38, Resolution.IGNORE, "driver firmware error", _WATCH, Cause.DRIVER),
    *_engines("copy engine", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    Xid(43, Resolution.IGNORE, "a program was stopped", _WATCH, Cause.PROGRAM),
    Xid(44, Resolution.IGNORE, "fault during a context switch", _WATCH, Cause.DRIVER),
    Xid(
        45,
        Resolution.WORKFLOW,
        "cleaned up after another error",
        "follow the other code, if there is one",
        Cause.NOTE,
    ),
    Xid(46, Resolution.RESET_GPU, "GPU stopped processing", _RESET, Cause.CARD),
    Xid(48, Resolution.WORKFLOW, "uncorrectable memory error", _REPLACE, Cause.MEMORY, Severity.CRITICAL),
    Xid(
        54,
        Resolution.CHECK_MECHANICALS,
        "auxiliary power is not connected",
        "check the power cable",
        Cause.MACHINE,
        Severity.WARNING,
    ),
    Xid(60, Resolution.RESTART_APP, "video processor exception", _RESTART, Cause.PROGRAM),
    Xid(62, Resolution.RESET_GPU, "internal micro-controller halted", _RESET, Cause.CARD),
    Xid(
        63,
        Resolution.IGNORE,
        "faulty memory row, to be replaced",
        "reset the GPU when its jobs have ended",
        Cause.MEMORY,
    ),
    Xid(
        64,
        Resolution.RESET_GPU,
        "a memory row could not be replaced",
        "reset the GPU; replace the card",
        Cause.MEMORY,
    ),
    Xid(
        66,
        Resolution.IGNORE,
        "illegal access by the driver",
        "nothing; check the software if it repeats",
        Cause.DRIVER,
    ),
    Xid(67, Resolution.IGNORE, "illegal access by the driver", _WATCH, Cause.DRIVER),
    *_engines("video decoder", 68, 83, 84, 88, 89, 96, 97, 98),
    Xid(69, Resolution.RESTART_APP, "wrong command class from a program", _FIX_PROGRAM, Cause.PROGRAM),
    Xid(
        74,
        Resolution.WORKFLOW,
        "NVLink error",
        "reset the GPU; check the link and its other end",
        Cause.LINK,
        Severity.CRITICAL,
    ),
    Xid(78, Resolution.UPDATE_SWFW, "vGPU could not start", "update driver and firmware", Cause.DRIVER),
    Xid(
        79,
        Resolution.RESTART_BM,
        "fallen off the bus",
        "restart the machine; check power, slot and card",
        Cause.CARD,
    ),
    Xid(80, Resolution.RESTART_APP, "corrupted data sent to the GPU", _FIX_PROGRAM, Cause.PROGRAM),
    *_engines("JPEG engine", 82, *range(99, 106)),
    *_engines("optical flow engine", 86, 139),
    Xid(
        92,
        Resolution.IGNORE,
        "many memory errors, all corrected",
        "watch; support if it continues",
        Cause.MEMORY,
        Severity.WARNING,
    ),
    Xid(93, Resolution.IGNORE, "InfoROM is written too often", _WATCH, Cause.CARD),
    Xid(
        94,
        Resolution.RESTART_APP,
        "memory error, one program ended",
        "restart it; reset the GPU when convenient",
        Cause.MEMORY,
        Severity.WARNING,
    ),
    Xid(95, Resolution.RESET_GPU, "uncontained memory error", _REPLACE, Cause.MEMORY),
    Xid(106, Resolution.IGNORE, "test message", "nothing", Cause.NOTE),
    Xid(107, Resolution.IGNORE, "test message", "nothing", Cause.NOTE),
    Xid(
        109,
        Resolution.RESET_GPU,
        "context switch timed out",
        "reset the GPU; check the job that stalled",
        Cause.CARD,
    ),
    Xid(
        110, Resolution.RESET_GPU, "security fault", "reset the GPU, or power off and on; support", Cause.CARD
    ),
    Xid(
        119,
        Resolution.RESET_GPU,
        "GPU's own processor (GSP) timed out",
        "reset the GPU; update the driver",
        Cause.DRIVER,
    ),
    Xid(
        120,
        Resolution.RESET_GPU,
        "GPU's own processor (GSP) failed",
        "reset the GPU; update the driver",
        Cause.DRIVER,
    ),
    Xid(121, Resolution.IGNORE, "error on the link to the CPU (C2C)", _WATCH, Cause.LINK),
    Xid(
        136,
        Resolution.RESET_GPU,
        "an NVLink could not be trained",
        "reset the GPU; check the link",
        Cause.LINK,
    ),
    Xid(
        137,
        Resolution.IGNORE,
        "forbidden access over NVLink",
        "nothing; check the program if it repeats",
        Cause.PROGRAM,
    ),
    Xid(140, Resolution.RESET_GPU, "ECC error that could not be repaired", _REPLACE, Cause.MEMORY),
    Xid(141, Resolution.IGNORE, "CUDA fast path error", _WATCH, Cause.DRIVER),
    Xid(142, Resolution.CONTACT_SUPPORT, "error in the video encoder", "support", Cause.PROGRAM),
    Xid(143, Resolution.RESET_GPU, "GPU could not be initialised", _RESET, Cause.CARD),
    Xid(144, Resolution.RECOVERY_ACTION, "NVLink 5 error (SAW)", _BY_ACTION, Cause.LINK),
    Xid(145, Resolution.RECOVERY_ACTION, "NVLink 5 error (RLW)", _BY_ACTION, Cause.LINK),
    Xid(146, Resolution.RECOVERY_ACTION, "NVLink 5 error (TLW)", _BY_ACTION, Cause.LINK),
    Xid(147, Resolution.IGNORE, "NVLink 5 error (TREX)", _WATCH, Cause.LINK),
    Xid(148, Resolution.IGNORE, "NVLink 5 error (NVLPW)", _WATCH, Cause.LINK),
    Xid(
        149,
        Resolution.RESET_GPU,
        "NVLink 5 link went down (NETIR)",
        "reset the GPU; check the link and its other end",
        Cause.LINK,
    ),
    Xid(150, Resolution.RESET_GPU, "NVLink 5 firmware halted (MSE)", _RESET, Cause.LINK),
    Xid(
        151,
        Resolution.RESTART_VM,
        "key rotation failed",
        "restart the virtual machine; support",
        Cause.DRIVER,
    ),
    Xid(152, Resolution.IGNORE, "error in the DLA's memory unit", _WATCH, Cause.CARD),
    Xid(153, Resolution.IGNORE, "DLA timed out", _WATCH, Cause.CARD),
    Xid(
        154,
        Resolution.RECOVERY_ACTION,
        "the driver's recovery action changed",
        "follow the recovery action; see the code before",
        Cause.NOTE,
    ),
    Xid(
        155,
        Resolution.RESET_GPU,
        "NVLink was taken down by software",
        "reset the GPU; find out which software",
        Cause.LINK,
    ),
    Xid(
        156,
        Resolution.RESET_GPU,
        "a part of the chip was retired",
        "reset the GPU",
        Cause.MEMORY,
    ),
    Xid(157, Resolution.IGNORE, "a part could not be retired", _WATCH, Cause.MEMORY, Severity.WARNING),
    Xid(158, Resolution.RESET_GPU, "fatal timeout", _RESET, Cause.CARD),
    Xid(
        159,
        Resolution.CHECK_UVM,
        "error on the CPU's bus",
        "follow the other code, if there is one",
        Cause.MACHINE,
    ),
    Xid(160, Resolution.IGNORE, "a memory channel was retired", "nothing; check the software", Cause.MEMORY),
    Xid(
        161,
        Resolution.IGNORE,
        "a memory channel could not be retired",
        "nothing; check the software",
        Cause.MEMORY,
    ),
    Xid(162, Resolution.UNPUBLISHED, "power smoothing circuit is active again", "nothing", Cause.NOTE),
    Xid(163, Resolution.UNPUBLISHED, "power smoothing circuit was disabled", _SUPPORT, Cause.CARD),
    Xid(164, Resolution.UNPUBLISHED, "power smoothing circuit is nearly worn out", _SUPPORT, Cause.CARD),
    Xid(165, Resolution.UNPUBLISHED, "power smoothing circuit is worn out", _SUPPORT, Cause.CARD),
    Xid(166, Resolution.UNPUBLISHED, "NVLink encryption error", _BY_ACTION, Cause.LINK),
    Xid(167, Resolution.UNPUBLISHED, "fatal timeout on PCIe", _BY_ACTION, Cause.MACHINE),
    Xid(168, Resolution.UNPUBLISHED, "memory lost to errors", _BY_ACTION, Cause.MEMORY),
    Xid(169, Resolution.UNPUBLISHED, "internal micro-controller halted", _BY_ACTION, Cause.CARD),
    Xid(170, Resolution.UNPUBLISHED, "NVLink error in confidential computing", _BY_ACTION, Cause.LINK),
    Xid(171, Resolution.UNPUBLISHED, "detail of a 48: the error was in DRAM", "see 48", Cause.NOTE),
    Xid(172, Resolution.UNPUBLISHED, "detail of a 48: the error was in SRAM", "see 48", Cause.NOTE),
    Xid(
        173,
        Resolution.UNPUBLISHED,
        "link to the CPU (C2C) failed",
        "reset the GPU; support",
        Cause.LINK,
        Severity.CRITICAL,
    ),
    Xid(174, Resolution.UNPUBLISHED, "a program was ended", "nothing; check the program", Cause.PROGRAM),
    Xid(
        175,
        Resolution.UNPUBLISHED,
        "memory error stopped the GPU's own processor (GSP)",
        _REPLACE,
        Cause.MEMORY,
        Severity.CRITICAL,
    ),
    Xid(176, Resolution.UNPUBLISHED, "too many corrected PCIe errors", _BY_ACTION, Cause.MACHINE),
)

XIDS = {xid.code: xid for xid in sorted(_LISTED, key=lambda xid: xid.code)}


def codes(severity: Severity) -> tuple[int, ...]:
    """The codes that raise an alert of this severity."""
    return tuple(code for code, xid in XIDS.items() if xid.severity is severity)
