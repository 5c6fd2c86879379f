"""Two runs of a workload side by side: which layers moved, and the difference of their waterfalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from meshloom.sched.support.text import shortened

from ..results.artefacts import Artefacts
from ..results.comparison import Comparison, Comparisons, LayerMoved, Side, difference
from ..results.energy import EnergyFigures, EnergyTable
from ..results.energy import load as load_energy
from ..results.legend import CycleCause
from ..results.named import NamedRun
from ..results.record import ResultsError
from ..results.schema import Row, Status
from .causes import AttributionError
from .energy import energy_of
from .explained import ExplainError, waterfall_of
from .finished import finished_run


class CompareRunsError(ResultsError):
    """Runs that have nothing to compare: no common workload, or none that computes the same; the message says why."""


class _Spent(NamedTuple):
    """Cycles by layer and cause; `exact`: from artefacts, by the causes of a waterfall. `left`: the artefacts."""

    layers: Mapping[str, Mapping[str, float]]
    exact: bool
    note: str = ""
    left: Artefacts | None = None


def compare(
    a: Sequence[NamedRun], b: Sequence[NamedRun], table: EnergyTable | None = None, max_regression: float | None = None
) -> Comparisons:
    """Compares the workloads that two runs have in common, by name, and in turn where a name occurs several times. Two
    runs of one workload each are compared whatever it is called.

    `table`: of the estimates of their energy (None: that of both runs if it is the same, or ours); `max_regression`:
    percent that a workload may take more cycles. Raises CompareRunsError if nothing is in common, the errors of
    `NamedRun.load` for damaged artefacts.
    """
    pairs, only_a, only_b = _pairs(a, b)
    if not pairs:
        raise CompareRunsError(
            f"the runs have no workload in common: {', '.join(only_a)} in the first, {', '.join(only_b)} in the second"
        )
    refused = {one.row.workload: why for one, other in pairs if (why := incomparable(one.row, other.row))}
    alike = [(one, other) for one, other in pairs if not incomparable(one.row, other.row)]
    if not alike:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise CompareRunsError(f"the runs cannot be compared: {reasons}")
    comparisons = [compare_pair(one, other, table) for one, other in alike]
    return _judged(comparisons, only_a, only_b, max_regression, refused)


def incomparable(a: Row, b: Row) -> str:
    """Why the cycles of two rows of a workload say nothing about each other: they are of different work. Empty if they
    may be compared."""
    one, other = a.settings, b.settings
    if one is not None and other is not None:
        digests = one.model_digest[:8], other.model_digest[:8]
        if all(digests) and digests[0] != digests[1]:
            if a.workload != b.workload:
                return f"{b.workload} is another network; compare runs of one"
            return f"two models have this name, with the digests {digests[0]} and {digests[1]}; run one of them again"
        if one.bind != other.bind:
            sizes = (", ".join(each.bind) or "none" for each in (one, other))
            return f"its open sizes differ: {' and '.join(sizes)}; run both with the same --bind"
    if a.network is not None and b.network is not None and a.network.macs != b.network.macs:
        if a.workload != b.workload:
            return f"{b.workload} is another network; compare runs of one"
        counts = f"{a.network.macs:,} and {b.network.macs:,}"
        return f"two networks have this name, of {counts} multiply-accumulates; run one of them again"
    return ""


def against_model(run: Sequence[NamedRun], max_regression: float | None = None) -> Comparisons:
    """Compares each workload of a run on the RTL (`b`) with what the timeline model says of it (`a`)."""
    return _judged([compare_pair(one, one, None, True) for one in run], (), (), max_regression)


def _pairs(
    a: Sequence[NamedRun], b: Sequence[NamedRun]
) -> tuple[list[tuple[NamedRun, NamedRun]], tuple[str, ...], tuple[str, ...]]:
    if len(a) == len(b) == 1:
        return [(a[0], b[0])], (), ()
    left: dict[str, list[NamedRun]] = defaultdict(list)
    for each in b:
        left[each.row.workload].append(each)
    pairs: list[tuple[NamedRun, NamedRun]] = []
    only_a: list[str] = []
    for each in a:
        if there := left[each.row.workload]:
            pairs.append((each, there.pop(0)))
        else:
            only_a.append(each.row.workload)
    return pairs, tuple(only_a), tuple(name for name, rest in left.items() for _ in rest)


def _judged(
    comparisons: Sequence[Comparison],
    only_a: tuple[str, ...],
    only_b: tuple[str, ...],
    bound: float | None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Comparisons:
    worse: list[str] = []
    if bound is not None:
        worse += [f"{name}: is not in the second run" for name in only_a]
        for each in comparisons:
            if each.b.cycles is None and each.a.cycles is not None:
                worse.append(f"{each.b.workload}: {each.b.status}")
            elif each.change_percent is not None and each.change_percent > bound:
                worse.append(f"{each.b.workload}: {each.change_percent:+.2f} %, more than {bound:g} %")
    return Comparisons(
        workloads=tuple(comparisons),
        only_a=only_a,
        only_b=only_b,
        refused=dict(refused),
        max_regression=bound,
        regressions=tuple(worse),
    )


def compare_pair(a: NamedRun, b: NamedRun, table: EnergyTable | None = None, model: bool = False) -> Comparison:
    """A workload in two runs. `table`: of energies. `model`: the first is the model of the second. Raises the errors
    of `NamedRun.load` for damaged artefacts."""
    models = model or _planned(a.row), _planned(b.row)
    sides = _side(a.row, models[0]), _side(b.row, models[1])
    spent = [_spent(answer, modelled) for answer, modelled in zip((a, b), models, strict=True)]
    energies: dict[str, EnergyFigures | None] = {}
    fields = _chip_fields(spent[0].left, spent[1].left)
    if not model:
        energy_table = table or (None if _of_one_table(a.row, b.row) else load_energy())
        energies = {
            "a_energy": _energy(a.row, spent[0].left, energy_table),
            "b_energy": _energy(b.row, spent[1].left, energy_table),
        }
    note = next((each.note for each in spent if each.note), "")
    if not all(each.exact for each in spent):  # only what both know can be compared
        spent = [_of_row(answer.row, modelled) for answer, modelled in zip((a, b), models, strict=True)]
    if not all(each.layers for each in spent):
        return Comparison(
            a=sides[0], b=sides[1], a_causes={}, b_causes={}, layers=(), note=note, chip_fields=fields, **energies
        )
    one, other = (each.layers for each in spent)
    layers: list[LayerMoved] = []
    for name in dict.fromkeys((*one, *other)):
        before, after = one.get(name), other.get(name)
        layers.append(
            LayerMoved(
                layer=name,
                a=None if before is None else sum(before.values()),
                b=None if after is None else sum(after.values()),
                causes=difference(before or {}, after or {}),
            )
        )
    causes = [_in_all(each) for each in (one, other)]
    return Comparison(
        a=sides[0], b=sides[1], a_causes=causes[0], b_causes=causes[1], layers=tuple(layers), note=note,
        chip_fields=fields, **energies,
    )  # fmt: skip


def _chip_fields(a: Artefacts | None, b: Artefacts | None) -> dict[str, tuple[str, str]]:
    """The fields in which the chips of two runs differ, and their values; none if they are not known of both."""
    if a is None or b is None:
        return {}
    one, other = (dict(_flat(each.chip.model_dump(mode="json"))) for each in (a, b))
    pairs = {name: (one.get(name, "-"), other.get(name, "-")) for name in (one | other) if name != "name"}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(table: Mapping[str, Any], into: str = "") -> Iterator[tuple[str, str]]:
    """Fields as `core.a_words`, and their values as text."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{into}{name}.")
        else:
            yield f"{into}{name}", shortened(value)


