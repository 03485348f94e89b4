"""`gputally capture`: writes what this host's drivers say into one file, without what identifies the host.

A capture lets others see, and replay, what a GPU that they do not have answers. It only reads, and what fails
is recorded and does not prevent the rest.
"""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

from gputally import __version__
from gputally.commands.capture.amd_files import README as AMD
from gputally.commands.capture.amd_files import capture_amd
from gputally.commands.capture.archive import Archive
from gputally.commands.capture.masks import Masks
from gputally.commands.capture.nvidia_smi_output import README as NVIDIA_SMI
from gputally.commands.capture.nvidia_smi_output import capture_nvidia_smi
from gputally.commands.capture.nvml import README as NVML
from gputally.commands.capture.nvml import capture_nvml
from gputally.model import Unavailable
from gputally.printable import print_lines, printable

_NEVER = """\
Not included in any part: command lines, environments, users, host names, names of pods and containers.
Review the files before you pass them on.
"""


def capture(
    sysfs: Path,
    procfs: Path,
    nvidia_smi: str,
    target: Path | BinaryIO,
    out: TextIO,
    *,
    nvml: Callable[[Masks, Archive], list[str]] = capture_nvml,
) -> int:
    """Writes a capture to `target`, which must not exist, and a summary to `out`; returns the exit code."""
    if isinstance(target, Path) and target.exists():
        print_lines([f"{target} exists: use a new file"], out)
        return 2
    archive, masks = Archive(), Masks()
    parts: list[tuple[str, str, Callable[[], list[str]]]] = [
        ("AMD GPUs", AMD, lambda: capture_amd(sysfs, procfs, archive)),
        ("NVML", NVML, lambda: nvml(masks, archive)),
        ("nvidia-smi", NVIDIA_SMI, lambda: capture_nvidia_smi(nvidia_smi, masks, archive)),
    ]
    included: list[str] = []
    missing: list[str] = []
    for name, readme, take in parts:
        try:
            summary = take()
        except Unavailable as failure:
            missing.append(printable(f"not captured: {name}: {masks.text(failure.reason)}"))
            continue
        print_lines(summary, out)
        included.append(readme)
    print_lines(missing, out)
    if not included:
        print_lines(["nothing captured: this host has no GPU that can be read"], out)
        return 1
    versions = f"gputally {__version__}, Python {platform.python_version()}, Linux {platform.release()}\n"
    left_out = [f"too large, left out: {name}" for name in archive.left_out]
    readme = "\n".join([versions, *included, *missing, *left_out, _NEVER])
    archive.add("README.txt", readme.encode())
    content = archive.close()
    if isinstance(target, Path):
        with target.open("xb") as file:
            file.write(content)
    else:
        target.write(content)
    print_lines([f"written: {len(content)} bytes", *readme.split("\n")], out)
    print_lines(["Please attach it to an issue of the GPUTally repository: see docs/capture.md"], out)
    return 0
