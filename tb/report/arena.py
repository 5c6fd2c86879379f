"""The board of an arena: tables on the terminal, and a page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..results.arena import ArenaBoard, EntryStanding, Heat, Score
from .console import dense
from .figures import Figure, figure, plain
from .markup import Section, contents, document, paragraph, sections_text, table, whole
from .markup import plot as place_of_plot
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console

_HEAT = ("entry", "cycles", "of the fastest", "of the bound", "claimed", "seconds")
_STANDING = ("entry", "heats", "fastest in", "failed in", "of the fastest, mean")
_ABOUT = (
    "Bound: cycles that no schedule can undercut: products on all processing elements, or the bytes that must pass the "
    "DRAM channels. Seconds: of making schedule, program and prediction. Claimed: by the tool that made a mapping. "
    "Mean: geometric, over the heats in which an entry did not fail."
)


def print_board(board: ArenaBoard, to: Console) -> None:
    """Prints who is the fastest where, all entries in all heats, and why some failed."""
    heats = dense(f"cycles, {_of(board)}", ("heat", "entry"), _HEAT[1:])
    for heat in board.heats:
        for number, score in enumerate(heat.scores):
            last = number == len(heat.scores) - 1
            heats.add_row(f"{heat.workload} on {heat.chip}", *_cells(heat, score), end_section=last)
    show(heats, to)
    standings = dense("standings", _STANDING[:1], _STANDING[1:])
    for each in board.standings:
        standings.add_row(*_standing(each))
    show(standings, to)
    for text in failures(board):
        to.print(text, style="red", markup=False, soft_wrap=True)


def failures(board: ArenaBoard) -> Iterator[str]:
    """A sentence for each reason for which an entry failed, with the heats where it did."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for heat in board.heats:
        for score in heat.scores:
            if score.reason:
                reasons.setdefault((score.entry, score.reason), []).append(f"{heat.workload} on {heat.chip}")
    for (entry, reason), where in reasons.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield f"{entry} failed ({where[0]}{more}): {reason}"


def arena_page(board: ArenaBoard) -> str:
    """The board as a page: how to make it anew, standings, and each chip's heats."""
    title = f"Arena: {len(board.standings)} entries, {len(board.heats)} heats, {_of(board)}"
    chips = [(chip.name, chip.digest) for chip in board.chips]
    again = [
        paragraph("This command makes the board anew:"),
        paragraph(board.command, "command"),
        table(("made by",), [(board.code,)]),
        table(("chip", "digest"), chips, left=2),
    ]
    sections = [
        Section("standings", "Standings", table(_STANDING, map(_standing, board.standings)) + paragraph(_ABOUT)),
        Section("picture", "Beyond the fastest", place_of_plot("arena-ratios", "Cycles as a multiple of the fastest")),
    ]
    for chip in board.chips:
        own = [heat for heat in board.heats if heat.chip == chip.name]
        sections.append(Section(f"chip-{chip.name}", chip.name, "".join(map(_heat_table, own))))
    if lost := list(failures(board)):
        sections.append(Section("failures", "Failures", "".join(map(paragraph, lost))))
    sections.append(Section("again", "How it was made", "".join(again)))
    data = [{"at": 0, "figures": [_ratios(board)]}]
    body = f'<div class="run" id="w0-run">{sections_text(sections)}</div>'
    return document(title, contents([("", sections)]), [body], data)


def _of(board: ArenaBoard) -> str:
    return "by the timeline model" if board.measure == "model" else f"measured on {board.measure}"


def _heat_table(heat: Heat) -> str:
    bound = "" if heat.floor_cycles is None else f", no schedule takes fewer than {whole(heat.floor_cycles)} cycles"
    return table(_HEAT, (_cells(heat, score) for score in heat.scores), caption=f"{heat.workload}{bound}")


def _cells(heat: Heat, score: Score) -> tuple[str, ...]:
    return (
        score.entry,
        score.status if score.cycles is None else whole(score.cycles),
        _times(heat.behind(score)),
        _times(heat.above_floor(score)),
        "-" if score.claimed_cycles is None else whole(score.claimed_cycles),
        "-" if score.seconds is None else f"{score.seconds:.2f}",
    )


def _standing(each: EntryStanding) -> tuple[str, ...]:
    return each.entry, str(each.heats), str(each.wins), str(each.failed), _times(each.behind)


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def _ratios(board: ArenaBoard) -> Figure:
    """Bars of all entries in each heat."""
    names = [plain(f"{heat.workload} on {heat.chip}") for heat in board.heats]
    bars: list[Figure] = []
    for each in board.standings:
        ratios = [_of_entry(heat, each.entry) for heat in board.heats]
        bars.append({"type": "bar", "orientation": "h", "name": plain(each.entry), "y": names, "x": ratios})
    layout: Figure = {
        "barmode": "group",
        "height": max(240, 90 + _height(board.heats)),
        "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "dtick": 1},
        "xaxis": {"title": {"text": "cycles / cycles of the fastest"}, "automargin": True},
    }
    return figure("arena-ratios", bars, layout)


def _of_entry(heat: Heat, entry: str) -> float | None:
    return next((heat.behind(score) for score in heat.scores if score.entry == entry), None)


def _height(heats: Sequence[Heat]) -> int:
    return sum(12 + 10 * len(heat.scores) for heat in heats)
