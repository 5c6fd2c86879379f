"""What Python and the bench say to each other: registers, orders and files.

Imports nothing of the chip: the Python inside of a simulator begins with this alone, and soon.
"""

from __future__ import annotations

from enum import IntEnum

#: Registers of the bench that Python sets (name, bits) and reads.
INPUTS = {
    "job": 32,
    "program_tile": 32,
    "program_addr": 32,
    "program_count": 32,
    "watchdog": 32,
    "stall_limit": 32,
    "trace_tile": 32,
    "trace_addr": 32,
    "trace_count": 32,
    "observe": 1,
    "stay": 1,
    "request": 1,
    "act": 32,
    "place": 32,
    "given": 32,
    "order": 1,
}


class Act(IntEnum):
    """What Python can order beside jobs, one at a time: it sets `act`, `place` and `given`, toggles `order` and waits
    for `ordered`. Programs that come and go (`ChipConfig.programs`) are launched so."""

    OPEN = 0  #: reset the chip; `answer`: its digest
    WRITE = 1  #: the register `place` becomes `given`
    READ = 2  #: `answer` becomes the register `place`
    RUN = 3  #: `place` cycles, or until `irq` is set; `answer`: whether it is
    LOAD = 4  #: the images of `job` into the DRAM channels, beside what is there; of job 0: in its place
    DUMP = 5  #: the ranges of data, as for a job


#: Environment variable: threads that share the work of a simulation.
THREADS = "MESHLOOM_THREADS"
#: File that the simulation writes as soon as the chip is there.
STARTED = "started"
OUTPUTS = {
    "ordered": 1,
    "answer": 32,
    "loaded": 1,
    "ran": 1,
    "finished": 1,
    "status": 32,
    "cycles": 32,
    "fault_who": 32,
    "fault_value": 32,
    "quiet": 32,
    "chip_id": 32,
    "protocol": 1,
}
#: What is dumped of a channel.
KINDS = ("data", "records")
