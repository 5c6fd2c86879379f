"""Chips from other tools' hardware files: back from what we export, what is not carried over, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.tb.exchange import hardware, zigzag_chip
from meshloom.tb.exchange.chips import CHIP_IMPORTERS
from meshloom.tb.exchange.hardware import ImportedChip, floorplan, toml
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.registry import CHIP_EXPORTERS
from meshloom.tb.inputs.chips import changed
from meshloom.tb.results.energy import DEFAULT
from meshloom.tb.results.energy import load as load_energy

from ..command_line import invoke

#: Tools that have a form for several cores; SCALE-Sim has one core.
TOOLS = ("zigzag", "stream", "accelforge", "timeloop")
CHIPS = ("tiny", "quad8", "nine8", "quad16", "mono16", "pe12x14", "arch5", "server4")
FILES = {"zigzag": ".yaml", "stream": ".stream.yaml", "accelforge": ".accelforge.yaml", "timeloop": ".arch.yaml"}


def exported(chip: ChipConfig, tool: str, folder: Path) -> Path:
    """The hardware file of a chip."""
    for name, text in CHIP_EXPORTERS.get(tool).texts(chip, load_energy(DEFAULT)).items():
        (folder / name).write_text(text)
    return folder / f"{chip.name}{FILES.get(tool, '.cfg')}"


def carried(chip: ChipConfig) -> dict[str, int]:
    """What a tool's file says of a chip: bytes of memories, not their words."""
    return {
        "rows": chip.rows,
        "cols": chip.cols,
        "cores": len(chip.cores),
        "a": chip.core.a_words * chip.lanes,
        "b": chip.core.b_words * chip.lanes,
        "acc": chip.core.acc_words,
        "bandwidth": chip.dram.bytes_per_cycle * len(chip.drams),
    }


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_comes_back_as_it_was(name: str, tool: str, tmp_path: Path) -> None:
    chip = load(name)
    imported = CHIP_IMPORTERS.get(tool).read(exported(chip, tool, tmp_path))
    assert carried(imported.chip) == carried(chip)
    assert imported.chip.name == f"{name}_{tool}", "no chip has a built-in one's name"
    written = (tmp_path / f"{name}{FILES[tool]}").read_text()
    assert "&id" not in written, "tools read no names of YAML"
    assert " -1" not in written
    if tool in ("zigzag", "stream"):
        assert written.startswith("name: ")
        dram = imported.chip.dram.words * imported.chip.lanes * len(imported.chip.drams)
        assert dram == chip.dram.words * chip.lanes * len(chip.drams)


@pytest.mark.parametrize("name", ["tiny", "mono16", "mono32", "pe12x14"])
def test_a_configuration_of_scalesim_comes_back(name: str, tmp_path: Path) -> None:
    """It has one core, and OUT in the place of ACC."""
    chip = load(name)
    imported = CHIP_IMPORTERS.get("scalesim").read(exported(chip, "scalesim", tmp_path))
    same = carried(chip) | {"cores": 1}
    assert carried(imported.chip) == same
    assert imported.chip.core.out_words == chip.core.out_words
    assert any("OfmapSramSzkB" in each for each in imported.left)


def test_memories_of_zigzag_are_as_wide_as_what_uses_them() -> None:
    """An array of 12 rows and 14 columns, words of 16 bytes."""
    chip, energy = load("pe12x14"), load_energy(DEFAULT)
    assert (chip.rows, chip.cols, chip.lanes) == (12, 14, 16)
    memories = zigzag_chip.hardware(chip, energy)["memories"]
    widths = {"sums": 32, "a": 8 * 12, "b": 8 * 16, "acc": 32 * 14,
              "dram": 8 * chip.dram.bytes_per_cycle * len(chip.drams)}  # fmt: skip
    assert {name: {port["bandwidth_max"] for port in each["ports"]} for name, each in memories.items()} == {
        name: {width} for name, width in widths.items()
    }
    assert {port["bandwidth_min"] for each in memories.values() for port in each["ports"]} == {8}
    assert memories["a"]["size"] == 8 * 16 * chip.core.a_words
    assert memories["a"]["r_cost"] == round(energy.sram_byte(16 * chip.core.a_words) * 12, 4)
    assert memories["dram"]["w_cost"] == round(energy.dram_byte * widths["dram"] / 8, 4)
    assert [port["type"] for port in memories["acc"]["ports"]] == ["read", "write"]


