"""From the ideal cycles of a run (useful products / PEs of the chip) to those that it took, cause by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm

from ..results.explanation import LayerSpent, Waterfall
from ..results.legend import CycleCause
from .attribution import spent_by_layer
from .causes import Causes
from .finished import Entry, FinishedRun
from .records import InstructionPlace


def waterfall(
    run: FinishedRun, causes: Causes[Entry] | None, records: Mapping[InstructionPlace, Entry], cycles: int
) -> Waterfall:
    """The waterfall of a run that took `cycles`, by its records, measured or predicted.

    `causes`: of the same records, None for a program timed ahead. Raises AttributionError if the layers' products are
    impossible.
    """
    pes = run.chip.rows * run.chip.cols * len(run.chip.cores)
    macs, note = run.macs, ""
    spent: dict[str, Counter[CycleCause]]
    if macs is None:
        macs, note = _all_products(run), "what it computes is unknown: channels' padding counts as useful"
    if causes is None:
        spent = _planned(run, records, cycles, macs)
    else:
        number = run.number

        def operation(place: InstructionPlace) -> int:
            index = number(place)
            assert index is not None, "a GEMM is an operation"
            return index

        spent = spent_by_layer(causes, operation, run.schedule, cycles, run.layer, macs)
    total = Counter[CycleCause]()
    for counts in spent.values():
        total.update(counts)
    layers = tuple(LayerSpent(layer=layer, pe_cycles=_ordered(value)) for layer, value in spent.items())
    return Waterfall(cycles=cycles, pes=pes, layers=layers, total=_ordered(total), note=note)


def _ordered(spent: Mapping[CycleCause, int]) -> dict[str, int]:
    return {str(cause): spent[cause] for cause in CycleCause if spent.get(cause, 0)}


def _all_products(run: FinishedRun) -> dict[str, int]:
    """Products of all GEMMs with all of their columns and lanes."""
    counts = Counter[str]()
    for op in run.schedule.operations:
        if isinstance(op, Gemm):
            counts[run.layer(op)] += prod((op["pixels"], op["n_blocks"], run.chip.cols, op.taps, run.chip.lanes))
    return dict(counts)


def _planned(
    run: FinishedRun, records: Mapping[InstructionPlace, Entry], cycles: int, macs: Mapping[str, int]
) -> dict[str, Counter[CycleCause]]:
    """PE cycles of a program timed ahead: fed, or planned not to be."""
    chip = run.chip
    pes = chip.rows * chip.cols
    spent: dict[str, Counter[CycleCause]] = {}
    at = dict.fromkeys(chip.cores, 0)
    layer = ""
    gemms = sorted((entry.start, place) for place, entry in records.items() if entry.opcode is Opcode.GEMM)
    for start, place in gemms:
        number, core = run.number(place), records[place].tile
        assert number is not None, "a GEMM is an operation"
        op = run.schedule.operations[number]
        assert isinstance(op, Gemm), "as its record says"
        layer = run.layer(op)
        shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
        windows = gemm_occupancy(chip, shape)
        rows = op["n_blocks"] * op.taps * chip.lanes * (-op["pixels"] % chip.rows) * chip.cols
        counts = spent.setdefault(layer, Counter())
        counts.update(
            {
                CycleCause.PLANNED: pes * (start - at[core]),
                CycleCause.ROWS: rows,
                CycleCause.CHANNELS: pes * windows - rows,
            }
        )
        at[core] = start + windows
    for core in chip.cores:
        spent.setdefault(layer, Counter())[CycleCause.END] += pes * (cycles - at[core])
    for name, counts in spent.items():
        useful = min(macs.get(name, 0), counts[CycleCause.CHANNELS])
        counts.update({CycleCause.USEFUL: useful, CycleCause.CHANNELS: -useful})
    return spent
