"""The memory behind a DRAM channel as simulators have it (`tb/build/verilog`): its files, and its parameters."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import RESPONSE_CYCLES

FOLDER = Path(__file__).with_name("verilog")


def sources(config: ChipConfig) -> tuple[str, ...]:
    """Names of the files in `FOLDER` that a channel of this chip needs, without its clock gate."""
    return ("dram_model.v",) if config.dram.banks is None else ("dram_model.v", "dram_banks.v")


def instance(config: ChipConfig, number: int | None = None) -> str:
    """A `dram_model` with the parameters of a chip's channels, as Verilog; its name and ports follow. `number`: its
    ID."""
    dram, times = config.dram, config.bank_cycles
    values = {
        "LANES": config.lanes,
        "WORDS": dram.words,
        "LATENCY": dram.latency,
        "RATE_NUM": dram.bytes_per_cycle,
        "WRITE_LATENCY": RESPONSE_CYCLES,
    }
    if number is not None:
        values["ID"] = number
    if times is not None and dram.banks is not None:
        values |= {"BANKS": dram.banks.count, "ACCESS": dram.banks.access_bytes, "TURN": dram.banks.turn_after}
        values |= {name.upper(): value for name, value in times._asdict().items()}
    return f"dram_model #({', '.join(f'.{name}({value})' for name, value in values.items())})"
