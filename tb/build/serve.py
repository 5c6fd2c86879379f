"""The cocotb side of a simulation in which programs come and go. Runs inside the simulator.

The process that started it writes lines to the pipe `orders` in the folder of the run, each a JSON list of the bench's
inputs to set, {name: value}, and of acts (`ports.Act`), [act, place, answer]. It reads a line from `answers` for each:
what the acts answered, the CPU seconds that they took, and whether the chip has broken a protocol. The simulation ends
when `orders` ends.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from .ports import STARTED
from .simulate import ANSWERS

ORDERS = "orders"


@cocotb.test()
async def serve(dut: Any) -> None:
    """Carries out orders, a line at a time. No Python runs between the cycles of a RUN."""
    with Path(ORDERS).open() as lines, Path(ANSWERS).open("w") as answers:
        Path(STARTED).touch()
        await Timer(1, "ns")
        toggle = 0
        for line in lines:
            numbers: list[int] = []
            before = time.process_time()
            inputs, acts = json.loads(line)
            for name, value in inputs.items():
                getattr(dut, name).value = value
            for act, place, value in acts:
                dut.act.value, dut.place.value, dut.given.value = act, place, value
                await Timer(1, "ns")
                toggle = 1 - toggle
                dut.order.value = toggle
                await dut.ordered.value_change
                numbers.append(int(dut.answer.value))
            answers.write(json.dumps([*numbers, time.process_time() - before, int(dut.protocol.value)]) + "\n")
            answers.flush()
