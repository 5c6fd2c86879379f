"""Prints what this process's timeline model says of some programs, as JSON: run by `test_native.py`, once as Python and
once compiled. `compiled`: which of them it was; `played`: name to cycles and a digest of all that was executed."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from random import Random

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.mapping.play.interleave import Interleaver
from meshloom.sched.mapping.play.ranked import nodes_of
from meshloom.sched.model import native
from meshloom.sched.model.frontend import LateError
from meshloom.sched.model.records import ModelError
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.loop_order.scheduler import schedule
from meshloom.sched.workload.catalog import find
from meshloom.tb.verify.random_programs import random_program, with_fire_times

LAYERS = ("gemm:40x50x60", "conv:12x12x24-40,k3,p1,relu")


def scheduled(layer: str, chip: ChipConfig) -> Schedule:
    (workload,) = find(layer)
    return schedule(workload.shape, chip, 1 << 12, effort=0.1)


def said(program: Program, chip: ChipConfig) -> list[object]:
    try:
        timeline = play(program, chip)
    except LateError as late:
        return ["late", late.stream.tile, late.stream.unit, late.position, late.cycle, str(late)]
    except ModelError as error:
        return ["never ends", str(error)]
    lines = "\n".join(map(repr, timeline.executed))
    return [timeline.cycles, len(timeline.executed), hashlib.sha256(lines.encode()).hexdigest()]


def changed(name: str, **noc: object) -> ChipConfig:
    values = load(name).model_dump()
    return ChipConfig.model_validate(values | {"name": f"{name}_changed", "noc": values["noc"] | noc})


def with_last(program: Program, **fields: int) -> Program:
    """With other fields in the last instruction of the first stream."""
    first, *others = program.streams
    *code, last = first.instructions
    code.append(replace(last, fields={**last.fields, **fields}))
    return replace(program, streams=(replace(first, instructions=tuple(code)), *others))


def main() -> None:
    played: dict[str, list[object]] = {}
    for name in ("tiny", "quad16", "arch5", "nine8"):
        chip = load(name)
        for layer in LAYERS:
            played[f"{layer} on {name}"] = said(lower(scheduled(layer, chip), chip), chip)
    ahead = load("ahead8")  # its controller sends everything
    for layer in LAYERS:
        played[f"{layer} on {ahead.name}"] = said(compile_ahead(scheduled(layer, ahead), ahead).program, ahead)
    several = changed("quad8", data_vcs=3, data_routing="yx", arrivals=True, route_hops=6)
    for chip in (load("quad8"), load("nine8"), several, changed("quad8", data_depth=2, arrivals=True)):
        for seed in range(3):
            random = Random(seed)
            program = random_program(random, chip, 10, threads=1 + seed)
            played[f"random {seed} on {chip.name}, {chip.noc.data_vcs}"] = said(program, chip)
            timed = with_fire_times(random, program, chip, 0.2)
            played[f"timed {seed} on {chip.name}, {chip.noc.data_vcs}"] = said(timed, chip)
            late = with_last(program, fire_at=1)
            played[f"late {seed} on {chip.name}, {chip.noc.data_vcs}"] = said(late, chip)
            hangs = with_last(program, wait_sem=0, wait_n=100)
            played[f"hanging {seed} on {chip.name}, {chip.noc.data_vcs}"] = said(hangs, chip)
    for name in ("tiny", "quad16", "arch5"):
        chip = load(name)
        for in_order in (False, True):
            interleaver = Interleaver(nodes_of(scheduled(LAYERS[1], chip), chip), chip, in_order)
            runs = [interleaver.run(horizon, at_once) for horizon in (0, 4000) for at_once in (False, True)]
            played[f"listed on {name}, {in_order}"] = [[run.cycles, run.order] for run in runs]
    json.dump({"compiled": native.compiled(), "played": played}, sys.stdout)


if __name__ == "__main__":
    main()
