"""Pages with another exporter's text: alone, or after ours. Imported only for --relay."""

import re
from dataclasses import dataclass
from io import BytesIO

from gputally.metrics.exposition import Exposition
from gputally.pages.exporter import exposed
from gputally.relay.source import Relayed
from gputally.server import Page

_EOF = b"# EOF\n"
_NAME = re.compile(rb"^(?:# (?:HELP|TYPE|UNIT) )?([a-zA-Z_:][a-zA-Z0-9_:]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Missing(Page):
    """Why there is nothing: so that a scraper sees a target that is down, not one without metrics."""

    status: int = 503


class RelayedMetrics:
    """The text that was relayed last; while there is none, why."""

    def __init__(self) -> None:
        self._page = _missing("the first sample is not done")

    def publish(self, relayed: Relayed | None, why_none: str) -> None:
        self._page = Page(relayed.content_type, relayed.text) if relayed else _missing(why_none)

    def page(self, _openmetrics: bool, _gzip: bool) -> Page:
        """In the format in which it came: what is in one of them the other cannot always say."""
        return self._page


class OursAndRelayed:
    """Our metrics, then the text that was relayed last; for that, all is in the format in which it came."""

    def __init__(self, ours: Exposition) -> None:
        self._ours = ours
        self._page: Page | None = None

    def publish(self, relayed: Relayed | None) -> None:
        """Call it after `ours` has its snapshot."""
        if relayed is None:
            self._page = None
            return
        ours = self._ours.body(openmetrics=relayed.openmetrics, gzipped=False)
        self._page = Page(relayed.content_type, joined(ours, relayed.text))

    def page(self, openmetrics: bool, gzip: bool) -> Page:
        return self._page or exposed(self._ours)(openmetrics, gzip)


def _missing(why: str) -> Page:
    return Missing("text/plain; charset=utf-8", f"nothing is relayed: {why}\n".encode())


def joined(ours: bytes, theirs: bytes) -> bytes:
    """Both texts as one. A family that ours has is left out of theirs: no name may be there twice."""
    known = set(_NAME.findall(ours))
    kept = (line for line in BytesIO(theirs) if (name := _NAME.match(line)) is None or name[1] not in known)
    return ours.removesuffix(_EOF) + b"".join(kept)
