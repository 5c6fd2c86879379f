"""What is to be planned on a mesh: pages, and tasks that read and make them, in program order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .hardware import DttError
from .mesh import Mesh


@dataclass(frozen=True)
class Page:
    """`words` words that travel as `flits` flits. `homes`: tile addresses where it lies from cycle 0 on, for good.

    `region`: the memory of a tile that it is brought to; the tile that makes it has it in `made_region`.
    """

    name: str
    flits: int
    homes: tuple[int, ...] = ()
    words: int = 1
    region: int = 0
    made_region: int = 0


@dataclass(frozen=True)
class Task:
    """`cycles` cycles of work on a tile. `inputs` and `outputs`: numbers of pages.

    `start`: the cycle in which it should begin, all its inputs having been delivered by then; None: as soon as they
    can. Tasks of a tile follow each other in program order. A task of 0 cycles is a *delivery*: it occupies no tile,
    and its pages stay where they have been brought."""

    name: str
    tile: int
    cycles: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    start: int | None = None

    @property
    def delivery(self) -> bool:
        """Whether it only brings pages to where they stay."""
        return self.cycles == 0


@dataclass(frozen=True)
class Program:
    """Tasks in an order in which every page is made before it is read.

    Raises DttError naming the task or page that makes no sense on the mesh, or whose tile has too little memory.
    """

    mesh: Mesh
    pages: tuple[Page, ...]
    tasks: tuple[Task, ...]
    name: str = "program"
    #: Words of the tiles that pages are kept on for good, if they are limited (scratchpads, DRAM channels).
    kept_words: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        there = [bool(page.homes) for page in self.pages]
        for page in self.pages:
            if page.flits < 1 or page.words < 0:
                raise DttError(f"page {page.name}: {page.flits} flits, {page.words} words; at least 1 flit, 0 words")
            for region in (page.region, page.made_region):
                if not 0 <= region < self.mesh.regions:
                    raise DttError(f"page {page.name}: region {region}, tiles have {self.mesh.regions}")
            for tile in page.homes:
                self.mesh.number(tile)
                if (tile, page.region) in self.mesh.capacity:
                    raise DttError(
                        f"page {page.name}: its home {tile:#04x} has a limited memory; give it one where it may stay "
                        "for good"
                    )
        for task in self.tasks:
            self._check(task, there)
            for page in task.outputs:
                there[page] = True
        self._check_kept()

    def _check(self, task: Task, there: list[bool]) -> None:
        self.mesh.number(task.tile)
        if task.cycles < 0 or (task.start is not None and task.start < 0):
            raise DttError(f"task {task.name}: cycles = {task.cycles}, start = {task.start} must not be negative")
        if task.delivery and (task.outputs or len(task.inputs) != 1):
            raise DttError(f"task {task.name}: a task of 0 cycles is a delivery of one page; give it cycles")
        if task.delivery and any(tile == task.tile for tile, _ in self.mesh.capacity):
            raise DttError(
                f"task {task.name}: a delivery to tile {task.tile:#04x}, whose memory is limited; give it cycles"
            )
        for page in (*task.inputs, *task.outputs):
            if not 0 <= page < len(self.pages):
                raise DttError(f"task {task.name}: there is no page {page}; there are {len(self.pages)}")
        for page in task.inputs:
            if not there[page]:
                raise DttError(
                    f"task {task.name}: page {self.pages[page].name} is nowhere yet; give it a home, or put the task "
                    "behind the one that makes it"
                )
        for page in task.outputs:
            if there[page]:
                raise DttError(f"task {task.name}: page {self.pages[page].name} is there already; pages are made once")
        needs: dict[int, int] = {}
        for number, region in self._held(task):
            needs[region] = needs.get(region, 0) + self.pages[number].words
        for region, words in needs.items():
            limit = self.mesh.capacity.get((task.tile, region))
            if limit is not None and words > limit:
                raise DttError(
                    f"task {task.name}: its pages take {words} words of region {region} of tile {task.tile:#04x} at "
                    f"once, there are {limit}; make them smaller"
                )

    def _held(self, task: Task) -> Iterable[tuple[int, int]]:
        """(page, region) of all that must be on a task's tile while it works."""
        for page in dict.fromkeys(task.inputs):
            yield page, self.pages[page].region
        for page in task.outputs:
            yield page, self.pages[page].made_region

    def _check_kept(self) -> None:
        words_of: dict[int, int] = dict.fromkeys(self.kept_words, 0)
        for page in self.pages:
            for tile in page.homes:
                if tile in words_of:
                    words_of[tile] += page.words
        for task in self.tasks:
            if task.delivery and task.tile in words_of:
                words_of[task.tile] += self.pages[task.inputs[0]].words
        for tile, words in words_of.items():
            if words > self.kept_words[tile]:
                raise DttError(
                    f"program {self.name}: {words} words of pages lie on tile {tile:#04x} for good, it holds "
                    f"{self.kept_words[tile]}; spread them over more tiles"
                )
