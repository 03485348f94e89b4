"""The values files for kinds of clusters: their first comment says for whom, and what Pod Security thinks."""

import re
from dataclasses import dataclass
from pathlib import Path

_POD_SECURITY = re.compile(r"# Pod Security: *(.+)")


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    for_whom: str
    pod_security: str


def texts(folder: Path) -> dict[str, str]:
    """File name -> text."""
    return {path.name: path.read_text() for path in sorted(folder.glob("*.yaml"))}


def preset(name: str, text: str) -> Preset:
    head = [line for line in text.splitlines() if line.startswith("#")]
    level = next((found[1] for line in head if (found := _POD_SECURITY.fullmatch(line))), "")
    first = text.partition("\n")[0]
    return Preset(name, first.removeprefix("#").strip() if first.startswith("# ") else "", level)


def faults(name: str, text: str) -> list[str]:
    read = preset(name, text)
    return [
        *([] if read.for_whom else [f"presets/{name}: its first line does not say for whom it is"]),
        *([] if read.pod_security else [f"presets/{name}: no line `# Pod Security: LEVEL`"]),
    ]
