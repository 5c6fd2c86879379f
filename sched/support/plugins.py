"""Things by name: those that ship, those of installed packages, and those in any module or file.

A name is looked up among what ships, then among the entry points of installed packages. `package.module:thing` and
`path/to/file.py:thing` name one without registering it. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Generic, TypeVar

from meshloom.hw.spec.near import near

from . import apart, file_modules
from .last_words import is_same
from .limits import limits_for
from .sockets import refused
from .text import line_of

T = TypeVar("T")
#: How many names of what a module has are told.
_NAMED = 5


class PluginError(ValueError):
    """A name that means nothing, or something that cannot be loaded; the message says what there is, or the fix."""


class Registry(Generic[T]):
    """Things of one kind by name.

    `what`: the kind, for messages ("scheduler"); `group`: the entry points of other packages; `shipped`: name to
    `module:thing`; `accept(name, thing)` makes a T of what was found, or raises TypeError with what it must be.
    `tried`: what does not ship is first loaded in a process of its own, so that one that crashes or never ends is an
    error like any other.
    """

    def __init__(
        self, what: str, group: str, shipped: Mapping[str, str], accept: Callable[[str, object], T],
        error: type[PluginError] = PluginError, tried: bool = False,
    ) -> None:  # fmt: skip
        self.what, self.group, self.accept, self.error, self.tried = what, group, accept, error, tried
        self.shipped = dict(shipped)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in _entry_points(tuple(sys.path)).get(self.group, ())}

    def names(self) -> tuple[str, ...]:
        """Names of what ships and of what installed packages register, sorted."""
        return tuple(sorted({*self.shipped, *self._installed}))

    def place(self, name: str) -> str:
        """The module or file of what a name or a reference means; it need not be there."""
        return self._reference(name).partition(":")[0]

    def _reference(self, name: str) -> str:
        return self.shipped.get(name) or (self._installed[name].value if name in self._installed else name)

    def hidden(self) -> tuple[str, ...]:
        """What installed packages register under a name of what ships, and nobody gets: a sentence of each."""
        return tuple(
            f"{self.what} {name} of {point.value.partition(':')[0]} is not used: {name} ships with Meshloom; give its "
            "entry point another name"
            for name, point in sorted(self._installed.items())
            if name in self.shipped
        )

    def split(self, text: str) -> tuple[str, str]:
        """A name, or a reference `place:thing`, and what follows its colon: `flexer:budget=2M`."""
        first, _, rest = text.partition(":")
        if first in self.shipped or first in self._installed:
            return first, rest
        second, _, last = rest.partition(":")
        if second and "=" not in second:
            return f"{first}:{second}", last
        return first, rest

    def get(self, name: str) -> T:
        """What that name or reference means. Raises `error`, naming what there is or what is wrong with it."""
        if _is_file(name.partition(":")[0]):  # which may have changed, or be another one in another folder
            return self._load(name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        reference = self._reference(name)
        place, colon, thing = reference.partition(":")
        if name == reference and not _is_file(place) and (not colon or not _is_place(place)):
            self._unknown(name)
        is_there = not _is_file(place) or Path(place).expanduser().exists()
        if not thing and not is_there:
            raise self._unnamed(name, place)
        if self.tried and name not in self.shipped:
            self._try(name, place)
        module = self._module(name, place)
        if not thing:
            raise self._unnamed(name, place, self._own(name, module))
        target: object = module
        for part in thing.split("."):
            if not hasattr(target, part):
                hint = near(part, [key for key in vars(target) if not key.startswith("_")])
                if not hint and target is module and (own := self._own(name, module)):
                    hint = f"it has {', '.join(own)}"
                raise self.error(f"{self.what} {name}: {place} has no {thing}" + (hint and f"; {hint}"))
            target = getattr(target, part)
        try:
            return self.accept(name, target)
        except TypeError as wrong:
            raise self.error(f"{self.what} {name}: {thing} of {place} {wrong}") from None

    def _unnamed(self, name: str, place: str, own: Sequence[str] = ()) -> PluginError:
        """For a file or module alone. `own`: what is in it."""
        some = f", one of {', '.join(own)}" if len(own) > 1 else ""
        named = own[0] if len(own) == 1 else "NAME"
        return self.error(
            f"{self.what} {name}: {place} is not a {self.what}; name the one in it: {place}:{named}{some}"
        )

    def _own(self, name: str, module: ModuleType) -> list[str]:
        """What a module has itself made that could be meant, objects before functions."""
        objects: list[str] = []
        functions: list[str] = []
        for key, value in vars(module).items():
            maker = str(getattr(value, "__module__", ""))
            if key.startswith("_") or (callable(value) and maker != module.__name__):
                continue
            with suppress(Exception):
                self.accept(name, value)
                (functions if callable(value) else objects).append(key)
        return [*objects, *functions][:_NAMED]

    def _unknown(self, name: str) -> None:
        place = name.partition(":")[0]
        if Path(place).is_dir() and (files := sorted(Path(place).glob("*.py"))):
            raise self.error(
                f"{self.what} {name}: {place} is a folder; name the file in it and what it is called there: "
                f"{files[0]}:NAME"
            )
        hint = near(name.partition(":")[0], self.names()) or "others are named by package.module:NAME or FILE.py:NAME"
        raise self.error(f"unknown {self.what} {name!r}; known are {', '.join(self.names())}; {hint}")

    def _module(self, name: str, place: str) -> ModuleType:
        try:
            with _apart_from_us():
                return file_modules.load(Path(place)) if _is_file(place) else import_module(place)
        except (Exception, SystemExit, GeneratorExit) as wrong:
            if isinstance(wrong, FileNotFoundError) and _is_file(place) and not Path(place).expanduser().exists():
                raise self.error(f"{self.what} {name}: there is no file {place}") from None
            raise self._unloaded(name, place, wrong) from wrong

    def _unloaded(self, name: str, place: str, wrong: BaseException) -> PluginError:
        return self.error(f"{self.what} {name} cannot be loaded: {failure(place, wrong)}")

    def _try(self, name: str, place: str) -> None:
        """Loads a module in a process of its own. Raises `error` if that is the end of the process."""
        limits = limits_for(shipped=False)
        if limits is None or (not _is_file(place) and place in sys.modules):
            return

        def load(report: apart.Report) -> None:
            try:
                self._module(name, place)
            except self.error as error:  # others will be raised where it is loaded, with their tracebacks
                if refused(error):
                    raise

        def explain(wrong: BaseException) -> BaseException:
            return wrong if isinstance(wrong, self.error) else self._unloaded(name, place, wrong)

        try:
            apart.call(load, limits, explain)
        except apart.DiedError as death:
            here = str(Path(place).expanduser().resolve()) if _is_file(place) else ""
            lines = [line for path, line in death.frames if here and is_same(path, here)]
            where = f" ({line_of(here, lines[0])})" if lines else ""
            raise self.error(f"{self.what} {name} cannot be loaded: {death.what}{where}") from None


def failure(name: str, error: BaseException) -> str:
    """What has gone wrong in the code of a plugin, by its name or place: the error, and its line in the plugin's own
    file."""
    kind, text, place = type(error).__name__, str(error), name.partition(":")[0]
    return f"{kind}{': ' * bool(text)}{text}{file_modules.lies_beside(error, place)}{_line(error, place)}"


@cache
def _entry_points(path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """By group: whoever asks for one reads what all packages on `path` say of themselves."""
    points = entry_points()
    return {group: tuple(points.select(group=group)) for group in points.groups}


@contextmanager
def _apart_from_us() -> Generator[None]:
    """Keeps what a module prints away from stdout, and the folder as it is."""
    before = Path.cwd()
    with redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            os.chdir(before)


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _is_place(place: str) -> bool:
    """Whether something could be a file or a module of some package, rather than a mistyped name."""
    if _is_file(place):
        return True
    if not all(part.isidentifier() for part in place.split(".")):
        return False
    from importlib.util import find_spec

    try:
        return "." in place or find_spec(place) is not None
    except (ImportError, ValueError):
        return False


def _line(error: BaseException, place: str) -> str:
    """The line of a plugin's own file that failed, if that is known."""
    if isinstance(error, SyntaxError) or not _is_file(place):
        return ""
    here = str(Path(place).expanduser().resolve())
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == here]
    return f" ({line_of(here, lines[-1])})" if lines else ""
