"""A capture as one file: a compressed tar archive, built in memory so that it needs no writable directory."""

import io
import tarfile

MOST_BYTES = 128 << 20


class Archive:
    """Files and links without owners and times. What would exceed the limit is left out and listed."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.names: set[str] = set()
        self.left_out: list[str] = []
        self._room = most_bytes
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w:gz")  # noqa: SIM115 - closed by `close`

    def add(self, name: str, content: bytes) -> None:
        if name in self.names:
            return
        if len(content) > self._room:
            self.left_out.append(name)
            return
        self._room -= len(content)
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        self.names.add(name)
        self._tar.addfile(entry, io.BytesIO(content))

    def link(self, name: str, to: str) -> None:
        if name in self.names:
            return
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, to
        self.names.add(name)
        self._tar.addfile(entry)

    def close(self) -> bytes:
        """The archive's content."""
        self._tar.close()
        return self._buffer.getvalue()
