"""A chip as ZigZag's hardware file has it, and how layers lie on its array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.nest.schedule import BIAS_PART

from ..results.energy import EnergyTable
from .interface import ChipExporter

#: ZigZag's names of inputs, weights and outputs of a memory.
_INPUTS, _WEIGHTS, _OUTPUTS = "I1", "I2", "O"
_BYTE, _SUM = 8, 32
#: A port's name, its ways ("fh": from above), and the operands that take them.
_Port = tuple[str, str, tuple[str, ...]]
#: Picojoules of a register of 32 bits, read or written (Horowitz, ISSCC 2014: below those of the smallest memory).
_REGISTER = 0.02


def hardware(chip: ChipConfig, energy: EnergyTable) -> dict[str, Any]:
    """The hardware file: registers in the array for sums; A, B and ACC of each core; the DRAM channels as one.

    Sizes and bandwidths are in bits, energies in picojoules for an access of the whole bandwidth. ACC is as large as
    what biases leave. What ZigZag's hardware has no word for stays behind (`LEFT`).
    """
    core, word = chip.core, chip.lanes * _BYTE
    cores = ["D3"] if len(chip.cores) > 1 else []
    axes = ["D1", "D2", *cores]
    acc = core.acc_words - core.acc_words // BIAS_PART
    dram = chip.dram.bytes_per_cycle * _BYTE * len(chip.drams)
    register = [(f"{kind}_port_{number}", way, (_OUTPUTS,)) for kind, number, way in
                (("w", 1, "fh"), ("w", 2, "fl"), ("r", 1, "th"), ("r", 2, "tl"))]  # fmt: skip
    bytes_of = {"a": core.a_words * chip.lanes, "b": core.b_words * chip.lanes, "acc": 4 * acc * chip.cols}

    def memory(name: str, operand: str, width: int, ports: Sequence[_Port]) -> dict[str, Any]:
        cost = energy.sram_byte(bytes_of[name]) * width / _BYTE
        return _memory(bytes_of[name] * _BYTE, [operand], cost, width, ports, ["D1", "D2"])

    read, write = ("r_port_1", "w_port_1")
    return {
        "name": chip.name,
        "memories": {
            "sums": _memory(_SUM, [_OUTPUTS], _REGISTER, _SUM, register, []),
            "a": memory("a", _INPUTS, chip.rows * _BYTE, [(read, "tl", (_INPUTS,)), (write, "fh", (_INPUTS,))]),
            "b": memory("b", _WEIGHTS, word, [(read, "tl", (_WEIGHTS,)), (write, "fh", (_WEIGHTS,))]),
            "acc": memory("acc", _OUTPUTS, chip.cols * _SUM, [
                (read, "tl th", (_OUTPUTS,)), (write, "fl fh", (_OUTPUTS,))]),
            "dram": _memory(
                chip.dram.words * chip.lanes * _BYTE * len(chip.drams), [_INPUTS, _WEIGHTS, _OUTPUTS],
                energy.dram_byte * dram / _BYTE, dram,
                [("rw_port_1", "fh tl", (_INPUTS, _WEIGHTS)), ("rw_port_1", "fh tl fl th", (_OUTPUTS,))], axes),
        },
        "operational_array": {
            "unit_energy": energy.product, "unit_area": 1, "dimensions": [*axes],
            "sizes": [chip.rows, chip.cols, *([len(chip.cores)] if cores else [])],
        },
    }  # fmt: skip


def _memory(
    bits: int,
    operands: list[str],
    cost: float,
    width: int,
    ports: Sequence[_Port],
    served: list[str],
) -> dict[str, Any]:
    """A memory. Ports of one name are one."""
    allocations: dict[str, list[str]] = {}
    for name, ways, whose in ports:
        allocations.setdefault(name, []).extend(f"{each}, {way}" for each in whose for way in ways.split())
    kinds = {"r": "read", "w": "write", "rw": "read_write"}
    return {
        "size": bits, "r_cost": round(cost, 4), "w_cost": round(cost, 4), "area": 0, "latency": 1, "operands": operands,
        "ports": [
            {"name": name, "type": kinds[name.partition("_")[0]], "bandwidth_min": min(width, _BYTE),
             "bandwidth_max": width, "allocation": allocation}
            for name, allocation in allocations.items()
        ],
        "served_dimensions": [*served],
    }  # fmt: skip


def mapping(chip: ChipConfig) -> list[dict[str, Any]]:
    """The mapping file: pixels over rows, output channels over columns and cores; the kernel stays in the core."""
    unrolled = {"D1": [f"OX, {chip.rows}"], "D2": [f"K, {chip.cols}"]}
    if len(chip.cores) > 1:
        unrolled["D3"] = [f"K, {len(chip.cores)}"]
    return [
        {
            "name": "default",
            "spatial_mapping": unrolled,
            "memory_operand_links": {"O": _OUTPUTS, "W": _WEIGHTS, "I": _INPUTS},
        }
    ]


#: What ZigZag's hardware file has no word for.
LEFT = (
    "the NoC: distances, and links that cores share",
    "DRAM latency and bursts",
    "the scratchpad banks: the lowering of mappings keeps nothing there",
    "OUT: results that leave the core are cut to fit it",
    "the vector unit",
)


def texts(chip: ChipConfig, energy: EnergyTable) -> dict[str, str]:
    """The files by their names: `NAME.yaml`, the hardware, and `NAME.mapping.yaml`."""
    import yaml

    def text(value: object) -> str:
        return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=120)

    return {f"{chip.name}.yaml": text(hardware(chip, energy)), f"{chip.name}.mapping.yaml": text(mapping(chip))}


ZIGZAG_CHIP = ChipExporter("zigzag", "hardware and mapping file of ZigZag", texts, LEFT)
