"""Gradients across layers: rows of layers as one program, beside each layer's fastest order by itself; training steps.

What is beyond J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN
Training" (MICRO 2023): dX that stays in the cores, dW that gives way (P. Qi et al., "Zero Bubble Pipeline Parallelism",
ICLR 2024), the update fused with dW, siblings joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.sched.schedulers.training.across import Across

from ..results.events import OnEvent
from ..results.training import TrainingResults
from ..runs.training.numbers import Update as Weights
from . import gradient_chain_runs as runs
from .interface import BenchmarkError
from .results import Result, Sheet

#: Chips and the networks, or rows of them, whose layers are measured there in the model.
NETWORKS = {
    "edge45": ("ncf", "rcnn/block3_project..block4_expand", "dlrm/bottom1..bottom3"),
    "server1": ("ncf", "dlrm"),
    "server2": ("ncf", "dlrm"),
    "server4": ("ncf", "dlrm"),
}
#: Rows of layers on the RTL, by chip.
ON_RTL = {
    "edge45": ("chain:ncf", "chain:dlrm/bottom1..bottom3", "chain:rcnn/block3_project..block4_expand,b1"),
    "server2": ("chain:ncf", "chain:dlrm/bottom1..bottom3", "chain:dlrm/top3..top5"),
}
#: Layers that read the same map, by chip: all of a network, or of a module.
JOINED = {"edge45": ("goo/conv5_a",)}
PARTS = ("steps", *NETWORKS, "joined", "rtl", "kept")


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures what is not kept, of the parts that are asked for; shows all that is. Raises BenchmarkError."""
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    for part in parts or PARTS:
        if part == "steps":
            runs.measure_steps(on_progress)
        elif part == "joined":
            for chip, networks in JOINED.items():
                runs.measure_joined(chip, networks, on_progress)
        elif part == "rtl":
            for chip, names in ON_RTL.items():
                runs.measure_on_rtl(chip, names, on_progress)
        elif part != "kept":
            runs.measure(part, NETWORKS[part], on_progress)
    return Result(
        "gradient_chain",
        "Gradients across layers",
        "What is beyond the fastest order of each layer by itself ([gradient.md](gradient.md)). `argmin`: that, layers "
        "one after the other, which includes no masks of rectifiers and no way of dX to the layer before; `one "
        "program`: the layers in a row as one list of operations, dX through DRAM; `keep`: dX goes from core to core "
        "instead; `defer`: dW gives way to dX, on whichever core has the least to do; `keep, defer`: both. Percent are "
        "cycles less than `argmin`. All give the same bytes, compared on the RTL with ONNX Runtime's integer products. "
        f"Each result is kept; parts: {', '.join(PARTS)}. Bars: no wrong byte, no cycle of difference between RTL and "
        "model, and a training step in at most three quarters of its cycles.",
        (
            _steps(),
            _learning(),
            *(_rows(chip, networks) for chip, networks in NETWORKS.items()),
            _updates(),
            *(_joined(chip, networks) for chip, networks in JOINED.items()),
            _on_rtl(),
        ),
        REMARKS,
        tuple(_failures()),
    )


REMARKS = (
    "Where it brings nothing. With 45 channels to a result's word and 64 to an operand's (edge45) dX cannot be the dY "
    "of the layer before as it lies there, so a chain takes dY 45 channels to a word, and its products with W 1.4 "
    "times the array's cycles: fully connected layers with a batch of 4 lose by a chain. The feed-forward layers of "
    "BERT are bound by the array, and sums of both dW do not fit ACC beside each other: a chain is refused.",
    "On one core of a server dX is little beside W, so keeping it saves little; the gain there is that a layer's W "
    "comes while the layer before computes. On several cores dX of a narrow layer is the work of one core: what the "
    "others have then is dW. The model plays the leaders of each way's tiles only, so a way that includes another may "
    "come out behind it.",
    "Update: W' = sat8(W - dW), dW being rounded to int8 by a multiplier that holds the learning rate. `apart`: a pass "
    "over W and dW after the gradients; `fused`: as soon as a tile of dW is complete, with W still in the core where "
    "it fits. It is for fully connected layers on one core or several, whose sums are complete in one core. Whether "
    "weights of 8 bits learn is a question of the network and of the rate: see the table of training.",
    "In the training step cores share the images, so dW of each is a part of the sum. `double`, `int8`: the host adds "
    "up and updates; `chip`: sums go from core to core, piece by piece, and the last core writes W' alone, a byte "
    "where four cores wrote four each. That saves bytes but no cycles: each piece waits for four cores in "
    "turn, and the first layer, whose dW comes last, is one piece. `int8` and `chip` come to the same bits. Maps and "
    "gradients that stay in a core are compared by what follows from them.",
    "Siblings: convolutions of 1x1 that read the same map, joined into one product, so that X is loaded once and dX "
    "written once; the sum of their dX, which is rounded once, is what the layer before needs. Apart, their dX would "
    "still have to be added, which is not counted.",
)


