"""Takes the network away from a process, for code that does not ship with Meshloom.

Two things at once, because neither is enough. An audit hook refuses what Python's own sockets are asked for, and says
so in one sentence. A network namespace of its own (`unshare`, Linux) leaves the process not even the machine itself to
talk to, whatever code asks. Where the system refuses the second (another system, or a container that forbids it), only
the first holds; `namespaces` tells which it is. Sockets in the file system (AF_UNIX) stay: pipes between processes
are made of them.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

#: Flags of `unshare`: a user namespace, in which anybody may make a network namespace, which is the other.
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
#: What reaches others, or lets them reach this process; the place of the address among the arguments, or of its name.
_REACHES = {
    "socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.bind": 1,
    "socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0,
}  # fmt: skip

#: What holds where the system gives no namespace, for people.
HALF = "this system cannot take the network away from a process; Python's own sockets are refused, and nothing else is"


class NetworkRefused(OSError):
    """A process without a network wanted to reach something. `errno` is EACCES."""

    def __str__(self) -> str:
        return self.strerror or ""


def refused(error: BaseException) -> NetworkRefused | None:
    """Whether an error comes of that: libraries raise their own from it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NetworkRefused):
        cause = cause.__cause__ or cause.__context__
    return cause


def leave() -> bool:
    """Takes the network away from this process and from those that it starts, for good. Whether the system does that;
    if not, Python's own sockets alone are refused."""
    sys.addaudithook(_refuse)
    return _unshare()


@cache
def namespaces() -> bool:
    """Whether this system gives a process a network namespace of its own: a copy of this one has tried."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads here, of which the copy uses nothing
        pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if _unshare() else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _unshare() -> bool:
    """Root needs no user namespace, and keeps its rights to files without one."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        user, group = os.geteuid(), os.getegid()
        libc = ctypes.CDLL(None)
        if libc.unshare(_NEW_NET) == 0:
            return True
        if libc.unshare(_NEW_USER | _NEW_NET) == 0:
            names = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
            for name, text in names.items():
                with suppress(OSError):  # or it is nobody by name, with the same rights to files
                    Path("/proc/self", name).write_text(text)
            return True
    return False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _REACHES:
        return
    place = _REACHES[event]
    address = arguments[place] if place else arguments[:2]
    if place:
        import socket

        family = getattr(arguments[0], "family", None)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return
    raise NetworkRefused(errno.EACCES, f"it may not use the network, and asked for {_text(address)} (--network)")


def _text(address: object) -> str:
    """An address as people write it."""
    parts = cast("tuple[object, ...]", address) if isinstance(address, tuple) else (address,)
    shown = (part.decode("ascii", "replace") if isinstance(part, bytes) else str(part) for part in parts[:2])
    return ":".join(each for each in shown if each != "None") or "somebody"
