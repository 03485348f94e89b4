"""What nvidia-smi prints: all its columns, its full report and its processes."""

import re
from collections.abc import Callable

from gputally.commands.capture.archive import Archive
from gputally.commands.capture.masks import Masks
from gputally.devices.nvidia_smi.csv_tables import APP_COLUMNS, parse_help_columns
from gputally.devices.vendor_command import Command, CommandFailed
from gputally.model import Unavailable

README = """\
nvidia-smi: what nvidia-smi prints, one file per command, each with its exit code
  --version, --help-query-gpu, --query-gpu with all columns, --query-compute-apps, and -q -x
  replaced: UUIDs, serial numbers, PCI addresses, pids, names of processes and the host's name
  left out: board and virtual machine ids
"""
_DIRECTORY = "nvidia-smi"
_SECONDS = 30.0
_HEADER = re.compile(r"\s*([\w.]+)(?: \[[^]]*\])?\s*")
_ELEMENT = re.compile(r"<(?P<tag>\w+)>(?P<text>[^<>]*)</(?P=tag)>")
_PRIVATE = re.compile(
    r"serial|guid|uuid|(?:^|[._])pid$|process_?name|(?:^|_)vm_|board_id|host_?name"
    r"|pci[._](?:bus|domain|device)$",
    re.IGNORECASE,
)


def capture_nvidia_smi(program: str, masks: Masks, archive: Archive) -> list[str]:
    """Adds what it prints; returns a summary. Raises Unavailable where it cannot be started at all."""
    command = Command(program, fix_when_it_hangs="check the driver: dmesg | grep NVRM")
    added: list[str] = []

    def run(name: str, change: Callable[[str, Masks], str], *arguments: str) -> str:
        try:
            finished = command.run(*arguments, timeout_seconds=_SECONDS)
        except CommandFailed as failure:
            if failure.error in ("not_found", "not_started"):
                raise
            archive.add(f"{_DIRECTORY}/{name}", f"# {masks.text(failure.reason)}\n".encode())
            return ""
        head = f"# nvidia-smi {' '.join(arguments)}\n# exit code {finished.exit_code}\n"
        errors = "".join(f"# {line}\n" for line in finished.stderr.splitlines())
        changed = masks.text(change(finished.stdout, masks))
        archive.add(f"{_DIRECTORY}/{name}", (head + masks.text(errors) + changed).encode())
        added.append(name)
        return finished.stdout

    run("version.txt", _unchanged, "--version")
    offered = parse_help_columns(run("help-query-gpu.txt", _unchanged, "--help-query-gpu"))
    columns = sorted({name for name, *_ in offered})
    if columns:
        run("query-gpu.csv", mask_table, f"--query-gpu={','.join(columns)}", "--format=csv")
    run("query-compute-apps.csv", mask_table, f"--query-compute-apps={','.join(APP_COLUMNS)}", "--format=csv")
    run("report.xml", mask_report, "-q", "-x")
    if not added:
        raise Unavailable(f"{program} printed nothing in time", "check the driver: dmesg | grep NVRM")
    return [f"captured {len(added)} outputs of {program}"]


def mask_table(text: str, masks: Masks) -> str:
    """A CSV table of nvidia-smi without what identifies; other text has no rows and stays as it is."""
    header, *rows = text.splitlines() or [""]
    columns = [match[1] if (match := _HEADER.fullmatch(cell)) else "" for cell in header.split(",")]
    lines = [header]
    for row in rows:
        cells = row.split(", ")
        if len(cells) > len(columns) and "process_name" in columns:  # a name may hold a comma
            place = columns.index("process_name")
            extra = len(cells) - len(columns) + 1
            cells[place : place + extra] = [", ".join(cells[place : place + extra])]
        if len(cells) != len(columns):
            lines.append(f"({len(cells)} cells left out)" if row else "")
            continue
        lines.append(
            ", ".join(_mask(column, cell, masks) for column, cell in zip(columns, cells, strict=True))
        )
    return "\n".join(lines) + "\n" if text else ""


def mask_report(text: str, masks: Masks) -> str:
    """The XML report without what identifies."""

    def element(match: re.Match[str]) -> str:
        return f"<{match['tag']}>{_mask(match['tag'], match['text'], masks)}</{match['tag']}>"

    return _ELEMENT.sub(element, text)


def _mask(name: str, value: str, masks: Masks) -> str:
    """The value of a column or element of this name."""
    if not _PRIVATE.search(name) or not value.strip() or value.strip() in ("N/A", "[N/A]"):
        return value
    lower = name.lower()
    if "uuid" in lower:
        return masks.uuid(value)
    if lower.endswith("pid"):
        return str(masks.pid(int(value))) if value.strip().isdigit() else value
    if "process" in lower:
        return masks.name(value)
    return masks.serial(value) if "serial" in lower else "hidden"


def _unchanged(text: str, masks: Masks) -> str:  # noqa: ARG001
    return text
