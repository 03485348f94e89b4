"""What one client, or all of them together, may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Generous for people and scrapers, tight for the rest."""

    connections: int = 256
    header_bytes: int = 16 * 1024
    body_bytes: int = 4 * 1024
    pipelined_requests: int = 16
    discarded_bytes: int = 256 * 1024
    """What a refused client may still send while it reads the refusal."""
    handshake_seconds: float = 5.0
    request_seconds: float = 5.0
    """From the first byte of a request (or the connection) to its last."""
    idle_seconds: float = 150.0
    """Between requests: longer than the scrape intervals that people use."""
    answer_seconds: float = 20.0
    """Until an answer is found; only a password that has to be verified takes any time."""
    stall_seconds: float = 10.0
    """For a client to take the next piece of its answer."""
    linger_seconds: float = 2.0
    """For a client that we have hung up on to hang up too."""
