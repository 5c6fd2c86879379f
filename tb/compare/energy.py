"""The energy of a run, estimated: what its schedule computes and moves, times a table of picojoules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from meshloom.hw.isa import Region, split_address
from meshloom.hw.timing import GemmShape, gemm_folds
from meshloom.sched.ir.schedule import Gemm

from ..results.artefacts import Artefacts
from ..results.energy import EnergyFigures, EnergyPart, EnergyTable
from .kept import Kept


def energy(run: Kept, found: Artefacts, table: EnergyTable) -> EnergyFigures:
    """The estimate for a run and its artefacts. What a program computes of which that is unknown counts as it feeds its
    arrays, padding included."""
    chip = run.chip
    counts = Counter[str]()
    picojoules: defaultdict[str, float] = defaultdict(float)

    def add(part: str, count: int, each: float) -> None:
        counts[part] += count
        picojoules[part] += count * each

    core, lanes = chip.core, chip.lanes
    sizes = {
        Region.MAIN: core.a_words, Region.B: core.b_words, Region.ACC: core.acc_words, Region.OUT: core.out_words,
        Region.VEC: core.vec_words,
    }  # fmt: skip
    byte = {region: table.sram_byte(words * lanes) for region, words in sizes.items()}
    fed = 0
    for op in run.schedule.operations:
        if isinstance(op, Gemm):
            shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
            windows = gemm_folds(chip, shape) * shape.taps
            inputs, weights = shape.pixels * shape.n_blocks * shape.taps, windows * chip.cols
            fed += inputs * lanes * chip.cols
            add("operand memories", inputs * lanes, byte[Region.MAIN])
            add("operand memories", weights * lanes, byte[Region.B])
            add("result memories", shape.pixels * shape.n_blocks * lanes, byte[Region.OUT])
    add("products", fed if run.macs is None else sum(run.macs.values()), table.product)
    spm, drams, spms = table.sram_byte(chip.spm_words * lanes), set(chip.drams), set(chip.spms)
    for size, links, *ends in _moves(found):
        add("links", size * links, table.link_byte)
        for tile, address in (ends[:2], ends[2:]):
            if tile in drams:
                add("DRAM", size, table.dram_byte)
            elif tile in spms:
                add("scratchpads", size, spm)
            elif (region := split_address(address)[0]) in byte:
                part = "operand memories" if region in (Region.MAIN, Region.B) else "result memories"
                add(part, size, byte[Region(region)])
    program = sum(len(stream.instructions) for stream in (*found.program.streams, found.program.boot))
    add("DRAM", program * chip.instruction_words * lanes, table.dram_byte)
    parts = {part: EnergyPart(count=counts[part], picojoules=picojoules[part]) for part in counts}
    return EnergyFigures(table=table.name, parts=parts)


def _moves(found: Artefacts) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Bytes, links, and tile and address of both ends of all MOVEs."""
    table = found.tables["instructions"]
    names = ("bytes", "hops", "src_tile", "src", "dst_tile", "dst")
    for row in zip(*(table[name].to_pylist() for name in names), strict=True):
        if row[0] is not None:
            yield row
