"""HTTP for scrapers, probes and browsers. It imports nothing about GPUs: it serves `Endpoint`s by path.

httptools (llhttp) parses the protocol on asyncio; the rest is here because no library had these limits,
which keep slow and hostile clients from delaying a scrape, at this cost.
"""

from gputally.server.errors import ListenError, PathError, ServerError, WebConfigError
from gputally.server.http1 import Response, text_response
from gputally.server.limits import Limits
from gputally.server.routes import Endpoint
from gputally.server.server import Server, format_address, parse_address

__all__ = [
    "Endpoint",
    "Limits",
    "ListenError",
    "PathError",
    "Response",
    "Server",
    "ServerError",
    "WebConfigError",
    "format_address",
    "parse_address",
    "text_response",
]
