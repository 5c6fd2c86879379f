"""How every file is written that a user may have named, and the one error where that cannot be.

A regular file is replaced whole. What is no regular file (a device, a pipe) is written to and stays what it is, and so
does a symbolic link: its target is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from secrets import token_hex

#: There is no room, or no more than a limit allows.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Nobody may write there.
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
#: A disk with fewer free bytes counts as full: what is written is removed again when it fails, so some are left.
SCARCE = 1 << 20
#: Characters of a name that its temporary file has too: with 4 bytes each they leave room for the rest.
_NAMED = 50


class WriteError(OSError):
    """A file or folder that cannot be written. `errno`, `strerror`, `filename` say what and why, its text also how to
    mend that."""

    def __str__(self) -> str:
        return f"{self.filename}: cannot be written: {self.strerror}; {self._mend()}"

    def _mend(self) -> str:
        if self.errno == errno.EFBIG:
            return "raise the limit on the size of files (ulimit -f), or name another place"
        if self.errno in FULL:
            return "make room there, or name another place"
        return "permit writing there, or name another place" if self.errno in FORBIDDEN else "name another place"


def write_error(error: OSError, path: str | os.PathLike[str]) -> WriteError:
    """What the system says when `path` cannot be written, as the error of all commands."""
    return WriteError(error.errno or errno.EIO, error.strerror or str(error), os.fspath(path))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that readers see the old or the complete new one. Makes its folder if need be.

    Raises WriteError, and UnicodeEncodeError for text that is none; the old file is left then.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _write(path, data)
    except OSError as error:
        raise write_error(error, path) from error


def check_writable(*paths: Path) -> None:
    """Looks whether files can be written, before work begins whose results they are to hold. Leaves nothing behind.
    Raises WriteError."""
    for path in paths:
        try:
            _check(path)
        except OSError as error:
            raise write_error(error, path) from error


def is_full(folder: Path, scarce: int = SCARCE) -> bool:
    """Whether fewer than `scarce` bytes are free on the disk of a folder; False if there is no such folder."""
    try:
        return shutil.disk_usage(folder).free < scarce
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    there = _there(path)
    if there is not None and (handle := _opened(path, there)) is not None:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return
    target = Path(os.path.realpath(path))  # of a link, what it leads to
    target.parent.mkdir(parents=True, exist_ok=True)
    name = target.parent / f".{target.name[:_NAMED]}.{token_hex(8)}"
    # a new file has the rights that the user's umask leaves it; one that is replaced keeps its own
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if there is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)  # some file systems say only now that there is no room
            if there is not None:
                os.fchmod(handle, stat.S_IMODE(there.st_mode))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _there(path: Path) -> os.stat_result | None:
    """What is at a path, behind links; None if nothing is. Raises OSError if it may not be written."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.W_OK):  # replacing it would need no right to write it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


def _opened(path: Path, there: os.stat_result) -> int | None:
    """A descriptor to write with to what must stay what it is: no regular file, or the one that our output goes to
    (`--out /dev/stdout > FILE`). None for any other file."""
    if not stat.S_ISREG(there.st_mode):
        return os.open(path, os.O_WRONLY)  # without O_CREAT: it never makes a file
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by one without
            if os.path.samestat(os.fstat(stream.fileno()), there):
                stream.flush()
                return os.dup(stream.fileno())
    return None


def _check(path: Path) -> None:
    there = _there(path)
    if there is not None and not stat.S_ISREG(there.st_mode):
        return  # opening it could wait for a reader
    place = Path(os.path.realpath(path)).parent
    while not place.exists() and place != place.parent:
        place = place.parent
    with tempfile.TemporaryFile(dir=place):
        pass
