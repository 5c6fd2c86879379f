"""DRAM for what runs: each instance of a network has one window of pages, the same in every dram tile."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS

from ...lowering.templates.flush import host_pages


class WindowError(ValueError):
    """A window that can never be allotted, or one that is given back wrongly; the message gives the fix."""


@dataclass(frozen=True, order=True)
class Window:
    """Pages [first_page, end_page) of every dram tile."""

    first_page: int
    end_page: int

    @property
    def pages(self) -> int:
        return self.end_page - self.first_page

    @property
    def base(self) -> int:
        """Its first word in each dram tile."""
        return self.first_page * PAGE_WORDS


class DramWindows:
    """The windows of a chip that are in use, and the free space between them.

    The host's own pages (`flush.host_pages`) are never allotted. Deterministic: where a window lies depends on the
    calls before it and on nothing else.
    """

    def __init__(self, chip: ChipConfig) -> None:
        """Raises WindowError if there is nothing to be allotted."""
        self.chip = chip
        self.pages = host_pages(chip).start
        if self.pages < 1:
            raise WindowError(
                f"each dram tile of {chip.name} has no page of {PAGE_WORDS} words besides the host's own; raise "
                "dram.words"
            )
        self._free = [Window(0, self.pages)]  # ascending, not adjacent
        self._used: set[Window] = set()

    def allot(self, pages: int, name: str) -> Window | None:
        """A window of `pages` pages for the instance `name`, in the smallest free space that holds it (the first of
        equal ones); None if there is none until others are given back.

        Raises WindowError if there never can be.
        """
        if pages < 1:
            raise WindowError(f"{name} asks for {pages} pages; a window has at least one")
        if pages > self.pages:
            drams = len(self.chip.drams)
            raise WindowError(
                f"{name} needs {pages} pages of {PAGE_WORDS} words in each of {drams} dram tiles "
                f"({_megabytes(pages, self.chip)}), and {self.chip.name} has {self.pages} "
                f"({_megabytes(self.pages, self.chip)}); use a smaller network or batch, or raise "
                f"dram.words by {(pages - self.pages) * PAGE_WORDS}"
            )
        fitting = [window for window in self._free if window.pages >= pages]
        if not fitting:
            return None
        hole = min(fitting, key=lambda window: window.pages)
        self._free.remove(hole)
        window = Window(hole.first_page, hole.first_page + pages)
        if window.end_page < hole.end_page:
            insort(self._free, Window(window.end_page, hole.end_page))
        self._used.add(window)
        return window

    def give_back(self, window: Window) -> None:
        """The window is free again. Raises WindowError if it is not in use."""
        if window not in self._used:
            raise WindowError(
                f"pages {window.first_page}..{window.end_page - 1} are not a window in use; give each one back once"
            )
        self._used.remove(window)
        first, end = window.first_page, window.end_page
        at = bisect_left(self._free, window)
        if at < len(self._free) and self._free[at].first_page == end:
            end = self._free.pop(at).end_page
        if at and self._free[at - 1].end_page == first:
            at -= 1
            first = self._free.pop(at).first_page
        self._free.insert(at, Window(first, end))


def _megabytes(pages: int, chip: ChipConfig) -> str:
    """Of all dram tiles together."""
    return f"{pages * PAGE_WORDS * chip.lanes * len(chip.drams) / 1e6:,.1f} MB"
