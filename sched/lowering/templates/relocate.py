"""A template placed on free cores and in its instance's window: tile fields mapped, DRAM addresses moved, nothing else.

On encoded instructions it takes a few operations on arrays of 64-bit words; each field that changes lies in one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, PAGE_WORDS, Opcode

from ...program.decoding import decoded
from ...program.program import EncodedStream, Program, ProgramError, next_tag
from .network import Varying
from .template import ProgramPlace, Template, boot_stream

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class _Field:
    """Where a field lies in an instruction of four words: word, lowest bit there, bits."""

    word: int
    low: int
    bits: int

    @classmethod
    def of(cls, opcode: Opcode, name: str) -> _Field:
        low, bits = INSTRUCTIONS[opcode].offsets[name]
        assert low // 64 == (low + bits - 1) // 64, name  # does not cross a word
        return cls(low // 64, low % 64, bits)

    def get(self, words: Words) -> Words:
        return (words[:, self.word] >> np.uint64(self.low)) & np.uint64((1 << self.bits) - 1)

    def put(self, words: Words, rows: NDArray[np.intp], values: Words) -> None:
        keep = np.uint64(~(((1 << self.bits) - 1) << self.low) & (1 << 64) - 1)
        words[rows, self.word] = (words[rows, self.word] & keep) | (values << np.uint64(self.low))


_OPCODE = _Field.of(Opcode.MOVE, "opcode")
_ENDS = tuple((_Field.of(Opcode.MOVE, side + "_tile"), _Field.of(Opcode.MOVE, side)) for side in ("src", "dst"))
_NOTIFY, _NOTIFY_TILE = _Field.of(Opcode.MOVE, "notify"), _Field.of(Opcode.MOVE, "notify_tile")
_SYNC_TILE, _SYNC_SEM, _SYNC_N = (_Field.of(Opcode.SYNC, name) for name in ("tile", "sem", "n"))
_SCALES = {opcode: _Field.of(opcode, "scale") for opcode in (Opcode.GEMM, Opcode.VEC)}


@dataclass(frozen=True)
class _Sites:
    """What changes in a template's code: rows of the instructions, and the tile or address that they have now.

    `tiles`: (field, rows, tile) of cores; `addresses`: (field, rows, word) in DRAM; `ends`: rows of the SYNCs that post
    to the host.
    """

    tiles: tuple[tuple[_Field, NDArray[np.intp], NDArray[np.intp]], ...]
    addresses: tuple[tuple[_Field, NDArray[np.intp], Words], ...]
    ends: NDArray[np.intp]


@lru_cache(maxsize=4096)
def _sites(template: Template, host: int, dram_tiles: tuple[int, ...]) -> _Sites:
    words = template.words
    opcodes = _OPCODE.get(words)
    moves = opcodes == int(Opcode.MOVE)
    syncs = (opcodes == int(Opcode.SYNC)) & (_SYNC_N.get(words) > 0)
    tiles: list[tuple[_Field, NDArray[np.intp], NDArray[np.intp]]] = []
    addresses: list[tuple[_Field, NDArray[np.intp], Words]] = []
    drams = np.isin(np.arange(256), dram_tiles)

    def core_tiles(field: _Field, where: NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(where)
        tiles.append((field, rows, field.get(words[rows]).astype(np.intp)))

    for tile, address in _ENDS:
        in_dram = drams[tile.get(words).astype(np.intp)]
        core_tiles(tile, moves & ~in_dram)
        rows = np.flatnonzero(moves & in_dram)
        addresses.append((address, rows, address.get(words[rows])))
    core_tiles(_NOTIFY_TILE, moves & (_NOTIFY.get(words) > 0))
    to_host = syncs & (_SYNC_TILE.get(words) == host)
    core_tiles(_SYNC_TILE, syncs & ~to_host)
    return _Sites(tuple(tiles), tuple(addresses), np.flatnonzero(to_host))


def relocated(template: Template, chip: ChipConfig, place: ProgramPlace) -> Words:
    """The template's code at its place, uint64 [instructions, 4].

    Raises ProgramError when the place has another number of cores, one twice, or DRAM words that do not exist.
    """
    _check(template, chip, place)
    sites = _sites(template, chip.host, chip.drams)
    mapped = np.zeros(256, np.uint64)
    mapped[list(template.cores)] = place.cores
    base = np.uint64(place.first_page * PAGE_WORDS)
    words = template.words.copy()
    for field, rows, old in sites.tiles:
        field.put(words, rows, mapped[old])
    for field, rows, old in sites.addresses:
        field.put(words, rows, old + base)
    _SYNC_SEM.put(words, sites.ends, np.full(len(sites.ends), place.slot, np.uint64))
    return words


def reformed(words: Words, chip: ChipConfig, old: Varying, new: Varying) -> Words:
    """The code of a stage, uint64 [instructions, 4], as that of another one of its form."""
    words = words.copy()
    order = sorted(range(len(old.starts)), key=old.starts.__getitem__)
    starts = np.array([old.starts[number] for number in order], np.int64)
    moved = np.array([new.starts[number] - old.starts[number] for number in order], np.int64)
    opcodes = _OPCODE.get(words)
    drams = np.isin(np.arange(256), chip.drams)
    for tile, address in _ENDS:
        rows = np.flatnonzero((opcodes == int(Opcode.MOVE)) & drams[tile.get(words).astype(np.intp)])
        at = address.get(words[rows]).astype(np.int64)
        address.put(words, rows, (at + moved[np.searchsorted(starts, at, "right") - 1]).astype(np.uint64))
    matrix = bool((opcodes == int(Opcode.GEMM)).any())  # then the vector unit has a scale of its own
    opcode = Opcode.GEMM if matrix else Opcode.VEC
    rows = np.flatnonzero(opcodes == int(opcode))
    if new.scale != old.scale:
        _SCALES[opcode].put(words, rows, np.full(len(rows), new.scale, np.uint64))
    return words


def _check(template: Template, chip: ChipConfig, place: ProgramPlace) -> None:
    name = f"{template.network}/{template.stage}"
    if len(place.cores) != len(template.cores) or len({*place.cores} & {*chip.cores}) != len(template.cores):
        raise ProgramError(
            f"{name} ({template.scheme}) needs {len(template.cores)} different cores of {chip.name}, given are "
            f"{', '.join(map(str, place.cores)) or 'none'}"
        )
    if not 0 <= place.first_page <= place.code_page < place.end_page or place.end_page * PAGE_WORDS > chip.dram.words:
        raise ProgramError(
            f"{name}: the window of pages {place.first_page}..{place.end_page} (code from {place.code_page} on) does "
            f"not lie in the {chip.dram.words // PAGE_WORDS} pages of a DRAM tile of {chip.name}"
        )
    if not 0 <= place.slot < chip.semaphores:
        raise ProgramError(f"{name}: slot {place.slot} is no semaphore of the host: there are {chip.semaphores}")


def place_program(template: Template, chip: ChipConfig, place: ProgramPlace, *, alone: bool = False) -> Program:
    """The program of a template at its place, to be launched there, or (`alone`) to be run by itself.

    Its code lies behind the window's `code_page`. Raises ProgramError as `relocated` does, and when the code does not
    fit the window.
    """
    words = relocated(template, chip, place)
    raw = words.view(np.uint8).reshape(-1)
    code = place.code_page * PAGE_WORDS
    instructions = decoded(words)
    streams = tuple(
        EncodedStream(
            place.cores[stream.core],
            stream.unit,
            chip.drams[stream.dram],
            code + stream.offset,
            tuple(instructions[stream.first : stream.first + stream.count]),
            raw[32 * stream.first : 32 * (stream.first + stream.count)],
        )
        for stream in template.streams
    )
    tags = {next_tag(number): number for number in range(template.operations)}
    return Program(chip.digest, streams, boot_stream(template, place, chip, alone=alone), tags)