def _percent(cycles: int, of: int) -> str:
    return f"{100 * (1 - cycles / of):+.1f}" if of else "-"


# -- training steps ---------------------------------------------------------------------------------------------------


def _steps() -> Sheet:
    rows: list[tuple[str, ...]] = []
    base = runs.step(runs.STEP_WAYS[0])
    for way in runs.STEP_WAYS:
        found = runs.step(way)
        if found is None or base is None:
            rows.append((*way.name, *("-",) * 7))
            continue
        results = found.results
        rows.append(
            (
                *way.name, f"{results.step_cycles:,}", _percent(results.step_cycles, base.results.step_cycles),
                f"{found.dram_bytes:,}", _percent(found.dram_bytes, base.dram_bytes),
                "-" if results.rtl_cycles is None else f"{results.rtl_cycles:,}", f"{results.model_cycles:,}",
                str(results.mismatches),
            )
        )  # fmt: skip
    columns = (
        "order", "across layers", "weights", "cycles of a step>", "less, %>", "DRAM bytes of a step>", "less, %>",
        "RTL cycles>", "model cycles>", "wrong bytes>",
    )  # fmt: skip
    title = f"A training step of digits on quad16, batch 64: {runs.STEPS} steps and the test, on the RTL"
    return Sheet(title, columns, rows)


def _learning() -> Sheet:
    rows: list[tuple[str, ...]] = []
    for update, rate, momentum, seed in runs.LEARNED:
        found = runs.learned(update, rate, momentum, seed)
        shown = ("-",) * 4 if found is None else _shown(found)
        rows.append((update, f"{rate:g}", f"{momentum:g}", str(seed), *shown))
    columns = ("weights", "rate>", "momentum>", "seed>", "first loss>", "last loss>", "test>", "float test>")
    return Sheet(f"Weights that only the chip has (int8), {runs.LEARNED_STEPS} steps of digits", columns, rows)


def _shown(found: TrainingResults) -> tuple[str, ...]:
    return (
        f"{found.loss_first:.4f}", f"{found.loss_last:.4f}", f"{found.accuracy or 0:.1%}",
        f"{found.float_accuracy or 0:.1%}",
    )  # fmt: skip


# -- rows of layers ---------------------------------------------------------------------------------------------------


