"""Random inputs near those of a corpus; always the same for a seed."""

import random
from collections.abc import Iterator, Sequence

TOKENS = (
    *(b"\0", b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"#", b"/", b"%0A"),
    *(b"NaN", b"+Inf", b"-1", b"1e999999", b"0x7f", b"9" * 5_000, b"[N/A]", b"null", b"true"),
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\x80", "\u00b2".encode(), "\u2028".encode(), "\U0001f600".encode()),
)
_MOST_CHANGES = 5


def inputs(corpus: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """The corpus, and then mutations of it without end."""
    yield from corpus
    chosen = random.Random(seed)
    known = [*corpus, b""]
    while True:
        data = chosen.choice(known)
        for _ in range(chosen.randint(1, _MOST_CHANGES)):
            data = _changed(data, known, chosen)
        yield data


def _changed(data: bytes, known: Sequence[bytes], chosen: random.Random) -> bytes:
    start = chosen.randint(0, len(data))
    end = min(len(data), start + chosen.choice((0, 1, 1, 2, 8, 64)))
    other = chosen.choice(known)
    at = chosen.randint(0, len(other))
    replacement = chosen.choice(
        (
            b"",
            chosen.randbytes(end - start),
            chosen.choice(TOKENS),
            other[at : at + chosen.choice((1, 8, 64))],
            data[start:end] * 2,
        )
    )
    return data[:start] + replacement + data[end:]
