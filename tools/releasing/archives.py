"""Archives whose bytes depend only on the names and contents of their files, and on one time."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime

Files = Mapping[str, bytes]
"""By the path in the archive."""


def tar_gz(files: Files, seconds: int) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=seconds) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), seconds, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def zipped(files: Files, seconds: int) -> bytes:
    moment = datetime.fromtimestamp(seconds, UTC).timetuple()[:6]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr, entry.create_system = 0o100644 << 16, 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()
