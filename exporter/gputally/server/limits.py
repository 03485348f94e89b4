"""The limits of the HTTP server: time-outs, sizes and numbers, for each client and all together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Generous for browsers and scrapers, tight for the rest."""

    idle_seconds: float = 150.0
    """Between two requests: longer than common scrape intervals."""
    request_seconds: float = 5.0
    """From the first byte of a request (or the connection) to its last."""
    response_seconds: float = 20.0
    """Until a response is ready; only the verification of a password takes time."""
    stall_seconds: float = 10.0
    """For a client to read the next piece of its response."""
    stream_seconds: float = 600.0
    """For a stream: a client that opens the next one has to be admitted again."""
    linger_seconds: float = 2.0
    """For a client to close its side after the server has closed."""
    handshake_seconds: float = 5.0
    """For the TLS handshake."""
    shutdown_seconds: float = 0.6
    """For responses in progress when the server stops."""
    connections: int = 256
    pipelined_requests: int = 16
    header_bytes: int = 16 * 1024
    header_fields: int = 128
    body_bytes: int = 4 * 1024
    discarded_bytes: int = 256 * 1024
    """Sent by a client after its request was refused, while it reads the refusal."""

    @property
    def waiting_logins(self) -> int:
        """Connections whose passwords are to be verified: the other half stays free."""
        return (self.connections + 1) // 2
