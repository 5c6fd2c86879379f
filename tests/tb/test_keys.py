"""What the bench keeps is kept under all that decides it (schedulers: `..sched.schedulers.network.test_keys`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.store import provenance
from meshloom.sched.store import store as store_module
from meshloom.sched.store.store import Store, key
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.tb.build import area, blocks, builder, synthesis
from meshloom.tb.build.builder import PROGRAMS
from meshloom.tb.build.compiling import Compiler, headers
from meshloom.tb.build.runtime import runtime
from meshloom.tb.devices.noc import build as noc
from meshloom.tb.inputs import packages
from meshloom.tb.inputs.packages import Package
from meshloom.tb.results.sweep import SweepError
from meshloom.tb.runs.online.recorded import Records
from meshloom.tb.runs.sweeps import evaluate, grid
from meshloom.tb.verify import ahead_soak, noc_soak

ROOT = Path(__file__).parents[2]
TINY = load("tiny")
OTHER = ChipConfig.model_validate(TINY.model_dump() | {"spm_words": TINY.spm_words // 2})


class _Looked(Exception):
    """The store has been asked."""


@pytest.fixture
def name_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """Calls something; returns what it looks for first in a store."""

    def looked(self: object, name: Any, *_: object) -> None:
        entry = name if isinstance(name, str) else name.name
        if not entry.startswith("provenance-"):  # digests of sources are kept, too; they are part of the names
            raise _Looked(entry)

    def called(call: Callable[[], object]) -> str:
        with pytest.raises(_Looked) as info:
            call()
        return str(info.value)

    for method in ("get", "obtain", "build"):
        monkeypatch.setattr(Store, method, looked)
    return called


def different(names: Mapping[str, object]) -> None:
    """No two of them are the same."""
    texts = list(map(repr, names.values()))
    assert len(set(texts)) == len(texts), sorted(name for name in names if texts.count(repr(names[name])) > 1)


def changed(monkeypatch: pytest.MonkeyPatch, path: Path, call: Callable[[], object]) -> object:
    """What a call says while a file has other contents."""
    read = Path.read_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda self: read(self) + b"\nchanged = 1\n" * (self == path))
        return call()


# -- simulators -------------------------------------------------------------------------------------------------------


def test_every_ingredient_of_a_simulator_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def ingredients(chip: ChipConfig = TINY, simulator: str = "verilator", waves: bool = False) -> dict[str, str]:
        return builder.ingredients(chip, simulator, waves)

    names: dict[str, object] = {"base": ingredients(), "chip": ingredients(OTHER), "waves": ingredients(waves=True)}
    names["icarus"] = ingredients(simulator="icarus")
    changes: dict[str, tuple[object, str, object]] = {
        "compiler": (builder, "compiler", lambda: "other"),
        "processor": (builder, "processor", lambda: "other"),
        "flags": (builder, "_compiler_flags", lambda: "other"),
        "Verilator's flags": (builder, "_VERILATOR_FLAGS", ["other"]),
    }
    for name, (place, attribute, value) in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, attribute, value)
            names[name] = ingredients()
    version = builder.metadata.version
    for tool in ("amaranth", "pyosys", "verilator", "cocotb"):
        other = SimpleNamespace(version=lambda name, tool=tool: "other" if name == tool else version(name))
        with monkeypatch.context() as patch:
            patch.setattr(builder, "metadata", other)
            names[tool] = ingredients()
    with monkeypatch.context() as patch:
        patch.setattr(builder, "simulator_version", lambda simulator: f"another {simulator}")
        names["another icarus"] = ingredients(simulator="icarus")
        assert ingredients() == names["base"], "Verilator's version is that of its package"
    different(names)
    entries = {builder._recipe(TINY, simulator, waves).name for simulator in PROGRAMS for waves in (False, True)}
    assert len(entries) == 4


def test_every_source_of_a_simulator_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bench all that the builder imports, but for what is only about tools and the cache."""
    here = ROOT / "tb" / "build"
    bench = {path for path in provenance.needed(ROOT, ["tb.build.builder"]) if path.is_relative_to(here)}
    bench -= {here / name for name in ("__init__.py", "tools.py")}
    bench |= {*(here / "verilog").glob("*.v"), *(here / "cpp").glob("*.h")}
    gateware = [
        ROOT / "hw" / name for name in ("assembly/chip.py", "noc/router.py", "core/matrix.py", "spec/contracts.py")
    ]
    names: dict[str, object] = {"base": builder.ingredients(TINY, "verilator", False)}
    for path in (*bench, *gateware):
        names[str(path)] = changed(monkeypatch, path, lambda: builder.ingredients(TINY, "verilator", False))
    different(names)


