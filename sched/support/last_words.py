"""What a process that runs foreign code (`apart`) leaves behind of the place where it was, and its limits.

`faulthandler` writes the calls of a process into a pipe when a signal hits it, without Python's help. What it cannot
see is noted before it happens: `os._exit`, `exit` of C code, and a SIGKILL that a process sends itself.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The signal on which a process says where it is.
WHERE = signal.SIGUSR2
#: Those that end a process by themselves, and that `faulthandler.enable` leaves out.
_DEADLY = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGXCPU", "SIGSYS", "SIGTRAP")
#: What C code may call until the process ends.
_HOOKS: list[object] = []
#: Memory that is kept back, so that there is some to say that there is none: more than Python takes at once.
_RESERVE = 4 << 20
_kept: list[bytearray] = []
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


def frames(words: str) -> tuple[tuple[str, int], ...]:
    """File and line of the calls that a process has left last, the innermost first."""
    lines = [(path, int(line)) for path, line in _FRAME.findall(words.rpartition("(most recent call first)")[2])]
    own = {_plain(str(Path(__file__).with_name(f"{name}.py"))) for name in ("last_words", "apart", "sockets")}
    return tuple((path, line) for path, line in lines if path not in own)


def is_same(path: str, source: str) -> bool:
    """Whether a path among `frames` is that file."""
    return path == _plain(source)


def _plain(path: str) -> str:
    """A path as faulthandler writes it: at most 500 characters, others than ASCII escaped."""
    shown = path[:500].encode("ascii", "backslashreplace").decode()
    return shown + ("..." if len(path) > 500 else "")


def prepare(words: int, source: str) -> None:
    """Makes this process leave its calls in the file descriptor `words`. `source`: the file that may have imported
    `os._exit` by name."""
    leave_no_core()
    # `cancel_dump_traceback_later` is not called: the thread that it would wait for is the caller's, and not here
    faulthandler.enable(words, all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its caller hears of it, and ends this process
    for name in _DEADLY:
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_DFL)
            faulthandler.register(number, words, all_threads=False, chain=True)
    faulthandler.register(WHERE, words, all_threads=False)
    _trace_c_exits(words)
    _trace_exits(words, source)
    here, nothing = os.getpid(), os.open(os.devnull, os.O_WRONLY)

    def fall_silent() -> None:
        with suppress(OSError):
            os.dup2(nothing, words)

    os.register_at_fork(after_in_child=fall_silent)  # or the ends of many workers would fill the pipe, and none go on

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.kill" and arguments == (here, signal.SIGKILL):
            faulthandler.dump_traceback(words, all_threads=False)

    sys.addaudithook(heard)


def _trace_exits(words: int, source: str) -> None:
    leave = os._exit

    def traced(status: int) -> None:
        with suppress(OSError, ValueError):
            faulthandler.dump_traceback(words, all_threads=False)
        leave(status)

    for module_name, module in list(sys.modules.items()):
        own: dict[str, Any] = getattr(module, "__dict__", {})
        if module_name in ("os", "posix") or (source and own.get("__file__") == source):
            for name in [name for name, value in own.items() if value is leave]:
                setattr(module, name, traced)


def _trace_c_exits(words: int) -> None:
    leave = os._exit
    with suppress(ImportError, OSError, AttributeError):  # glibc has it
        import ctypes

        libc = ctypes.CDLL(None)

        @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
        def traced(status: int, nothing: object) -> None:
            faulthandler.dump_traceback(words, all_threads=False)
            libc.fflush(None)
            leave(status)  # what libraries do at exit may wait for threads of the caller, which are not here

        libc.on_exit(traced, None)
        _HOOKS.append(traced)


def bound_memory(megabytes: int | None) -> None:
    """Lets this process take so much memory beside what it has. Where the system does not say how much it has (Linux
    does), there is no bound."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _kept.append(bytearray(_RESERVE))
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = resource.RLIM_INFINITY if megabytes is None else used + (megabytes << 20)
        if most != resource.RLIM_INFINITY:
            resource.setrlimit(
                resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
            )


def leave_no_core() -> None:
    """Makes this process leave no memory image when it crashes."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def lift_memory() -> None:
    """Takes the bound away again, for what is left to do when it has been reached."""
    _kept.clear()  # first of all: what follows takes memory
    with suppress(ImportError, OSError, ValueError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def die_with(caller: int) -> None:
    """Makes the system end this process when its caller ends, where it can (Linux)."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
    if os.getppid() != caller:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)