def test_memories_of_less_than_a_kilobyte_have_one() -> None:
    chip = changed(load("tiny"), {"core.a_words": 16})
    assert "IfmapSramSzkB = 1\n" in "".join(CHIP_EXPORTERS.get("scalesim").texts(chip, load_energy(DEFAULT)).values())


@pytest.mark.parametrize(
    ("bandwidth", "channels", "left"),
    [
        (None, (1, 12), "DRAM: the file does not say its bandwidth; 12 bytes a cycle"),
        (1, (1, 1), ""),
        (16, (1, 16), ""),
        (17, (2, 8), "DRAM: 1 of 17 bytes a cycle, which 2 channels do not share"),
        (128, (8, 16), ""),
        (129, (8, 16), "DRAM: 129 bytes a cycle; 8 channels of 16 are built"),
    ],
)
def test_channels_have_the_bandwidth_together(bandwidth: int | None, channels: tuple[int, int], left: str) -> None:
    words: list[str] = []
    assert hardware._channels(bandwidth, 16, 12, words) == channels
    assert words == [left] * bool(left)


@pytest.mark.parametrize(
    ("count", "words", "left"),
    [
        (None, 12, "A: the file does not say how large it is; 12 words as in any chip of ours"),
        (24, 3, ""),
        (29, 3, "A: 5 of 29 bytes, which fill no word of 8"),
        (7, 1, "A: 7 bytes are not 1 to 100 words of 8 bytes; the nearest is built"),
        (9000, 100, "A: 9,000 bytes are not 1 to 100 words of 8 bytes; the nearest is built"),
    ],
)
def test_memories_have_as_many_words_as_fill_them(count: int | None, words: int, left: str) -> None:
    lines: list[str] = []
    assert hardware._words("A", count, 8, 12, 100, lines) == words
    assert lines == [left] * bool(left)


def test_its_file_is_a_chip_that_can_be_used(tmp_path: Path) -> None:
    path = exported(load("quad8"), "zigzag", tmp_path)
    shown = invoke("import-chip", "zigzag", path, "--out", tmp_path / "mine.toml", "--name", "mine")
    assert shown.exit_code == 0, shown.output
    chip = load(tmp_path / "mine.toml")
    assert (chip.name, chip.lanes, len(chip.cores)) == ("mine", 8, 4)
    assert "note: axes D3 4 of the array are 4 cores" in shown.output
    assert "note: the NoC, the host and the layout are ours" in shown.output
    assert chip == CHIP_IMPORTERS.get("zigzag").read(path, "mine").chip
    assert invoke("import-chip", "zigzag", path, "--name", "mine").stdout == toml(chip, "From quad8.yaml of zigzag.")


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 9, 25, 40])
@pytest.mark.parametrize("channels", [1, 2, 5, 8])
def test_layouts_have_every_tile(cores: int, channels: int) -> None:
    rows = [row.split() for row in floorplan(cores, channels)]
    assert len({len(row) for row in rows}) == 1
    kinds = [kind for row in rows for kind in row]
    assert (kinds.count("core"), kinds.count("dram"), kinds.count("host")) == (cores, channels, 1)
    assert set(kinds) <= {kind.value for kind in TileKind}


# -- files of the tools' own kinds ------------------------------------------------------------------------------------

