"""From the ideal cycles of a run (useful products / PEs of the chip) to those that it took, cause by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm

from ..results.explanation import LayerSpent, Waterfall
from .attribution import Cause, spent_by_layer
from .causes import Causes
from .kept import Entry, Kept
from .records import Place

#: In a program timed ahead nothing waits; what is not fed there was planned so.
PLANNED = "planned"
#: All causes, in the order of the waterfall.
CAUSES = (*map(str, Cause), PLANNED)


def waterfall(run: Kept, causes: Causes[Entry] | None, records: Mapping[Place, Entry], cycles: int) -> Waterfall:
    """The waterfall of a run that took `cycles`, by its records, measured or predicted.

    `causes`: of the same records, None for a program timed ahead. Raises AttributionError if the layers' products are
    impossible.
    """
    pes = run.chip.rows * run.chip.cols * len(run.chip.cores)
    macs, note = run.macs, ""
    spent: dict[str, Counter[str]]
    if macs is None:
        macs, note = _all_products(run), "what it computes is unknown: channels' padding counts as useful"
    if causes is None:
        spent = _planned(run, records, cycles, macs)
    else:
        number = run.number

        def known(place: Place) -> int:
            found = number(place)
            assert found is not None, "a GEMM is an operation"
            return found

        by_layer = spent_by_layer(causes, known, run.schedule, cycles, run.layer, macs)
        spent = {layer: _by_name(found) for layer, found in by_layer.items()}
    total = Counter[str]()
    for found in spent.values():
        total.update(found)
    layers = tuple(LayerSpent(layer=layer, pe_cycles=_ordered(found)) for layer, found in spent.items())
    return Waterfall(cycles=cycles, pes=pes, layers=layers, total=_ordered(total), note=note)


def _by_name(spent: Mapping[Cause, int]) -> Counter[str]:
    return Counter({str(cause): count for cause, count in spent.items()})


def _ordered(spent: Mapping[str, int]) -> dict[str, int]:
    return {cause: spent[cause] for cause in CAUSES if spent.get(cause, 0)}


def _all_products(run: Kept) -> dict[str, int]:
    """Products of all GEMMs with all of their columns and lanes."""
    found = Counter[str]()
    for op in run.schedule.operations:
        if isinstance(op, Gemm):
            found[run.layer(op)] += prod((op["pixels"], op["n_blocks"], run.chip.cols, op.taps, run.chip.lanes))
    return dict(found)


def _planned(
    run: Kept, records: Mapping[Place, Entry], cycles: int, macs: Mapping[str, int]
) -> dict[str, Counter[str]]:
    """PE cycles of a program timed ahead: fed, or planned not to be."""
    chip = run.chip
    pes = chip.rows * chip.cols
    spent: dict[str, Counter[str]] = {}
    at = dict.fromkeys(chip.cores, 0)
    layer = ""
    gemms = sorted((found.start, place) for place, found in records.items() if found.opcode is Opcode.GEMM)
    for start, place in gemms:
        number, core = run.number(place), records[place].tile
        assert number is not None, "a GEMM is an operation"
        op = run.schedule.operations[number]
        assert isinstance(op, Gemm), "as its record says"
        layer = run.layer(op)
        shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
        windows = gemm_occupancy(chip, shape)
        rows = op["n_blocks"] * op.taps * chip.lanes * (-op["pixels"] % chip.rows) * chip.cols
        found = spent.setdefault(layer, Counter())
        found.update({PLANNED: pes * (start - at[core]), Cause.ROWS: rows, Cause.CHANNELS: pes * windows - rows})
        at[core] = start + windows
    for core in chip.cores:
        spent.setdefault(layer, Counter())[Cause.END] += pes * (cycles - at[core])
    for name, found in spent.items():
        useful = min(macs.get(name, 0), found[Cause.CHANNELS])
        found.update({Cause.USEFUL: useful, Cause.CHANNELS: -useful})
    return spent
