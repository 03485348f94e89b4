"""HTTP for scrapers, probes and people. Knows no GPUs: it serves the `Pages` that it is given.

The protocol is parsed by httptools (llhttp) on asyncio; what stands here is what no library had at
this cost: the limits that keep slow and hostile clients from delaying a scrape.
"""

from gputally.server.errors import ListenError, PathError, ServerError, WebConfigError
from gputally.server.limits import Limits
from gputally.server.pages import Page, Pages
from gputally.server.serving import Server

__all__ = ["Limits", "ListenError", "Page", "Pages", "PathError", "Server", "ServerError", "WebConfigError"]
