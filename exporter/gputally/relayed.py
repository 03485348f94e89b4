"""Pages with another exporter's text: alone, or after ours. Imported only for --relay."""

import re
from io import BytesIO

from gputally.metrics.exposition import TEXT, Exposition
from gputally.pages import exposed
from gputally.relay.source import Relayed
from gputally.server import Page

_EOF = b"# EOF\n"
_NAME = re.compile(rb"^(?:# (?:HELP|TYPE|UNIT) )?([a-zA-Z_:][a-zA-Z0-9_:]*)", re.MULTILINE)


class RelayedMetrics:
    """The text that was relayed last; nothing while there is none."""

    def __init__(self) -> None:
        self._page = Page(TEXT, b"")

    def publish(self, relayed: Relayed | None) -> None:
        self._page = Page(relayed.content_type, relayed.text) if relayed else Page(TEXT, b"")

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


def joined(ours: bytes, theirs: bytes) -> bytes:
    """Both texts as one. A family that ours has is left out of theirs: no name may be there twice."""
    known = set(_NAME.findall(ours))
    kept = (line for line in BytesIO(theirs) if (name := _NAME.match(line)) is None or name[1] not in known)
    return ours.removesuffix(_EOF) + b"".join(kept)
