"""The channel with banks as Verilog in Icarus, against a plain reference: random bursts, to the cycle; and chips whose
banks cannot be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, ConfigError, load
from meshloom.hw.spec.dram_banks import BanksConfig, bank_cycles, built_in_parts, part
from meshloom.tb.build import channel

from ..dram_reference import Reference
from ..tiers import slow_but


def chip_with(banks: dict[str, Any], lanes: int = 4, clock: float = 800.0, **dram: Any) -> ChipConfig:
    """A small chip whose DRAM has these banks."""
    values = {"name": "banked", "lanes": lanes, "clock_mhz": clock, "floorplan": ["dram core", "host spm"]}
    return ChipConfig.model_validate(values | {"dram": {"words": 4096, "banks": banks} | dram})


_SMALL = {"row_bytes": 256, "t_refi": 900.0}
#: Each with its own pattern of pauses of whoever reads.
CHIPS = {
    "ddr3": (chip_with({"part": "ddr3_1600", "count": 4} | _SMALL, bytes_per_cycle=3, latency=5), 0.0),
    "lpddr4": (chip_with({"part": "lpddr4_3200", "row_bytes": 512}, lanes=8, bytes_per_cycle=8, latency=11), 0.4),
    "one_bank": (
        chip_with(
            {"part": "ddr3_1600", "count": 1, "turn_after": 1} | _SMALL | {"row_bytes": 2048},
            bytes_per_cycle=4,
            latency=1,
        ),
        0.1,
    ),
    "slow": (chip_with({"part": "lpddr4_3200", "row_bytes": 256}, clock=150.0, bytes_per_cycle=1, latency=3), 0.0),
}

_BENCH = """
module bench;
  reg clk = 0, rst = 1;
  always #1 clk = ~clk;
  reg arvalid = 0, awvalid = 0, wvalid = 0;
  reg [31:0] araddr, awaddr;
  reg [7:0] arlen, awlen, left;
  wire arready, awready, wready, rvalid, rlast, bvalid, wrong;
  reg [95:0] reads [0:{reads}], writes [0:{writes}];
  reg pauses [0:1023], gaps [0:1023];
  integer cycle = 0, r = 0, w = 0, open = 0, gone = 0, answered = 0;
  wire rready = !pauses[cycle % 1024];
  wire [{bits}:0] rdata;
  {instance} dut (
    .clk(clk), .rst(rst), .awid(1'b0), .awaddr(awaddr), .awlen(awlen), .awsize(3'd{size}), .awburst(2'd1),
    .awvalid(awvalid), .awready(awready), .wdata({{{lanes}{{cycle[7:0]}}}}), .wstrb({{{lanes}{{1'b1}}}}),
    .wlast(left == 0), .wvalid(wvalid), .wready(wready), .bid(), .bresp(), .bvalid(bvalid), .bready(1'b1),
    .arid(1'b0), .araddr(araddr), .arlen(arlen), .arsize(3'd{size}), .arburst(2'd1), .arvalid(arvalid),
    .arready(arready), .rid(), .rdata(rdata), .rresp(), .rlast(rlast), .rvalid(rvalid), .rready(rready),
    .protocol_error(wrong));
  initial begin
    $readmemh("reads.hex", reads); $readmemh("writes.hex", writes);
    $readmemh("pauses.hex", pauses); $readmemh("gaps.hex", gaps);
    repeat (4) @(posedge clk);
    rst <= 0;
  end
  always @(posedge clk) if (!rst) begin
    cycle <= cycle + 1;
    if (arvalid && arready) $display("AR %0d", cycle);
    if (awvalid && awready) $display("AW %0d", cycle);
    if (wvalid && wready && left == 0) $display("W %0d", cycle);
    if (rvalid && rready) $display("R %0d", cycle);
    if (bvalid) $display("B %0d", cycle);
    if (wrong) $display("wrong %0d", cycle);
    if (!arvalid || arready) begin
      arvalid <= r < {reads} && reads[r][95:64] <= cycle;
      {{araddr, arlen}} <= {{reads[r][63:32], reads[r][7:0]}};
      if (r < {reads} && reads[r][95:64] <= cycle) r <= r + 1;
    end
    // one burst at a time, as the chip's port
    if (awvalid && awready) begin awvalid <= 0; open <= 1; left <= awlen; end
    else if (!awvalid && !open && w < {writes} && writes[w][95:64] <= cycle) begin
      awvalid <= 1; {{awaddr, awlen}} <= {{writes[w][63:32], writes[w][7:0]}}; w <= w + 1;
    end
    wvalid <= ((awvalid && awready) || (open && !(wvalid && wready && left == 0))) && !gaps[cycle % 1024]
              || (wvalid && !wready);
    if (wvalid && wready) begin left <= left - 1; if (left == 0) open <= 0; end
    if (rvalid && rready && rlast) gone <= gone + 1;
    if (bvalid) answered <= answered + 1;
    if ((gone == {reads} && answered == {writes}) || cycle == 60000) begin
      $display("hits %0d", dut.banked.banks.hits);
      $display("misses %0d", dut.banked.banks.misses);
      $display("conflicts %0d", dut.banked.banks.conflicts);
      $finish;
    end
  end
endmodule
"""


def bursts(random: Random, chip: ChipConfig, count: int) -> list[tuple[int, int, int]]:
    """Cycle, first word and words of random bursts: some follow each other, some lie anywhere, all in one packet."""
    result, cycle, word = list[tuple[int, int, int]](), 0, 0
    for _ in range(count):
        cycle += random.choice((0, 0, 0, 1, 5, 30, 400))
        if random.random() < 0.5:
            word = random.randrange(chip.dram.words - chip.packet_words)
        words = random.choice((1, 2, 16, 64))
        words = min(words, chip.packet_words - word % chip.packet_words)
        result.append((cycle, word, words))
        word = (word + words) % (chip.dram.words - chip.packet_words)
    return result


def simulated(
    chip: ChipConfig, offered: list[list[tuple[int, int, int]]], pauses: list[list[bool]], folder: Path
) -> dict[str, list[int]]:
    """What the bench says, by kind of line."""
    for name, some in zip(("reads", "writes"), offered, strict=True):
        lines = [f"{at:08x}{word * chip.lanes:08x}{words - 1:08x}\n" for at, word, words in some]
        (folder / f"{name}.hex").write_text("".join([*lines, "ffffffff0000000000000000\n"]))
    for name, pattern in zip(("pauses", "gaps"), pauses, strict=True):
        (folder / f"{name}.hex").write_text("".join(f"{int(pause)}\n" for pause in pattern))
    values = {"reads": len(offered[0]), "writes": len(offered[1]), "bits": chip.word_bits - 1, "lanes": chip.lanes}
    values |= {"instance": channel.instance(chip), "size": chip.lanes.bit_length() - 1}
    (folder / "bench.v").write_text(_BENCH.format_map(values))
    sources = [folder / "bench.v", *(channel.FOLDER / name for name in (*channel.sources(chip), "clock_gate.v"))]
    subprocess.run(["iverilog", "-g2005", "-s", "bench", "-o", folder / "bench", *sources], check=True)
    text = subprocess.run([folder / "bench"], check=True, capture_output=True, text=True, cwd=folder).stdout
    lines = dict[str, list[int]]()
    for line in text.splitlines():
        kind, cycle = line.split()
        lines.setdefault(kind, []).append(int(cycle))
    return lines


@pytest.mark.parametrize("name", slow_but(CHIPS, "ddr3"))
def test_bursts_take_what_the_reference_says(name: str, tmp_path: Path) -> None:
    chip, often = CHIPS[name]
    random = Random(name)
    count = 70 if name == "ddr3" else 150  # the first tier is cheap
    reads, writes = bursts(random, chip, count), bursts(random, chip, count)
    pauses, gaps = ([random.random() < share for _ in range(1024)] for share in (often, often / 2))
    lines = simulated(chip, [reads, writes], [pauses, gaps], tmp_path)
    assert "wrong" not in lines
    begin = min(lines["AR"][0], lines["AW"][0])
    asked, given = (
        [(at + 1 - begin, word, words) for at, (_, word, words) in zip(lines[kind], some, strict=True)]
        for kind, some in (("AR", reads), ("W", writes))
    )
    reference = Reference(chip)
    taken = reference.play(asked, given)
    beats = reference.beats(asked, lambda cycle: not pauses[(cycle + begin) % 1024])
    assert [cycle - begin for cycle in lines["R"]] == beats
    # a response for each write, in the fourth cycle after its last data
    assert [cycle - begin for cycle in lines["B"]] == [burst.end - 1 + 4 for burst in taken if burst.write]
    names = {"hit": "hits", "miss": "misses", "conflict": "conflicts"}
    assert {kind: lines[names[kind]][0] for kind in names} == reference.kinds
    assert min(reference.kinds.values()) > 5


# -- what cannot be -------------------------------------------------------------------------------------------------


def refused(
    banks: dict[str, Any], tmp_path: Path, head: str = "clock_mhz = 800.0", dram: str = "", plan: str = ""
) -> str:
    """The one line that refuses a chip in a file."""
    plan = plan or '["dram core", "host spm"]'
    rows = "".join(f"{key} = {json.dumps(value)}\n" for key, value in banks.items())
    path = tmp_path / "chip.toml"
    path.write_text(f'name = "banked"\nlanes = 4\n{head}\nfloorplan = {plan}\n[dram]\n{dram}\n[dram.banks]\n{rows}')
    with pytest.raises(ConfigError) as caught:
        load(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


_DDR3 = {"part": "ddr3_1600"}


def test_banks_that_cannot_be_are_refused_in_one_line(tmp_path: Path) -> None:
    assert "part = 'ddr3_160' is not built in: did you mean ddr3_1600?" in refused({"part": "ddr3_160"}, tmp_path)
    assert "bandwidth, t_cl, t_cwl" in refused({"count": 8}, tmp_path)
    assert "count = 6 must be a power of two" in refused(_DDR3 | {"count": 6}, tmp_path)
    text = refused(_DDR3 | {"access_bytes": 4096}, tmp_path)
    assert "access_bytes = 4096 is more than a row of 2048 bytes" in text
    text = refused(_DDR3 | {"t_ras": 10.0}, tmp_path)
    assert "t_ras = 10.0 is shorter than t_rcd = 13.75, which is a part of it" in text
    text = refused(_DDR3 | {"t_refi": 300.0}, tmp_path)
    assert "t_refi = 300.0 leaves no time between refreshes: t_ras, t_rp and t_rfc are 308.75" in text
    text = refused(_DDR3, tmp_path, head="")
    assert "dram.banks has times in nanoseconds, and a chip without clock_mhz has no cycles for them; set it" in text
    text = refused(_DDR3, tmp_path, plan='["dram core dtt", "host spm ."]')
    assert 'dram.banks on a floorplan with a "dtt" tile: its controller plans reads that take the same time' in text
    text = refused(_DDR3, tmp_path, head="clock_mhz = 1000.0", dram="bytes_per_cycle = 4")
    assert "dram.bytes_per_cycle = 4 at clock_mhz = 1000 is more than dram.banks.bandwidth = 3.2 (10^9 bytes" in text
    text = refused(_DDR3 | {"row_bytes": 128}, tmp_path)
    assert (
        "dram.banks.row_bytes = 128 is less than a packet of 64 words of 4 bytes, which is one burst; set 256" in text
    )


def test_times_become_cycles_of_the_chip_rounded_to_the_safe_side() -> None:
    assert built_in_parts() == ("ddr3_1600", "lpddr4_3200")
    banks = BanksConfig.model_validate({"part": "lpddr4_3200"})
    at_800 = bank_cycles(banks, 16, 16, 800.0)
    assert (at_800.cl, at_800.rcd, at_800.ras, at_800.wtr) == (14, 15, 34, 8)  # 14, 14.4, 33.6, 8
    assert (at_800.refi, at_800.rfc, at_800.row_words, at_800.block, at_800.window) == (3123, 144, 256, 4, 44)
    at_1000 = bank_cycles(BanksConfig.model_validate({"part": "ddr3_1600"}), 4, 2, 1000.0)
    assert (at_1000.cl, at_1000.rcd, at_1000.refi, at_1000.block) == (14, 14, 7800, 8)
    # a part's values can be overridden one by one
    assert BanksConfig.model_validate({"part": "ddr3_1600", "t_rfc": 160.0}).t_rfc == 160.0
    assert part("ddr3_1600")["t_rfc"] == 260.0


def test_a_clock_counts_in_the_digest_of_a_chip_with_banks_alone() -> None:
    fast, slow = (chip_with({"part": "ddr3_1600"}, clock=clock, bytes_per_cycle=1) for clock in (800.0, 400.0))
    assert fast.digest != slow.digest
    plain = [chip.model_copy(update={"dram": chip.dram.model_copy(update={"banks": None})}) for chip in (fast, slow)]
    assert plain[0].digest == plain[1].digest
