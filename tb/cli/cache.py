"""`meshloom cache`: shows what is kept between runs and how much space it takes, and removes it."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Json, examples
from ..build.tools import ToolError
from .outputs import STDOUT, check_places, put

if TYPE_CHECKING:
    from rich.console import Console

    from meshloom.sched.store.entries import Entry
    from meshloom.sched.store.kinds import Kind

    from ..results.cache import CacheContents, CacheKind, CacheRemoval, RemovedKind

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

app = typer.Typer(
    help="Show or clean what is kept between runs: simulators, found schedules, compiled code, folders of runs.",
    epilog=examples(
        "meshloom cache", "meshloom cache --json - | jq .bytes", "meshloom cache clean simulators --older-than 30d"
    ),
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class CleanError(ToolError):
    """An entry of the cache cannot be removed; the message names it."""


@dataclass(frozen=True)
class _Shelf:
    """A kind with its entries, least recently used first."""

    kind: Kind
    entries: list[Entry]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


@app.callback(invoke_without_command=True)
def cache(context: typer.Context, json: Json = None) -> None:
    """Show or clean what is kept between runs: simulators, found schedules, compiled code, folders of runs.

    All of it can be rebuilt. It is kept below one root: `sim_build/` of a checkout, the user's cache folder otherwise,
    or MESHLOOM_CACHE. Each kind has a share of MESHLOOM_CACHE_MB (20000); beyond it, the least recently used entries
    are removed, but never those that a running process uses.
    """
    if context.invoked_subcommand is None:
        _show(json)
    elif json is not None:
        raise typer.BadParameter(f"belongs after {context.invoked_subcommand}", param_hint="--json")


@app.command(epilog=examples("meshloom cache show", "meshloom cache show --json cache.json"))
def show(json: Json = None) -> None:
    """Show what is kept: entries, sizes, when they were last used, and the limits. The default."""
    _show(json)


@app.command(
    epilog=examples(
        "meshloom cache clean", "meshloom cache clean simulators --older-than 30d", "meshloom cache clean --yes"
    )
)
def clean(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND", help="Kinds to remove (see `meshloom cache`).", show_default="all"),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only entries unused for at least this long, such as 12h, 30d or 4w."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = None,
) -> None:
    """Remove what is kept and not in use. It is rebuilt when needed."""
    from ..report.cache import megabytes
    from ..results.cache import CacheRemoval

    check_places(json)
    age = 0.0 if older_than is None else _seconds(older_than)
    before = time.time() - age if older_than is not None else float("inf")
    chosen = [
        (shelf.kind, [entry for entry in shelf.entries if entry.used <= before]) for shelf in _shelves(kinds or [])
    ]
    screen = _screen(json)
    count = sum(len(entries) for _, entries in chosen)
    size = sum(entry.size for _, entries in chosen for entry in entries)
    if count and not yes:
        what = f"remove {_entries(count)}, {megabytes(size)}"
        if not _person():
            raise typer.BadParameter(f"would {what}; confirm with --yes: no terminal to ask on", param_hint="--yes")
        if not typer.confirm(f"{what}?", err=True):
            chosen = []
    values = tuple(_remove(kind, entries) for kind, entries in chosen)
    removed, freed = sum(one.removed for one in values), sum(one.bytes for one in values)
    used = sum(one.in_use for one in values)
    screen.print(
        f"removed {_entries(removed)}, {megabytes(freed)}" + (f"; {used} in use kept" if used else ""), markup=False
    )
    _write(json, CacheRemoval(removed=removed, bytes=freed, in_use=used, kinds=values))
    if failed := [words for one in values for words in one.failed]:
        raise CleanError(f"{len(failed)} could not be removed; the first: {failed[0]}")


def _person() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _remove(kind: Kind, entries: list[Entry]) -> RemovedKind:
    """Removes the entries that are not in use; returns what was and was not removed."""
    from meshloom.sched.store.entries import sweep

    from ..results.cache import RemovedKind

    removed = freed = used = 0
    failed: list[str] = []
    for entry in entries:
        try:
            if entry.remove():
                removed, freed = removed + 1, freed + entry.size
            elif entry.path.exists():
                used += 1
        except OSError as error:
            failed.append(f"{error.filename or entry.path}: {error.strerror or error}")
    sweep(kind.folder())
    return RemovedKind(kind=kind.name, removed=removed, bytes=freed, in_use=used, failed=tuple(failed))


def _show(json: Path | None) -> None:
    from meshloom.sched.store import cache

    from ..report.cache import cache_table, megabytes
    from ..report.narrow import show as show_table
    from ..results.cache import CacheContents

    shelves, now = _shelves([]), time.time()
    rows = tuple(_row(shelf) for shelf in shelves)
    total = sum(shelf.size for shelf in shelves)
    screen = _screen(json)
    show_table(cache_table(rows, now), screen)
    screen.print(f"root: {cache.root()}, {megabytes(total)}", markup=False, soft_wrap=True)
    _write(json, CacheContents(root=str(cache.root()), bytes=total, kinds=rows))


def _row(shelf: _Shelf) -> CacheKind:
    """The kind as data."""
    from ..results.cache import CacheKind

    used = [entry.used for entry in shelf.entries]
    return CacheKind(
        kind=shelf.kind.name,
        what=shelf.kind.what,
        entries=len(shelf.entries),
        bytes=shelf.size,
        in_use=sum(entry.in_use() for entry in shelf.entries),
        oldest_use=min(used, default=None),
        newest_use=max(used, default=None),
        limit_bytes=shelf.kind.limit(),
    )


def _shelves(names: list[str]) -> list[_Shelf]:
    """The kinds with these names; all if no name is given. Raises BadParameter."""
    from meshloom.hw.spec.config import near
    from meshloom.sched.store.entries import entries
    from meshloom.sched.store.kinds import KINDS

    kinds = {kind.name: kind for kind in KINDS}
    for name in names:
        if name not in kinds:
            hint = near(name, kinds) or f"there are {', '.join(kinds)}"
            raise typer.BadParameter(f"nothing of the kind {name!r} is kept; {hint}", param_hint="KIND")
    return [_Shelf(kind, entries(kind.folder())) for kind in kinds.values() if not names or kind.name in names]


def _seconds(age: str) -> float:
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age.strip(), flags=re.ASCII)) is None:
        raise typer.BadParameter(f"{age!r} is not an age such as 12h, 30d or 4w", param_hint="--older-than")
    return float(match[1]) * _UNITS[match[2]]


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _screen(json: Path | None) -> Console:
    from ..report.console import console

    return console(stderr=json == STDOUT)


def _write(json: Path | None, content: CacheContents | CacheRemoval) -> None:
    if json is None:
        return
    put(json, content.model_dump_json(indent=2) + "\n")
