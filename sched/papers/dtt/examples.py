"""The hardware of the paper's case studies, described as in its Figure 5."""

from __future__ import annotations

from ...routing.hardware import Actor, Hardware
from .placing import DOT, Operation, dot_product

#: Names of the wires that make the reduction tree an augmented one.
AUGMENTED = ("ADD_01 -> ADD_02", "ADD_02 -> ADD_01")


def step_by_step() -> Hardware:
    """Figure 3 with Tables I and II: a DRAM, two input SRAMs, four processing elements, an output SRAM.

    Data are bytes. A "green" bus (16 bytes a cycle, cost 10, 4 cycles) leads from the DRAM to each input SRAM; all
    others, the way back to the DRAM included, are "blue" (1 byte a cycle, cost 2, 1 cycle). The DRAM and the outputs
    of the processing elements keep what they get.
    """
    hardware = Hardware()
    hardware.node(size=512, name="DRAM", keeps=True)
    for i in range(2):
        hardware.node(size=64, name=f"SRAM_input_{i}")
    for i in range(4):
        hardware.node(size=4, name=f"PE_{i}_input")
        hardware.node(size=2, name=f"PE_{i}_output", keeps=True)
    hardware.node(size=64, name="SRAM_output")
    for i in range(2):
        hardware.wire(source="DRAM", destination=f"SRAM_input_{i}", bandwidth=16, cost=10, delay=4)
    for i in range(4):
        hardware.wire(source=f"SRAM_input_{i // 2}", destination=f"PE_{i}_input", bandwidth=1, cost=2, delay=1)
        hardware.wire(source=f"PE_{i}_output", destination="SRAM_output", bandwidth=1, cost=2, delay=1)
    hardware.wire(source="SRAM_output", destination="DRAM", bandwidth=1, cost=2, delay=1)
    for i in range(4):
        hardware.actor(Actor(f"PE_{i}", f"PE_{i}_input", f"PE_{i}_output", slots=2, cooldown=1, latency=1))
    return hardware


#: Table II: estimated cycles to fetch operands.
STEP_BY_STEP_DISTRIBUTION = 8


def step_by_step_workload() -> list[Operation]:
    """Table IIIa; the last operation's offset is the table's."""
    return [
        dot_product(100, (0, 1), (2, 3), offset=0),
        dot_product(101, (1, 2), (3, 4), offset=0),
        dot_product(102, (2, 3), offset=0),
        dot_product(103, (4, 5), offset=0),
        dot_product(104, (100, 101), (102, 103), offset=20),
    ]


def reduction_network(maeri_style: bool = True) -> Hardware:
    """Figures 4 and 5: a binary tree of 7 adders behind 8 multipliers, wires in the direction of the reduction.

    `maeri_style`: with two wires between ADD_01 and ADD_02, the augmented reduction tree of MAERI (Kwon et al.).
    """
    network = Hardware()
    for i in range(8):
        network.node(size=2, name=f"MUL_{i}")
    for i in range(4):
        network.node(size=4, name=f"ADD_0{i}")
    network.node(size=4, name="ADD_10")
    network.node(size=4, name="ADD_11")
    network.outNode(size=4, name="ADD_20")
    for i in range(8):
        network.wire(source=f"MUL_{i}", destination=f"ADD_0{i // 2}", bandwidth=1, cost=2, delay=1)
    for i in range(4):
        network.wire(source=f"ADD_0{i}", destination=f"ADD_1{i // 2}", bandwidth=1, cost=2, delay=1)
    network.wire(source="ADD_10", destination="ADD_20", bandwidth=1, cost=2, delay=1)
    network.wire(source="ADD_11", destination="ADD_20", bandwidth=1, cost=2, delay=1)
    if maeri_style:
        network.wire(source="ADD_01", destination="ADD_02", bandwidth=1, cost=2, delay=1)
        network.wire(source="ADD_02", destination="ADD_01", bandwidth=1, cost=2, delay=1)
    return network


def butterfly() -> Hardware:
    """Figure 6: a DRAM, a butterfly of three stages of four 2x2 switches, seven accelerators and a processor.

    Endpoint e hangs on switch e // 2 of the last stage. Switch s of stage t leads to switches s and s ^ (4 >> t + 1)
    of the next one, so that there is one way from each switch of the first stage to each endpoint. The paper gives no
    sizes: links carry a datum a cycle, endpoints hold 16 operands. Accelerators (`NPU_0` .. `NPU_6`) do dot products
    and matrix products; the processor (`CPU`) does these slowly, and custom functions. Results return over one bus.
    """
    hardware = Hardware()
    hardware.node(size=None, name="DRAM", keeps=True)
    for stage in range(3):
        for switch in range(4):
            hardware.node(size=8, name=f"SW_{stage}{switch}")
    names = [*(f"NPU_{i}" for i in range(7)), "CPU"]
    for name in names:
        hardware.node(size=16, name=f"{name}_input")
        hardware.node(size=64, name=f"{name}_output", keeps=True)
    for switch in range(4):
        hardware.wire(source="DRAM", destination=f"SW_0{switch}", bandwidth=1, cost=10, delay=4)
    for stage in range(2):
        for switch in range(4):
            for target in (switch, switch ^ 2 >> stage):
                hardware.wire(
                    source=f"SW_{stage}{switch}", destination=f"SW_{stage + 1}{target}", bandwidth=1, cost=1, delay=1
                )
    for endpoint, name in enumerate(names):
        hardware.wire(source=f"SW_2{endpoint // 2}", destination=f"{name}_input", bandwidth=1, cost=1, delay=1)
        hardware.wire(source=f"{name}_output", destination="DRAM", bandwidth=1, cost=10, delay=4)
    for name in names[:-1]:
        latency = {DOT: 2, "matmul": 8}
        hardware.actor(Actor(name, f"{name}_input", f"{name}_output", slots=4, cooldown=2, latency=latency))
    latency = {DOT: 12, "matmul": 64, "custom": 6}
    hardware.actor(Actor("CPU", "CPU_input", "CPU_output", slots=4, cooldown=4, latency=latency))
    return hardware


#: Cycles that bring a handful of operands from the DRAM to an endpoint of the butterfly.
BUTTERFLY_DISTRIBUTION = 14