def _planned(row: Row) -> bool:
    return row.status is Status.PLANNED


def _of_one_table(a: Row, b: Row) -> bool:
    """Whether the energies of two rows can be compared."""
    return a.energy is not None and b.energy is not None and a.energy.table_digest == b.energy.table_digest


def _energy(row: Row, left: Artefacts | None, table: EnergyTable | None) -> EnergyFigures | None:
    """By a table, or as the row has it; None if neither the row nor artefacts know it by that table."""
    if table is None or (row.energy is not None and row.energy.table_digest == table.digest):
        return row.energy
    return None if left is None else energy_of(left, table)


def _in_all(layers: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for spent in layers.values():
        for cause, cycles in spent.items():
            numbers[cause] = numbers.get(cause, 0.0) + cycles
    order = {str(cause): number for number, cause in enumerate(CycleCause)}
    if not numbers.keys() <= order.keys():  # those of a row, which are in their own order
        return numbers
    return dict(sorted(numbers.items(), key=lambda each: order[each[0]]))


def side_of(row: Row) -> Side:
    """A row as one of several: measured, or planned if that is all there is."""
    return _side(row, _planned(row))


def _side(row: Row, model: bool) -> Side:
    cycles = row.model_cycles if model else row.rtl_cycles
    ran = row.status not in (Status.FAILED, Status.FAULT) and cycles > 0
    return Side(
        workload=row.workload,
        chip=row.chip,
        chip_digest=row.chip_digest,
        scheduler=row.settings.scheduler if row.settings else row.scheduler,
        source="model" if model else "rtl",
        code=row.settings.code if row.settings else "",
        status=row.status,
        cycles=cycles if ran else None,
        milliseconds=cycles / row.time.clock_mhz / 1e3 if ran and row.time is not None else None,
    )


def _spent(answer: NamedRun, model: bool) -> _Spent:
    """From artefacts if there are any, otherwise from the row."""
    row = answer.row
    if row.status in (Status.FAILED, Status.FAULT):
        return _Spent({}, False, f"{row.workload}: {row.reason}")
    if answer.folder is None and not _planned(row):
        where = f"are not in {answer.gone} any more" if answer.gone else "were not kept"
        why = f"the artefacts of {row.workload} {where}"
        return _Spent({}, False, f"{why}: only what the results files say is known")
    left = answer.load()
    run = finished_run(left)
    try:
        falls = waterfall_of(run, model)
    except (ExplainError, AttributionError) as error:
        return _Spent({}, False, str(error), left)
    return _Spent({layer.layer: falls.in_cycles(layer.pe_cycles) for layer in falls.layers}, True, falls.note, left)


def _of_row(row: Row, model: bool) -> _Spent:
    """What a row says of a network's layers, measured; nothing of other workloads, and nothing of the model."""
    layers = row.network.layers if row.network and not model else ()
    cores = sum(layer.core_cycles for layer in layers)
    if not cores:
        return _Spent({}, False)
    scale = row.rtl_cycles / cores
    return _Spent(
        {
            layer.name: {cause: share / 100 * layer.core_cycles * scale for cause, share in layer.shares.items()}
            for layer in layers
            if layer.core_cycles
        },
        False,
    )