#: As ZigZag's examples are: weights in registers of the array, one buffer for inputs and outputs.
LIKE_TPU = """
name: like tpu
memories:
  rf: {size: 1024, operands: [I2], ports: [{bandwidth_max: 8}], served_dimensions: []}
  sums: {size: 16, operands: [O], ports: [{bandwidth_max: 16}], served_dimensions: []}
  buffer: {size: 16777216, operands: [I1, O], ports: [{bandwidth_max: 2048}], served_dimensions: [D1, D2]}
  dram: {size: 10000000000, operands: [I1, I2, O], ports: [{bandwidth_max: 64}], served_dimensions: [D1, D2]}
operational_array: {dimensions: [D1, D2], sizes: [32, 16]}
"""
#: As Timeloop's examples of version 0.3 are.
SUBTREE = """
architecture:
  version: 0.3
  subtree:
  - name: system
    local:
    - {name: DRAM, class: DRAM, attributes: {word-bits: 8, shared_bandwidth: 8}}
    subtree:
    - name: chip
      local:
      - {name: Buffer, class: SRAM, attributes: {entries: 24576, word-bits: 8}}
      subtree:
      - name: PE[0..255]
        attributes: {meshX: 16}
        local:
        - {name: Registers, class: regfile, attributes: {depth: 1, width: 32}}
        - {name: mac, class: intmac, attributes: {datawidth: 8}}
"""
#: Version 0.4, as Timeloop's own examples are: memories side by side, and an array of two containers.
PARALLEL = """
architecture:
  version: 0.4
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {datawidth: 8, read_bandwidth: 8}}
  - !Hierarchical
    nodes:
    - !Parallel
      nodes:
      - !Component {name: In, attributes: {depth: 4096, width: 8}, constraints: {dataspace: {keep: [Inputs]}}}
      - !Component {name: W, attributes: {depth: 8192, width: 8}, constraints: {dataspace: {keep: [Weights]}}}
      - !Nothing {constraints: {dataspace: {keep: [Outputs]}}}
  - !Container {name: columns, spatial: {meshX: 14}}
  - !Container {name: PE, spatial: {meshY: 12}}
  - !Component {name: mac, class: intmac, attributes: {datawidth: 8}}
"""
#: As AccelForge's examples are: sizes are products.
NODES = """
arch:
  nodes:
  - !Memory {name: Main, size: inf, tensors: {keep: All}, actions: [{name: read, throughput: 8 * 16e9}]}
  - !Memory {name: Buffer, size: 1024*8*12, tensors: {keep: All}}
  - !Memory {name: Weights, size: 2**20, tensors: {keep: weight}}
  - !Container {name: PE, spatial: [{name: a, fanout: 8}, {name: b, fanout: 4}]}
  - !Compute {name: MAC, actions: [{name: compute, throughput: 1e9}]}
"""


def imported(tool: str, text: str, folder: Path) -> ImportedChip:
    path = folder / f"file.{'cfg' if tool == 'scalesim' else 'yaml'}"
    path.write_text(text)
    return CHIP_IMPORTERS.get(tool).read(path)


def test_what_zigzag_has_and_a_core_has_not_is_listed(tmp_path: Path) -> None:
    result = imported("zigzag", LIKE_TPU, tmp_path)
    chip = result.chip
    assert (chip.name, chip.rows, chip.cols, chip.lanes) == ("like_tpu", 32, 16, 32)
    assert chip.core.b_words * chip.lanes == 128 * 32 * 16
    assert chip.core.a_words * chip.lanes == 1 << 20
    assert chip.dram.bytes_per_cycle == 8
    for words in (
        "rf, 512 registers of weights in the array, are one memory of the core",
        "buffer is shared by 2 operands: inputs of a core have an equal part",
        "a DRAM channel: 1,250,000,000 bytes are not 1 to 16,777,216 words of 32 bytes; the nearest is built",
    ):
        assert words in result.left
    more = imported("zigzag", LIKE_TPU.replace("[D1, D2], sizes: [32, 16]", "[D1, D2, D3], sizes: [8, 8, 3]"), tmp_path)
    assert len(more.chip.cores) == 3
    assert more.chip.core.b_words * 8 == 128 * 64


def test_architectures_of_timeloop_of_both_versions(tmp_path: Path) -> None:
    result = imported("timeloop", SUBTREE, tmp_path)
    chip = result.chip
    assert (chip.rows, chip.cols, len(chip.cores), chip.dram.bytes_per_cycle) == (16, 16, 1, 8)
    assert chip.core.a_words * 16 == chip.core.b_words * 16 == 8192
    assert "Buffer is shared by 3 operands: inputs have an equal part" in result.left
    assert "Registers: in the array there are sums alone" in result.left
    unsaid = SUBTREE.replace("PE[0..255]", "PE[0..127]").replace("        attributes: {meshX: 16}\n", "")
    chip = imported("timeloop", unsaid, tmp_path).chip
    assert (chip.rows, chip.cols) == (8, 16), "as square as so many can be, where the file does not say"