def _rows(chip: str, networks: Sequence[str]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    total = dict.fromkeys(("argmin", *runs.WAYS, "best"), 0)
    for network in networks:
        for chain in runs.chains(chip, network):
            base, found = runs.argmin(chip, chain), {way: runs.taken(chip, chain, way) for way in runs.WAYS}
            if base is None or any(one is None for one in found.values()):
                rows.append((chain.name.removeprefix("chain:"), *("-",) * 8))
                continue
            ran = {way: one for way, one in found.items() if one is not None and not one.refused}
            cells = [_percent(ran[way].cycles, base.cycles) if way in ran else "refused" for way in runs.WAYS]
            best = min([base.cycles, *(one.cycles for one in ran.values())])
            kept = ran.get("keep, defer")
            rows.append(
                (
                    chain.name.removeprefix("chain:"), f"{base.plain:,}", f"{base.cycles:,}", *cells,
                    f"{base.dram_bytes:,}", f"{kept.dram_bytes:,}" if kept else "-",
                )
            )  # fmt: skip
            for way in runs.WAYS:
                total[way] += ran[way].cycles if way in ran else base.cycles
            total["argmin"] += base.cycles
            total["best"] += best
    if total["argmin"]:
        sums = [_percent(total[way], total["argmin"]) for way in runs.WAYS]
        rows.append(("all, argmin where refused", "", f"{total['argmin']:,}", *sums, "", ""))
        rows.append(("all, the fastest of each", "", f"{total['best']:,}", "", "", "",
                     _percent(total["best"], total["argmin"]), "", ""))  # fmt: skip
    columns = (
        "layers", "plain, cycles>", "argmin, cycles>", *(f"{way}>" for way in runs.WAYS), "argmin, DRAM bytes>",
        "keep, defer>",
    )  # fmt: skip
    return Sheet(f"Layers in a row on {chip}, in the model: percent less than argmin", columns, rows)


def _updates() -> Sheet:
    rows: list[tuple[str, ...]] = []
    for chip, networks in NETWORKS.items():
        for network in networks:
            for chain in runs.chains(chip, network):
                found = [runs.taken(chip, chain, way) for way in ("keep, defer", *runs.UPDATES)]
                none, apart, fused = found
                if none is None or apart is None or fused is None or any(one.refused for one in (none, apart, fused)):
                    continue
                rows.append(
                    (
                        chip, chain.name.removeprefix("chain:"), f"{none.cycles:,}", f"{apart.cycles:,}",
                        f"{fused.cycles:,}", _percent(fused.cycles, apart.cycles), f"{none.dram_bytes:,}",
                        f"{apart.dram_bytes:,}", f"{fused.dram_bytes:,}", _percent(fused.dram_bytes, apart.dram_bytes),
                    )
                )  # fmt: skip
    columns = (
        "chip", "layers", "no update, cycles>", "apart>", "fused>", "less than apart, %>", "no update, DRAM bytes>",
        "apart>", "fused>", "less than apart, %>",
    )  # fmt: skip
    return Sheet("The update with the gradients, in the model (keep, defer)", columns, rows)


def _joined(chip: str, networks: Sequence[str]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    total = [0, 0, 0, 0]
    for network in networks:
        for some in runs.siblings(chip, network):
            apart, joined = runs.apart(chip, some), runs.joined(chip, some)
            name, size = some.name, some.joined.removeprefix("gradient:gemm:")
            if apart is None or joined is None:
                rows.append((name, size, *("-",) * 6))
                continue
            figures = apart.cycles, joined.cycles, apart.dram_bytes, joined.dram_bytes
            total = [sum(pair) for pair in zip(total, figures, strict=True)]
            rows.append((name, size, *_pairs(figures)))
    if total[0]:
        rows.append(("all", "", *_pairs(total)))
    columns = ("layers", "joined, MxNxK", "argmin, cycles>", "joined>", "less, %>", "argmin, DRAM bytes>", "joined>",
               "less, %>")  # fmt: skip
    return Sheet(f"Siblings on {chip}, in the model", columns, rows)


def _pairs(figures: Sequence[int]) -> tuple[str, ...]:
    before, after, bytes_before, bytes_after = figures
    return (
        f"{before:,}", f"{after:,}", _percent(after, before), f"{bytes_before:,}", f"{bytes_after:,}",
        _percent(bytes_after, bytes_before),
    )  # fmt: skip


def _on_rtl() -> Sheet:
    rows: list[tuple[str, ...]] = []
    failed: set[int] = set()
    for chip, names in ON_RTL.items():
        for chain in runs.named(chip, names):
            for way in runs.rtl_ways(chip):
                found = runs.ran(chip, chain, way)
                if found is None:
                    rows.append((chip, chain.name.removeprefix("chain:"), way, *("-",) * 5, "not measured"))
                    continue
                if found.trouble or found.wrong or found.rtl_cycles != found.model_cycles:
                    failed.add(len(rows))
                rows.append(
                    (
                        chip, chain.name.removeprefix("chain:"), way, found.nest, f"{found.rtl_cycles:,}",
                        f"{found.model_cycles:,}", f"{found.compared:,}", str(found.wrong), found.trouble,
                    )
                )  # fmt: skip
    columns = ("chip", "layers", "way", "tiles", "RTL cycles>", "model cycles>", "bytes compared>", "wrong>", "trouble")
    return Sheet("On the RTL", columns, rows, frozenset(failed))


def _failures() -> list[str]:
    failures: list[str] = []
    for chip, names in ON_RTL.items():
        for chain in runs.named(chip, names):
            for way in runs.rtl_ways(chip):
                found = runs.ran(chip, chain, way)
                if found is None:
                    failures.append(f"{chip}, {chain.name}, {way}: not measured on the RTL")
                elif found.trouble or found.wrong:
                    failures.append(f"{chip}, {chain.name}, {way}: {found.trouble or f'{found.wrong} wrong bytes'}")
                elif found.rtl_cycles != found.model_cycles:
                    failures.append(
                        f"{chip}, {chain.name}, {way}: {found.rtl_cycles} cycles, {found.model_cycles} said"
                    )
    bases: dict[bool, runs.Stepped | None] = {}
    for way in runs.STEP_WAYS:
        found = runs.step(way)
        base = bases.setdefault(way.weights is Weights.DOUBLE, found)  # weights in int8: the chip as the host
        name = f"step, {', '.join(way.name)}"
        if found is None or base is None:
            failures.append(f"{name}: not measured")
            continue
        failures += [f"{name}: {why}" for why in found.results.reasons]
        if found.results.losses != base.results.losses:
            failures.append(f"{name}: comes to other losses")
        everything = len(way.across) == len(Across) and way.weights is Weights.DOUBLE
        if everything and 4 * found.results.step_cycles > 3 * base.results.step_cycles:
            failures.append(f"{name}: takes {found.results.step_cycles:,} cycles, the bar is three quarters")
    return failures
