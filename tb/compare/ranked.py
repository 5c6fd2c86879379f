"""More than two runs: each workload in all that have it, each compared with the first of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ..results.named import NamedRun
from ..results.ranking import RankedRun, Ranking, Rankings
from ..results.schema import Row
from .compared import CompareRunsError, compare_pair, incomparable, side_of

#: A workload of a run: its name, and which of that name.
_Key = tuple[str, int]


def targets(workloads: Sequence[NamedRun]) -> dict[str, list[NamedRun]]:
    """A run on several chips or by several schedulers as several runs, named by what tells them apart."""
    groups: defaultdict[tuple[str, str, str], list[NamedRun]] = defaultdict(list)
    for each in workloads:
        row = each.row
        groups[row.chip, row.chip_digest, _scheduler(row)].append(each)
    chips, schedulers = {key[:2] for key in groups}, {key[2] for key in groups}
    names = Counter(chip for chip, _ in chips)
    runs: dict[str, list[NamedRun]] = {}
    for (chip, digest, scheduler), members in groups.items():
        title = f"{chip}@{digest[:8]}" if names[chip] > 1 else chip
        parts = (title if len(chips) > 1 else "", scheduler if len(schedulers) > 1 else "")
        runs[" ".join(filter(None, parts)) or title] = members
    return runs


def _scheduler(row: Row) -> str:
    return row.settings.scheduler if row.settings else row.scheduler


def ranked(runs: Mapping[str, Sequence[NamedRun]], max_regression: float | None = None) -> Rankings:
    """Compares the workloads that at least two runs have, by name, and in turn where a name occurs several times.

    `max_regression`: percent that a workload may take more cycles than in the first run that has it. Raises
    CompareRunsError if no workload is in two runs, and the errors of `NamedRun.load` for damaged artefacts.
    """
    members: defaultdict[_Key, dict[str, NamedRun]] = defaultdict(dict)
    for name, workloads in runs.items():
        seen: Counter[str] = Counter()
        for each in workloads:
            members[each.row.workload, seen[each.row.workload]][name] = each
            seen[each.row.workload] += 1
    rankings = [_ranking(workload, those) for (workload, _), those in members.items() if len(those) > 1]
    if not rankings:
        lists = (
            f"{name}: {', '.join(dict.fromkeys(each.row.workload for each in those))}" for name, those in runs.items()
        )
        raise CompareRunsError(f"no two of the runs have a workload in common; {'; '.join(lists)}")
    alone = {workload: next(iter(those)) for (workload, _), those in members.items() if len(those) == 1}
    return Rankings(
        runs=tuple(runs),
        workloads=tuple(rankings),
        alone=alone,
        max_regression=max_regression,
        regressions=() if max_regression is None else tuple(_worse(rankings, max_regression)),
    )


def _ranking(workload: str, members: Mapping[str, NamedRun]) -> Ranking:
    (first_name, first), *others = members.items()
    side = side_of(first.row)
    runs = [RankedRun(run=first_name, side=side, ratio=None if side.cycles is None else 1.0)]
    for name, each in others:
        if why := incomparable(first.row, each.row):
            runs.append(RankedRun(run=name, side=side_of(each.row), refused=why))
            continue
        pair = compare_pair(first, each)
        ratio = pair.b.cycles / pair.a.cycles if pair.a.cycles and pair.b.cycles else None
        runs.append(RankedRun(run=name, side=pair.b, ratio=ratio, causes=pair.moved))
    return Ranking(workload=workload, runs=tuple(runs))


def _worse(rankings: Sequence[Ranking], bound: float) -> list[str]:
    """What takes more cycles than `bound` percent more, or does not run any more."""
    lines: list[str] = []
    for ranking in rankings:
        first = ranking.runs[0]
        for each in ranking.runs[1:]:
            where = f"{ranking.workload} in {each.run}"
            if each.side.cycles is None and first.side.cycles is not None:
                lines.append(f"{where}: {each.side.status}")
            elif each.ratio is not None and 100 * (each.ratio - 1) > bound:
                lines.append(f"{where}: {100 * (each.ratio - 1):+.2f} %, more than {bound:g} %")
    return lines
