"""Where a bill goes: standard output, a file, a directory of bills, and a webhook."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from gputally.commands.bill.model import Bill
from gputally.commands.servers import RemoteServer
from gputally.files import replace_file

SUFFIXES: Mapping[str, str] = {
    "table": ".txt",
    "json": ".json",
    "csv": ".csv",
    "html": ".html",
    "focus": ".focus.csv",
}
_TYPES = {
    ".txt": "text/plain",
    ".json": "application/json",
    ".csv": "text/csv",
    ".html": "text/html",
}
_MODE = 0o644


class BadWebhook(Exception):
    """The file of the webhook has no URL."""


def file_name(bill: Bill, form: str) -> str:
    """Sorted by name, the bills of one grouping and format are in the order of time."""
    start, end = (bill.period.local(at)[:10] for at in (bill.period.start, bill.period.end))
    return f"gpu-bill-{bill.by}-{start}-{end}{SUFFIXES[form]}"


def bill_before(directory: Path, name: str) -> Path | None:
    """The newest bill in the directory that is older than the one with this name, and otherwise alike."""
    alike = re.sub(r"\d{4}-\d\d-\d\d", "????-??-??", name)
    older = [path for path in directory.glob(alike) if path.name < name]
    return max(older, default=None)


def write(text: str, path: Path | None, out: TextIO) -> None:
    """Raises OSError; then the file is unchanged."""
    if path is None:
        out.write(text)
        out.flush()
        return
    replace_file(path, text.encode(), unfinished=f".{path.name}.tmp", mode=_MODE, sync=True)


def post(text: str, name: str, webhook: Path, timeout_seconds: float) -> None:
    """Raises RequestFailed and BadWebhook. The URL is a secret: no message has it."""
    url = webhook.read_text().strip()
    if not re.match(r"https?://[^/\s]+", url):
        raise BadWebhook(f"--webhook {webhook} has no URL; it takes http://HOST/PATH or https://HOST/PATH")
    headers = {
        "Content-Type": f"{_TYPES[Path(name).suffix]}; charset=utf-8",
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    RemoteServer(url, headers=headers, timeout_seconds=timeout_seconds).post(text.encode())
