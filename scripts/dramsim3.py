"""What DRAMsim3 takes for the patterns of the study `dram_banks`: `python scripts/dramsim3.py CHECKOUT` prints the file
tb/studies/chip/dramsim3.json.

CHECKOUT: of github.com/umd-memsys/DRAMsim3, in which `make` has been run. It gets the parts' timings in clocks of their
buses, and each burst as the accesses that it has. `in order`: one queue for reads and writes, one access at a time, and
one for each bank; `FR-FCFS`: as it comes, with 32 reads and 32 writes, eight accesses for each bank, rows that are open
first, and writes when they are many. Of workloads it gets the bursts of the busiest channel, and `here` is what a
channel takes for these.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.hw.spec.config import ChipConfig
from meshloom.tb.studies.chip.dram_banks import BANKS, CHIP, PART, WORKLOADS, program_of
from meshloom.tb.studies.chip.dram_traffic import CHANNELS, COUNT, PATTERNS, Burst, busiest, played, replay
from meshloom.tb.studies.points.runs import chip_of

#: Clock of the bus in nanoseconds, width of the bus in bits, and accesses by clock of DRAMsim3's name of the protocol.
BUSES = {"ddr3_1600": ("DDR3", 1.25, 16), "lpddr4_3200": ("LPDDR4", 0.625, 32)}
QUEUES = {
    "in order": {"unified_queue": "true", "trans_queue_size": 1, "cmd_queue_size": 1},
    "FR-FCFS": {"unified_queue": "false", "trans_queue_size": 32, "cmd_queue_size": 8},
}
#: The address bit from which on accesses are counted, above those of rows: DRAMsim3 would carry out two of one address,
#: or a read of what waits to be written, as one.
_ABOVE = 40
#: Feeds a trace, in its order, as fast as it is taken; prints the cycle in which the last read has come or, if that is
#: later, the last access was taken.
DRIVER = """
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include "dramsim3.h"
int main(int, char** argv) {
  uint64_t now = 0, back = 0, done = 0, reads = 0;
  auto* memory = dramsim3::GetMemorySystem(argv[1], ".", [&](uint64_t) { ++done; back = now; }, [](uint64_t) {});
  std::FILE* trace = std::fopen(argv[2], "r");
  unsigned long long cycle, address;
  char kind;
  while (std::fscanf(trace, "%llu %llx %c", &cycle, &address, &kind) == 3) {
    while (now < cycle || !memory->WillAcceptTransaction(address, kind == 'W')) { memory->ClockTick(); ++now; }
    memory->AddTransaction(address, kind == 'W');
    reads += kind != 'W';
    memory->ClockTick(); ++now;
  }
  while (done < reads) { memory->ClockTick(); ++now; }
  memory->PrintStats();
  std::printf("%llu\\n", (unsigned long long)std::max(back, now));
}
"""


def settings(part: str, chip: ChipConfig, queues: dict[str, str | int]) -> str:
    """A part as a configuration of DRAMsim3."""
    protocol, clock, width = BUSES[part]
    banks = chip.dram.banks
    assert banks is not None

    def clocks(nanoseconds: float) -> int:
        return ceil(nanoseconds / clock - 1e-9)

    times = {
        "CL": banks.t_cl, "CWL": banks.t_cwl, "tRCD": banks.t_rcd, "tRP": banks.t_rp, "tRAS": banks.t_ras,
        "tRFC": banks.t_rfc, "tREFI": banks.t_refi, "tRRD_S": banks.t_rrd, "tRRD_L": banks.t_rrd,
        "tWTR_S": banks.t_wtr, "tWTR_L": banks.t_wtr, "tFAW": banks.t_faw, "tWR": banks.t_wr, "tRTP": banks.t_rtp,
        "tRTRS": banks.t_rtw,
    }  # fmt: skip
    burst = 8 * banks.access_bytes // width
    sections: dict[str, dict[str, str | int | float]] = {
        "dram_structure": {
            "protocol": protocol, "bankgroups": 1, "banks_per_group": banks.count, "rows": 65536,
            "columns": banks.row_bytes * 8 // width, "device_width": width, "BL": burst,
        },
        "timing": {"tCK": clock, "AL": 0, "tCCD_S": burst // 2, "tCCD_L": burst // 2}
        | {name: clocks(value) for name, value in times.items()},
        "system": {
            "channel_size": 1, "channels": 1, "bus_width": width, "address_mapping": "chrarobgbaco",
            "queue_structure": "PER_BANK", "refresh_policy": "RANK_LEVEL_STAGGERED", "row_buf_policy": "OPEN_PAGE",
        }
        | queues,
        "other": {"epoch_period": 1000000000, "output_level": 0},
    }  # fmt: skip
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
        for name, values in sections.items()
    )


def trace(part: str, chip: ChipConfig, bursts: Iterable[Burst]) -> str:
    """Bursts as accesses, each on a line: clock of the bus, byte address, R or W."""
    banks = chip.dram.banks
    assert banks is not None
    assert chip.clock_mhz is not None
    ratio = 1000 / chip.clock_mhz / BUSES[part][1]
    lines: list[str] = []
    for burst in bursts:
        first, last = burst.word * chip.lanes, (burst.word + burst.words) * chip.lanes - 1
        for access in range(first // banks.access_bytes, last // banks.access_bytes + 1):
            address = access * banks.access_bytes + (len(lines) << _ABOVE)
            lines.append(f"{int(burst.at * ratio)} {address:x} {'W' if burst.write else 'R'}\n")
    return "".join(lines)


def measure(
    driver: Path, part: str, chip: ChipConfig, bursts: Iterable[Burst], queues: str, folder: Path
) -> dict[str, int]:
    """Cycles of the chip, activates and accesses."""
    (folder / "part.ini").write_text(settings(part, chip, QUEUES[queues]))
    (folder / "trace").write_text(trace(part, chip, bursts))
    output = subprocess.run([driver, "part.ini", "trace"], cwd=folder, capture_output=True, text=True, check=True)
    stats = json.loads((folder / "dramsim3.json").read_text())["0"]
    assert chip.clock_mhz is not None
    cycles = int(output.stdout.split()[-1]) * BUSES[part][1] * chip.clock_mhz / 1000
    return {
        "cycles": round(cycles),
        "activates": stats["num_act_cmds"],
        "accesses": stats["num_read_cmds"] + stats["num_write_cmds"],
    }


def main(checkout: str) -> None:
    """Prints the file."""
    root = Path(checkout).resolve()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, str | int]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "driver.cc").write_text(DRIVER)
        driver = folder / "driver"
        library = ["-L", str(root), "-ldramsim3", f"-Wl,-rpath,{root}"]
        command = ["g++", "-O2", "-std=c++11", f"-I{root / 'src'}", "-o", str(driver), "driver.cc", *library]
        subprocess.run(command, cwd=folder, check=True)
        for part, chip in CHANNELS.items():
            for pattern, bursts in PATTERNS.items():
                for queues in QUEUES:
                    measured = measure(driver, part, chip, bursts(chip, COUNT), queues, folder)
                    rows.append({"part": part, "pattern": pattern, "queues": queues, **measured})
        chip = chip_of(CHIP, BANKS)
        for workload in WORKLOADS:
            some = busiest(played(program_of(workload, chip), chip)[1])
            known = {"part": CHIP, "pattern": workload, "here": replay(chip, some).cycles}
            for queues in QUEUES:
                rows.append(known | {"queues": queues, **measure(driver, PART, chip, some, queues, folder)})
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    head = f'{{\n  "simulator": "DRAMsim3",\n  "commit": "{commit.strip()}",\n  "rows": [\n'
    sys.stdout.write(f"{head}{lines}\n  ]\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1])