def test_an_architecture_of_timeloop_with_memories_side_by_side_and_an_array_of_two_containers(tmp_path: Path) -> None:
    chip = imported("timeloop", PARALLEL, tmp_path).chip
    assert (chip.rows, chip.cols, len(chip.cores)) == (12, 14, 1)
    assert (chip.core.a_words * 16, chip.core.b_words * 16) == (4096, 8192)
    chip = imported("timeloop", PARALLEL.replace("meshY", "meshX"), tmp_path).chip
    assert (chip.rows, chip.cols, len(chip.cores)) == (1, 12, 14), "two rows are no array"
    between = PARALLEL.replace("  - !Container {name: PE", "  - !Component {name: B}\n  - !Container {name: PE")
    chip = imported("timeloop", between, tmp_path).chip
    assert (chip.rows, chip.cols, len(chip.cores)) == (12, 1, 14), "a memory between them: columns are cores"
    more = "  - !Component {name: C}\n  - !Container {name: lanes, spatial: {meshX: 4}}\n  - !Component {name: mac"
    nested = imported("timeloop", between.replace("14", "2").replace("  - !Component {name: mac", more), tmp_path)
    assert (nested.chip.rows, nested.chip.cols, len(nested.chip.cores)) == (1, 4, 24)
    assert "fanout columns, PE is 24 cores" in nested.left


def test_architectures_of_accelforge_with_products_for_sizes(tmp_path: Path) -> None:
    result = imported("accelforge", NODES, tmp_path)
    chip = result.chip
    assert (chip.rows, chip.cols, chip.dram.bytes_per_cycle * len(chip.drams)) == (8, 4, 16)
    assert chip.core.a_words * 8 == 4096, "a third of the buffer; the size of Weights is no product"
    two = NODES.replace("12, tensors: {keep: All}", "12, tensors: {keep: input | output}")
    result = imported("accelforge", two, tmp_path)
    assert result.chip.core.a_words * 8 == 6144
    assert "Buffer is shared by 2 operands: inputs have an equal part" in result.left


def test_a_chip_of_stream_may_have_its_cores_in_other_files(tmp_path: Path) -> None:
    core = LIKE_TPU.replace("  dram: {", "  other: {")
    (tmp_path / "core.yaml").write_text(core)
    text = "name: two\ncores: {0: core.yaml, 1: core.yaml, 2: dram.yaml}\noffchip_core_id: 2\n"
    (tmp_path / "dram.yaml").write_text(LIKE_TPU)
    result = imported("stream", text, tmp_path)
    assert (result.chip.name, len(result.chip.cores), result.chip.dram.bytes_per_cycle) == ("two", 2, 8)
    (tmp_path / "cores").mkdir()
    (tmp_path / "core.yaml").rename(tmp_path / "cores" / "core.yaml")
    assert imported("stream", text, tmp_path).chip == result.chip, "in the folder where Stream looks first"
    (tmp_path / "cores" / "core.yaml").rename(tmp_path / "core.yaml")
    with pytest.raises(
        ImportFileError, match=r"cores.0: ../core.yaml lies outside of the folder of this file; move it"
    ):
        imported("stream", text.replace("0: core", "0: ../core"), tmp_path)
    with pytest.raises(FileNotFoundError):
        imported("stream", text.replace("0: core", "0: nobody"), tmp_path)


CFG = "[architecture_presets]\nArrayHeight: 8\nArrayWidth: 8\nIfmapSramSzkB: 4\nFilterSramSzkB: 4\nOfmapSramSzkB: 4\n"


def test_dataflows_and_bandwidths_of_scalesim_are_listed(tmp_path: Path) -> None:
    result = imported("scalesim", CFG + "Dataflow: ws\nBandwidth: 4, 8, 2\n", tmp_path)
    assert result.chip.dram.bytes_per_cycle == 8
    assert "Dataflow = ws: the array keeps sums (os)" in result.left
    assert "Bandwidth of each operand: all share the channels, which have the most of them" in result.left