def test_every_ingredient_of_a_block_is_part_of_its_name(name_of: Callable[..., str]) -> None:
    block: Any = SimpleNamespace(name="block", rtlil="array_loops", ports={})
    compiler = Compiler([], ["cc"], {}, Path("include"), {"flags": "a", "tools": "b", "processor": "c"})

    def name(block: Any = block, chip: ChipConfig = TINY, compiler: Compiler = compiler) -> str:
        return blocks.name(block, chip, compiler)

    names: dict[str, object] = {"base": name(), "chip": name(chip=load("quad16"))}
    names["netlist"] = name(SimpleNamespace(name="block", rtlil="array_loops other", ports={}))
    names["name"] = name(SimpleNamespace(name="other", rtlil="array_loops", ports={}))
    others = [replace(compiler, machine={**compiler.machine, each: "other"}) for each in compiler.machine]
    names |= {f"machine {number}": name(compiler=other) for number, other in enumerate(others)}
    different(names)
    others += [replace(compiler, command=["cc", "-g"]), replace(compiler, include=Path("other"))]
    texts = dict[str, object]()
    for number, each in enumerate([compiler, *others]):
        texts[f"runtime {number}"] = name_of(lambda each=each: runtime(Path(), each, Path(), print))
        texts[f"headers {number}"] = name_of(lambda each=each: headers(Path(), each, print))
    different(texts)


def test_what_is_aside_goes_into_no_simulator() -> None:
    """Of the gateware, all that a chip, its bench or its blocks are made of ages their simulators."""
    modules = [f"tb.build.{path.stem}" for path in (ROOT / "tb" / "build").glob("*.py") if path.stem != "__init__"]
    hw = ROOT / "hw"
    used = {path.relative_to(hw) for path in provenance.needed(ROOT, modules) if path.is_relative_to(hw)}
    for name in builder.ASIDE:
        assert (hw / name).exists()
        assert not [path for path in used if path.is_relative_to(name)]


MESH = noc.Mesh(3, 3)
MESH_OTHERWISE: dict[str, object] = {"vcs": 2, "routing": "yx", "allocate": "any"}


def _meshes() -> dict[str, noc.Mesh]:
    """Each field otherwise."""
    meshes = {"base": MESH}
    for field in fields(noc.Mesh):
        value = getattr(MESH, field.name)
        changes: dict[str, Any] = {
            field.name: MESH_OTHERWISE.get(field.name, not value if isinstance(value, bool) else value and value * 2)
        }
        meshes[field.name] = replace(MESH, **changes)
    return meshes


def test_every_ingredient_of_a_mesh_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {name: noc.ingredients(mesh) for name, mesh in _meshes().items()}
    with monkeypatch.context() as patch:  # -march=native
        patch.setattr(builder, "processor", lambda: "other")
        names["processor"] = noc.ingredients(MESH)
    with monkeypatch.context() as patch:
        patch.setattr(noc.metadata, "version", lambda name: "other")
        names["tools"] = noc.ingredients(MESH)
    with monkeypatch.context() as patch:
        patch.setattr(builder, "compiler", lambda: "other")
        names["compiler"] = noc.ingredients(MESH)
    sources = [
        "hw/noc/mesh.py",
        "hw/noc/router.py",
        "hw/spec/routes.py",
        "hw/wiring/clocking.py",
        "hw/spec/config.py",
        "hw/assembly/verilog.py",
    ]
    sources += ["tb/devices/noc/build.py", "tb/devices/noc/verilog/traffic.sv", "tb/build/verilog/clock_gate.v"]
    sources += ["tb/build/programs.py", "tb/build/compiling.py"]
    for source in sources:
        assert (ROOT / source).is_file()
        names[source] = changed(monkeypatch, ROOT / source, lambda: noc.ingredients(MESH))
    different(names)


# -- values -----------------------------------------------------------------------------------------------------------


def test_sizes_of_gateware(name_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "base": name_of(lambda: synthesis.area("x", "design", "script")),
        "design": name_of(lambda: synthesis.area("x", "other", "script")),
        "script": name_of(lambda: synthesis.area("x", "design", "other")),
        "chip": name_of(lambda: area.chip_area(TINY)),
        "other chip": name_of(lambda: area.chip_area(OTHER)),
    }
    with monkeypatch.context() as patch:
        patch.setattr(area, "_sources", lambda: "other")
        names["sources"] = name_of(lambda: area.chip_area(TINY))
    with monkeypatch.context() as patch:
        patch.setattr(area, "LOGIC", "other")
        names["chip script"] = name_of(lambda: area.chip_area(TINY))
    with monkeypatch.context() as patch:
        patch.setattr(synthesis, "tools", lambda: "other")
        patch.setattr(area, "tools", lambda: "other")
        names["tools"] = name_of(lambda: synthesis.area("x", "design", "script"))
        names["chip tools"] = name_of(lambda: area.chip_area(TINY))
    different(names)
    assert name_of(lambda: area.kept_area(TINY)) == names["chip"]


