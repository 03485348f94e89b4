"""The table of docs/xids.md, with every XID code, and those of the two runbooks."""

from collections.abc import Callable

from alerts.model import Severity
from alerts.xids import XIDS, Resolution, Xid
from tools.rendering.markdown import put, table

_BY_DRIVER = "`GPUTallyRecoveryNeeded`"


def _every_code(text: str) -> str:
    head = ("XID", "fault", "cause", "NVIDIA's resolution", "action", "alert")
    rows = [
        (str(xid.code), xid.meaning, xid.cause, xid.resolution, xid.action, _alert(xid))
        for xid in XIDS.values()
    ]
    return put(table(head, rows), "xids", "docs/xids.md", text)


def _of_severity(severity: Severity, page: str) -> Callable[[str], str]:
    rows = [
        (str(xid.code), xid.meaning, xid.action, xid.resolution)
        for xid in XIDS.values()
        if xid.severity is severity
    ]
    head = ("XID", "fault", "action", "NVIDIA's resolution")
    return lambda text: put(table(head, rows), "xids", page, text)


def _alert(xid: Xid) -> str:
    if xid.severity is not None:
        return xid.severity
    return _BY_DRIVER if xid.resolution is Resolution.RECOVERY_ACTION else ""


_CRITICAL, _WARNING = (f"docs/runbooks/GPUTallyXid{name}.md" for name in ("Critical", "Warning"))
PAGES = (
    ("docs/xids.md", _every_code),
    (_CRITICAL, _of_severity(Severity.CRITICAL, _CRITICAL)),
    (_WARNING, _of_severity(Severity.WARNING, _WARNING)),
)
