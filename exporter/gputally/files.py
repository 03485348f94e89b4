"""Files that something else can have replaced: by a link, a pipe, a device, or one without end."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, content: bytes, *, unfinished: str, mode: int, sync: bool) -> None:
    """A reader gets the old content or the new, never a part. Raises OSError; then the old file is unchanged.

    `unfinished` is the name of the temporary file beside it, which is removed first. No link is followed, and
    only a regular file or a link is replaced: not a device, for example `/dev/null`. The rename is the last
    step: after a failure the new content is not at `path`. `sync` reports errors of the disk before that.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not replaceable(path, directory):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=directory)  # a writer that was killed may have left it
        with os.fdopen(os.open(unfinished, _CREATE, 0o600, dir_fd=directory), "wb") as file:
            try:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                if sync:
                    os.fsync(file.fileno())
                os.rename(unfinished, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=directory)
                raise
    finally:
        os.close(directory)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file. It never waits for a writer, as it would at a pipe. Raises OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes:,} bytes", str(path))
    return content


def replaceable(path: Path, directory: int | None = None) -> bool:
    """Whether there is no file at the path, or one that may be replaced or removed."""
    try:
        name = path if directory is None else path.name
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
