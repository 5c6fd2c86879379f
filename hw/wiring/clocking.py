"""Clock gates: blocks that say when nothing in them will change can have their clock stopped.

`gated_domain` gives a block a clock domain of its own. In a gated chip its clock comes from an instance of
`clock_gate` (ports `clk`, `enable`, `gated`): an integrated clock gating cell in an ASIC, a latch model in simulation,
where it makes idle blocks nearly free. Otherwise (FPGAs, and the second simulator as a witness) the block simply stays
in the main domain. `enable` has to hold in every cycle at whose end a register of the block may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.hdl import DomainRenamer as _Renamer

if TYPE_CHECKING:
    from amaranth_types import HasElaborate


class _ClockedBlock(Protocol):
    def elaborate(self, platform: object) -> HasElaborate: ...


class _Sleeper(_ClockedBlock, Protocol):
    active: Signal


Block = TypeVar("Block", bound=_ClockedBlock)
#: A block whose registers change in no cycle without `active`.
Sleeper = TypeVar("Sleeper", bound=_Sleeper)
#: Name of the gate's Verilog module.
GATE = "clock_gate"


def gated_domain(m: Module, name: str, enable: Value, gated: bool) -> str:
    """The domain for a block's registers: `name`, clocked while `enable`, or "sync" when the chip is not gated."""
    if not gated:
        return "sync"
    domain = ClockDomain(name, local=True)
    m.domains += domain
    m.submodules[f"{name}_gate"] = Instance(
        GATE, i_clk=ClockSignal(), i_enable=enable | ResetSignal(), o_gated=ClockSignal(name)
    )
    m.d.comb += ResetSignal(name).eq(ResetSignal())
    return name


def in_domain(block: Block, domain: str) -> Block:
    """The block with its registers in `domain`."""
    return block if domain == "sync" else cast("Block", _Renamer(domain)(block))