@pytest.mark.parametrize(
    ("tool", "text", "says"),
    [
        ("zigzag", LIKE_TPU[:180], "is not YAML: .*: was it cut"),
        ("zigzag", "a: 1\n", "memories: is missing; it must be a hardware file of zigzag-dse 3.9"),
        ("zigzag", LIKE_TPU.replace("[32, 16]", "[256, 16]"), "its array has 256 rows and 16 columns; up to 128 are"),
        ("zigzag", LIKE_TPU.replace("[32, 16]", "[32]"), "operational_array: 2 dimensions of sizes .32.; give"),
        ("zigzag", LIKE_TPU.replace("[I1, I2, O]", "[I1]"), "memories: none holds I1, I2 and O; the outermost"),
        ("zigzag", LIKE_TPU.replace("[D1, D2], sizes: [32, 16]", "[A, B, C], sizes: [4, 4, 999]"), "no chip is like"),
        ("zigzag", "!!python/object/apply:os.system [ls]", "is not YAML: could not determine a constructor"),
        ("zigzag", "!Memory [1]", "is not YAML: !Memory has no fields"),
        ("stream", "cores: {}\n", "cores: none computes; give one beside that of DRAM"),
        ("stream", "cores: {0: {}}\noffchip_core_id: 7\n", "memories: is missing"),
        ("timeloop", "architecture: {nodes: []}", "architecture: 0 memories and 0 fanouts; it needs DRAM"),
        ("timeloop", PARALLEL.replace("name: mac, ", ""), "architecture.nodes.4: name is missing; it must be an arch"),
        ("timeloop", "{{include('a.yaml')}}\n" + PARALLEL, "is a template of YAML, with {{ or {% in it; give the file"),
        ("timeloop", "problem: {}", "architecture: is missing; it must be an architecture of Timeloop"),
        ("accelforge", "arch: {nodes: []}", "arch: 0 fanouts and 0 memories; give DRAM, and a !Container with two"),
        ("scalesim", "no section", "File contains no section headers.*; it must be a configuration of SCALE-Sim"),
        ("scalesim", CFG.replace("8", "x"), "architecture_presets.arrayheight: Input should be a valid integer"),
        ("scalesim", CFG.replace("8", "9" * 5000), "architecture_presets.arrayheight: Input should be a valid integer"),
        ("scalesim", CFG[:52], "architecture_presets.ifmapsramszkb: is missing"),
        ("scalesim", CFG[:60], "Source contains parsing errors: .*IfmapSra.*; it must be a configuration"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(tool: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=says) as caught:
        imported(tool, text, tmp_path)
    assert "\n" not in str(caught.value)


def test_cores_of_stream_that_are_not_alike(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LIKE_TPU)
    (tmp_path / "b.yaml").write_text(LIKE_TPU.replace("[32, 16]", "[8, 8]"))
    (tmp_path / "c.yaml").write_text(LIKE_TPU.replace("[D1, D2], sizes: [32, 16]", "[D1, D2, D3], sizes: [8, 8, 2]"))
    (tmp_path / "d.yaml").write_text("memories: {}\noperational_array: {dimensions: [], sizes: []}\n")
    result = imported("stream", "cores: {0: a.yaml, 1: b.yaml, 2: a.yaml}\n", tmp_path)
    assert len(result.chip.cores) == 2
    assert "cores 1 (like tpu): all cores of a chip are alike, as core 0 is" in result.left
    assert any(each.startswith("DRAM: the file does not say its bandwidth") for each in result.left)
    for text, says in (
        ("cores: {0: a.yaml}\noffchip_core_id: 7\n", "offchip_core_id: there is no core 7; name the one with DRAM"),
        ("cores: {0: c.yaml}\n", "cores.0: an array of 2 planes; give two axes, and more cores"),
        ("cores: {0: a.yaml, 1: d.yaml}\noffchip_core_id: 1\n", "cores.1.memories: is empty; give the DRAM"),
    ):
        with pytest.raises(ImportFileError, match=says):
            imported("stream", text, tmp_path)


def test_an_unknown_tool_is_named(tmp_path: Path) -> None:
    shown = invoke("import-chip", "zigzg", tmp_path / "a.yaml")
    assert shown.exit_code == 2
    assert "unknown chip importer 'zigzg'" in shown.output
