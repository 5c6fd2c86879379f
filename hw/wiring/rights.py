"""What a program may touch in a chip on which several run at the same time (`ChipConfig.programs`).

The FETCHes that start a program's streams say it (`isa.FETCH`): cores that it may send to, pages of every dram tile,
and the host's semaphore that its streams may add to. Each core checks what its own streams issue, before anything
leaves the tile, so the fault names the offender. Only a dram tile can check what a pull reads there: the request
carries the pages (in `fire_at`, which requests do not use here). Rights of zero limit nothing; these are the host's.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from ..spec.config import ChipConfig
from ..spec.isa import PAGE_BITS, PAGE_WORDS, SLOT_BITS, Region

_PAGE_SHIFT = PAGE_WORDS.bit_length() - 1
#: Pages of each dram tile: from `first_page` to before `end_page`; 0 and 0 = all.
Pages = data.StructLayout({"first_page": PAGE_BITS, "end_page": PAGE_BITS + 1})
#: What a FETCH gives: `cores` has a bit for each core, in floorplan order; 0 = everything.
Rights = data.StructLayout({"cores": 32, "slot": SLOT_BITS, "pages": Pages})


def limited(rights: data.View) -> Value:
    """Whether there is anything that the program may not do."""
    return rights.cores.any()


def pages_of(rights: data.View) -> Value:
    """The pages that a request carries: the program's; all, if it is not limited."""
    return Mux(limited(rights), rights.pages.as_value(), 0)


def may_send_to(config: ChipConfig, rights: data.View, tile: Value) -> Value:
    """Whether a tile is one of the program's cores."""
    reachable: Value = Signal(name="no_core")
    for number, core in enumerate(config.cores):
        reachable = Mux(tile == core, rights.cores[number], reachable)
    return reachable


def is_dram(config: ChipConfig, tile: Value) -> Value:
    """Whether a tile is a dram tile."""
    return Cat(tile == dram for dram in config.channels).any()


def outside(pages: data.View, region: Value, offset: Value, words: Value | int = 1) -> Value:
    """Whether any of `words` words from `offset` on, which lie within a multiple of a page, is not in `pages`."""
    page = offset[_PAGE_SHIFT:]
    last = (offset + words - 1)[_PAGE_SHIFT:]
    bounded = pages.end_page != 0
    return bounded & ((region != Region.MAIN) | (page < pages.first_page) | (last >= pages.end_page))


def first_word(pages: data.View) -> Value:
    """The first word of the first page."""
    return (pages.first_page << _PAGE_SHIFT)[: PAGE_BITS + _PAGE_SHIFT]