def test_files_of_packages(name_of: Callable[..., str]) -> None:
    package = Package("PyPI", "some", "1.0", "0" * 64, "MIT")
    others = [package, replace(package, sha256="1" * 64), replace(package, name="x"), replace(package, version="2.0")]
    names = {repr(one): name_of(lambda one=one: packages.member(one, "a/b")) for one in others}
    names["path"] = name_of(lambda: packages.member(package, "c/b"))
    different(names)


def test_soaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noc_soak, "ingredients", lambda mesh: {"mesh": str(mesh)})
    monkeypatch.setattr(ahead_soak.provenance, "digest", lambda *modules: repr(modules))
    dose = noc_soak.Dose(MESH, 1000, 1)
    doses = {"base": dose, "flits": replace(dose, flits=2000), "seed": replace(dose, seed=2)}
    doses |= {"routed": replace(dose, routed=3), "stalls": replace(dose, stalls=False)}
    doses |= {f"mesh {name}": replace(dose, mesh=mesh) for name, mesh in _meshes().items() if name != "base"}
    different({name: noc_soak.record_of([each])._keys[each.name] for name, each in doses.items()})
    texts = builder.ingredients(TINY, "verilator", False)

    def program(chip: ChipConfig = TINY, name: str = "gemm:4x4x4") -> object:
        return list(ahead_soak.record_of([(chip, [name])])._keys.values())

    programs = {"base": program(), "chip": program(OTHER), "workload": program(name="gemm:4x4x5")}
    for ingredient in texts:
        with monkeypatch.context() as patch:
            patch.setattr(ahead_soak, "ingredients", lambda *_, each=ingredient: texts | {each: "other"})
            programs[ingredient] = program()
    with monkeypatch.context() as patch:
        patch.setattr(ahead_soak.provenance, "digest", lambda *_: "other")
        programs["code"] = program()
    different(programs)


def test_records_of_scenarios(name_of: Callable[..., str]) -> None:
    request = Request("resnet8")

    def name(chip: ChipConfig = TINY, scheduler: str = "a", wait: int = 1, title: str = "x", **otherwise: Any) -> str:
        scenario = Scenario(title, (replace(request, **otherwise),))
        return name_of(lambda: Records(scenario, chip, scheduler, wait).get())

    names = {"base": name(), "chip": name(OTHER), "scheduler": name(scheduler="b"), "wait": name(wait=2)}
    names |= {"title": name(title="y"), "network": name(network="dscnn"), "batch": name(batch=2)}
    names |= {"arrival": name(arrival=5), "deadline": name(deadline=5), "factor": name(factor=5.0)}
    different(names)


def test_points_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the scheduler, and on the RTL the device's version and all sources."""
    code = evaluate.deciding_code
    monkeypatch.setattr(evaluate.provenance, "digest", lambda *modules: repr(modules))
    names: dict[str, object] = {"model": code("loop_order", None), "scheduler": code("klotski", None)}
    names |= {"rtl": code("loop_order", "verilator"), "device": code("loop_order", "icarus")}
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "sources", lambda: "other")
        names["sources"] = code("loop_order", "verilator")
    with monkeypatch.context() as patch:
        patch.setattr(evaluate.provenance, "digest", lambda *modules: f"other {modules}")
        names["code"] = code("loop_order", None)
    different(names)


@pytest.mark.parametrize(("name", "tail"), [("m.onnx", ""), ("m.csv", ""), ("m.csv", "/layer"), ("m.py", ":kind")])
def test_files_of_points(name: str, tail: str, tmp_path: Path) -> None:
    digests = list[object]()
    for folder, text in (("one", "1"), ("same", "1"), ("other", "2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
        point = grid.Point("tiny", None, "", "", "loop_order", f"{tmp_path / folder / name}{tail}", None, {})
        digests.append(point.content["file"])
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(SweepError, match=f"{name}: cannot be read: No such file"):
        grid._file(f"{tmp_path / name}{tail}")


def test_a_digest_has_the_whole_label(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_module.key is key
    labels = ["a:b", "a_b", "x" * 120, "x" * 121, "x" * 120 + "y"]
    different({label: key(label, of="one") for label in labels})
