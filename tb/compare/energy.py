"""The energy of a run, estimated: what its schedule computes and moves, times a table of picojoules."""

from __future__ import annotations

from collections import Counter

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, split_address
from meshloom.hw.spec.timing import GemmShape, gemm_folds
from meshloom.sched.ir.schedule import Gemm, Schedule
from meshloom.sched.program.program import Program
from meshloom.sched.program.routes import receivers

from ..results.artefacts import Artefacts
from ..results.energy import DEFAULT, DRAM, EnergyFigures, EnergyPart, EnergyTable, load
from ..results.schema import Row
from .finished import macs_of
from .links import data_moves

_OPERANDS, _RESULTS = "operand memories", "result memories"


def energy(row: Row, schedule: Schedule, program: Program, chip: ChipConfig, table: EnergyTable) -> EnergyFigures:
    """The estimate for a run to its end."""
    macs = macs_of(row, schedule)
    return estimate(None if macs is None else sum(macs.values()), schedule, program, chip, table)


def estimate(
    products: int | None, schedule: Schedule, program: Program, chip: ChipConfig, table: EnergyTable
) -> EnergyFigures:
    """The estimate for a program that makes so many `products`; None counts what feeds its arrays, padding included."""
    core, lanes = chip.core, chip.lanes
    sizes = {
        Region.MAIN: core.a_words,
        Region.B: core.b_words,
        Region.ACC: core.acc_words,
        Region.OUT: core.out_words,
        Region.VEC: core.vec_words,
    }
    read = Counter[Region]()  # bytes, or written
    count = Counter[str]()
    fed = 0
    for op in schedule.operations:
        if isinstance(op, Gemm):
            shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
            inputs = shape.pixels * shape.n_blocks * shape.taps * lanes
            fed += inputs * chip.cols
            read[Region.MAIN] += inputs
            read[Region.B] += gemm_folds(chip, shape) * shape.taps * chip.cols * lanes
            read[Region.OUT] += shape.pixels * shape.n_blocks * lanes
    count["products"] = fed if products is None else products
    drams, spms = set(chip.drams), set(chip.spms)
    for fields, route in data_moves(program, chip):
        size = fields["words"] * lanes
        count["links"] += size * route.hops
        ends = [(fields["src_tile"], fields["src"]), *((tile, fields["dst"]) for tile in receivers(chip, fields))]
        for tile, address in ends:
            if tile in drams:
                count[DRAM] += size
            elif tile in spms:
                count["scratchpads"] += size
            elif (region := split_address(address)[0]) in sizes:
                read[Region(region)] += size
    instructions = sum(len(stream.instructions) for stream in (*program.streams, program.boot))
    count[DRAM] += instructions * chip.instruction_words * lanes
    prices = {
        "products": table.product,
        "links": table.link_byte,
        DRAM: table.dram_byte,
        "scratchpads": table.sram_byte(chip.spm_words * lanes),
    }
    spent = {name: each * prices[name] for name, each in count.items()}
    for region, size in read.items():
        name = _OPERANDS if region in (Region.MAIN, Region.B) else _RESULTS
        count[name] += size
        spent[name] = spent.get(name, 0.0) + size * table.sram_byte(sizes[region] * lanes)
    parts = {name: EnergyPart(count=each, picojoules=spent[name]) for name, each in count.items()}
    return EnergyFigures(table=table.name, version=table.version, table_digest=table.digest, parts=parts)


def energy_of(artefacts: Artefacts, table: EnergyTable | None) -> EnergyFigures:
    """The estimate for a run that has left these artefacts. Without `table` it is the one in its row, if there is one.

    Raises EnergyError for a default table that cannot be read.
    """
    if table is None and artefacts.row.energy is not None:
        return artefacts.row.energy
    return energy(artefacts.row, artefacts.schedule, artefacts.program, artefacts.chip, table or load(DEFAULT))
