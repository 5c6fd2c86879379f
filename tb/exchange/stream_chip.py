"""A chip as Stream's hardware file has it: cores as ZigZag has them, and DRAM on a bus."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig

from ..results.energy import EnergyTable
from . import zigzag_chip
from .interface import ChipExporter

_AXES = ["D1", "D2"]
#: Bits and picojoules of a register that feeds a row or a column of the array.
_BITS, _COST = 8, 0.005


def _feed(operand: str, served: str) -> dict[str, object]:
    """The register through which a row gets its inputs, or a column its weights: without it Stream unrolls what the
    array cannot."""
    ports = [("r_port_1", "read", "tl"), ("w_port_1", "write", "fh")]
    return {
        "size": _BITS,
        "r_cost": _COST,
        "w_cost": _COST,
        "area": 0,
        "latency": 1,
        "operands": [operand],
        "ports": [
            {
                "name": name,
                "type": kind,
                "bandwidth_min": _BITS,
                "bandwidth_max": _BITS,
                "allocation": [f"{operand}, {way}"],
            }
            for name, kind, way in ports
        ],
        "served_dimensions": [served],
    }


def hardware(chip: ChipConfig, energy: EnergyTable) -> dict[str, object]:
    """The hardware file: each core with its array, A, B and ACC; the DRAM channels as one core, on a bus of their
    bandwidth with all others. Sizes and bandwidths are in bits, energies in picojoules."""
    one = zigzag_chip.hardware(chip, energy)
    dram = one["memories"].pop("dram") | {"served_dimensions": [*_AXES]}
    array = one["operational_array"] | {"dimensions": [*_AXES], "sizes": [chip.rows, chip.cols]}
    number = len(chip.cores)
    core = {
        "name": "core",
        "type": "zigzag.compute",
        "memories": {"row": _feed("I1", "D2"), "column": _feed("I2", "D1"), **one["memories"]},
        "operational_array": array,
        "operand_precision": {"input": "int8", "accumulator": "int32"},
    }
    channels = {
        "name": "dram",
        "type": "zigzag.offchip",
        "memories": {"dram": dram},
        "operational_array": {"unit_energy": 0, "unit_area": 0, "dimensions": [*_AXES], "sizes": [0, 0]},
    }
    bits = 8 * chip.dram.bytes_per_cycle * len(chip.drams)
    return {
        "name": chip.name,
        "cores": {**dict.fromkeys(range(number), core), number: channels},
        "offchip_core_id": number,
        "unit_energy_cost": 0,
        "core_connectivity": [{"type": "bus", "cores": [*range(number + 1)], "bandwidth": bits}],
    }


#: What Stream's hardware file has no word for.
LEFT = (
    "the NoC: cores and DRAM share a bus of DRAM's bandwidth",
    "DRAM latency and bursts",
    "the scratchpad banks: the lowering of mappings keeps nothing there",
    "OUT: results that leave the core are cut to fit it",
    "the vector unit",
)


def texts(chip: ChipConfig, energy: EnergyTable) -> dict[str, str]:
    """`NAME.stream.yaml`."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Without anchors: every core is written out."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    text = yaml.dump(hardware(chip, energy), Dumper=Plain, sort_keys=False, default_flow_style=None, width=120)
    return {f"{chip.name}.stream.yaml": text}


STREAM_CHIP = ChipExporter("stream", "hardware file of Stream", texts, LEFT)
