"""Stages compiled: for each a template, by its form, scheme and chip.

Layers of one form (`ServedNetwork.form`) have the same program but for the addresses of their arrays and the scale of
their results, so that is compiled once, and played once to know how long it takes: DRAM tiles know no rows, so
addresses that are equal modulo the words of a packet take equal times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Gemm, Move, Schedule
from ...model.timeline import play
from ...program.program import Program
from ...store.findings import SearchCache
from ..semaphores.lower import lower
from .flush import RESERVED
from .memory import ALIGNED
from .network import ServedNetwork, Varying
from .relocate import reformed
from .schemes import Scheme
from .template import Measures, Template, TemplateStream, boot_length


@dataclass(frozen=True)
class _Compiled:
    """What was compiled for the first stage of a form. `varies`: what the code has of that one."""

    varies: Varying
    template: Template


_COMPILED = TypeAdapter(_Compiled)


def template_cache(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where templates are kept below `folder` (None: in this process only). Raises SettingError."""
    return SearchCache(folder, chip, "templates", __name__.partition(".")[2])


def compile_stage(net: ServedNetwork, index: int, scheme: Scheme, memory: SearchCache | None = None) -> Template:
    """The template of stage `index` for a scheme. With a `memory`, stages of one form are compiled once.

    Raises DoesNotFit when its tiles do not fit the cores, ProgramError when its semaphores do not.
    """
    form, varies = (net.form(index), scheme), net.varies(index)
    stored = None if memory is None else memory.get(form, _COMPILED)
    if stored is None:
        cores = net.chip.cores[: scheme.cores]
        schedule = net.schedule(index, scheme, cores)
        template = _template(net, index, scheme, schedule, lower(schedule, net.chip, reserved=RESERVED))
        if memory is not None:
            memory.put(form, _COMPILED, _Compiled(varies, template))
        return template
    template, stage = stored.template, net.stages[index].y
    if stored.varies != varies:
        code = reformed(template.words, net.chip, stored.varies, varies).tobytes()
        return replace(template, network=net.graph.name, batch=net.batch, stage=stage, code=code)
    return replace(template, network=net.graph.name, batch=net.batch, stage=stage)


def _template(net: ServedNetwork, index: int, scheme: Scheme, schedule: Schedule, program: Program) -> Template:
    chip, cores = net.chip, net.chip.cores[: scheme.cores]
    where = {core: number for number, core in enumerate(cores)}
    used = [0] * len(chip.drams)
    streams: list[TemplateStream] = []
    code: list[bytes] = []
    for stream in sorted(program.streams, key=lambda stream: (where[stream.tile], stream.unit)):
        dram = min(range(len(used)), key=lambda number: used[number])
        count = len(stream.instructions)
        streams.append(TemplateStream(where[stream.tile], stream.unit, len(code), count, dram, used[dram]))
        used[dram] += -(-count * chip.instruction_words // ALIGNED) * ALIGNED
        code += [instruction.encode() for instruction in stream.instructions]
    boot = -(-boot_length(len(streams)) * chip.instruction_words // ALIGNED) * ALIGNED
    measures = measure(schedule, chip, cores, play(program, chip).cycles, net.shapes[index].macs)
    return Template(
        net.graph.name, net.batch, net.stages[index].y, scheme, cores, tuple(streams), b"".join(code),
        max(used) + boot, len(schedule.operations), measures,
    )  # fmt: skip


def measure(schedule: Schedule, chip: ChipConfig, cores: Sequence[int], cycles: int, macs: int) -> Measures:
    """The measures of a schedule that takes so many cycles for so many useful multiply-accumulates."""
    compute = read = written = 0
    for op in schedule.operations:
        if isinstance(op, Move):
            read += op.words if op.src.tile in chip.drams else 0
            written += op.words if op.dst.tile in chip.drams else 0
        elif isinstance(op, Gemm):
            shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
            compute += gemm_occupancy(chip, shape)
        else:
            compute += vec_occupancy(chip, VecShape.of(op.fields))
    matrix = any(isinstance(op, Gemm) for op in schedule.operations)
    peak = len(cores) * (chip.rows * chip.cols if matrix else chip.lanes)
    return Measures(cycles, compute, read, written, macs, macs / (peak * cycles))
