"""Files that are damaged, hostile or something else: a result, or one error of ours, and no other exception."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshloom.hw.spec.config import CHIP_FOLDER
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.program.disasm import listing
from meshloom.sched.support.reading import parse_json, parse_toml
from meshloom.sched.support.text import bounded
from meshloom.sched.workload import scenario, topology
from meshloom.tb.inputs.class_names import read_names
from meshloom.tb.inputs.numbers import read_numbers
from meshloom.tb.results import energy, exits, saved, schema
from meshloom.tb.results import sweep as sweeps
from meshloom.tb.runs.sweeps import grid

from .command_line import invoke
from .test_results import recorded, row

SWEEP = b'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{m}x8x8"]\nwhere = ["macs > 1"]\n[parameters]\nm = [4, 8]\n'
TOPOLOGY = b"Layer name, H, W, FH, FW, Channels, Num Filter, Strides,\nc1,8,8,3,3,2,4,1,\ng,1,4,1,4,8,8,1,\n"
SCENARIO = (
    b'name = "s"\n[[network]]\nname = "resnet8"\narrival = { poisson = 2.0, number = 3, seed = 1, start = 9 }\n'
    b'[[network]]\nname = "vww"\nbatch = 4\narrival = [9, 5]\ndeadline = 100\n'
)
#: What breaks parsers.
JUNK = (
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"[" * 3000, b"{" * 3000, b'{"a":' * 3000, b"9" * 5000, b"-1", b"1e999",
    b"NaN", b"Infinity", b"null", b"true", b'""', b'"\\ud800"', b"'", b'"', b"\n", b",", b"=", b"\x1b[31m", b"x" * 5000,
)  # fmt: skip


def _arrays(form: str) -> bytes:
    out = io.BytesIO()
    if form == "npz":
        np.savez_compressed(out, a=np.arange(6), b=np.arange(6))
    else:
        np.save(out, np.arange(6))
    return out.getvalue()


def _check(path: Path) -> None:
    config, program, schedule = saved.read(path, "tiny")
    list(listing(program, config))
    check_program(program, config, schedule)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "chip": ("toml", load_chip),
    "sweep": ("toml", lambda path: grid.points(sweeps.read(path), path.parent)),
    "scenario": ("toml", scenario.load),
    "energy": ("toml", energy.load),
    "results": ("json", schema.load),
    "schedule": ("json", _check),
    "image": ("bin", _check),
    "topology": ("csv", topology.layers),
    "labels": ("txt", read_names),
    "npy": ("npy", lambda path: read_numbers(path, ["a", "b"])),
    "npz": ("npz", lambda path: read_numbers(path, ["a", "b"])),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good file of each kind."""
    folder = tmp_path_factory.mktemp("good")
    result = invoke(
        "schedule", "gemm:4x4x4", "--chip", "tiny", "--out", folder / "s.json", "--program", folder / "p.bin"
    )
    assert result.exit_code == 0
    _, results = recorded(folder, row())
    return {
        "chip": (CHIP_FOLDER / "tiny.toml").read_bytes(),
        "sweep": SWEEP,
        "scenario": SCENARIO,
        "energy": energy.DEFAULT.read_bytes(),
        "results": results.read_bytes(),
        "schedule": (folder / "s.json").read_bytes(),
        "image": (folder / "p.bin").read_bytes(),
        "topology": TOPOLOGY,
        "labels": b"cat\ndog\n",
        "npy": _arrays("npy"),
        "npz": _arrays("npz"),
    }


def _problem(read: Callable[[Path], object], path: Path) -> str:
    """The message of the error that reading gives, which must be one of ours; empty if there is none."""
    try:
        read(path)
    except Exception as error:
        expected = exits.expected(error)
        if expected is None:
            raise
        assert len(expected[0]) < 20_000, expected[0][:300]
        return expected[0]
    return ""


def _damaged(text: bytes, cuts: list[tuple[int, int, int]]) -> bytes:
    """The text with some stretches replaced: where (in thousandths), how long, by which junk."""
    for place, length, junk in cuts:
        begin = place * len(text) // 1000
        text = text[:begin] + JUNK[junk] + text[begin + length :]
    return text


DAMAGE = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 12), st.integers(0, len(JUNK) - 1)), min_size=1, max_size=3
)


def _fuzz(kind: str, good: dict[str, bytes], folder: Path, examples: int) -> None:
    suffix, read = READERS[kind]
    path = folder / f"f.{suffix}"

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])  # fmt: skip
    @given(cuts=DAMAGE)
    def run(cuts: list[tuple[int, int, int]]) -> None:
        path.write_bytes(_damaged(good[kind], cuts))
        _problem(read, path)

    run()


@pytest.mark.parametrize("kind", READERS)
def test_good_files_are_read_and_damaged_ones_refused(kind: str, good: dict[str, bytes], tmp_path: Path) -> None:
    suffix, read = READERS[kind]
    path = tmp_path / f"f.{suffix}"
    path.write_bytes(good[kind])
    assert _problem(read, path) == ""
    for junk in JUNK:
        path.write_bytes(junk)
        assert _problem(read, path) or kind == "labels", junk[:20]
    _fuzz(kind, good, tmp_path, 15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_files_damaged_in_many_ways(kind: str, good: dict[str, bytes], tmp_path: Path) -> None:
    _fuzz(kind, good, tmp_path, 600)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    suffix, read = READERS[kind]
    folder = tmp_path / f"folder.{suffix}"
    folder.mkdir()
    for path in (folder, tmp_path / f"none.{suffix}", tmp_path / f"{'n' * 300}.{suffix}"):
        assert _problem(read, path)


def _hostile() -> Iterator[tuple[str, str, str]]:
    yield "chips", "d.toml", "a = " + "[" * 100_000
    yield "chips", "i.toml", "lanes = " + "9" * 100_000
    yield "chips", "k.toml", "k" * 100_000 + " = 1"
    yield "chips", "v.toml", f'name = "{"v" * 100_000}"'
    yield "sweep", "d.toml", "a = " + "[" * 100_000
    yield "sweep", "c.toml", f'name = "s"\nchips = ["{"c" * 100_000}"]\nworkloads = ["gemm:4x4x4"]'
    yield "sweep", "w.toml", f'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{"9" * 100_000}x4x4"]'
    yield "explain", "n.json", "[" * 100_000
    yield "check", "n.json", "[" * 100_000
    yield "check", "l.json", json.dumps({"version": 1, "operations": [{"kind": "k" * 100_000}]})
    yield "workloads", "n.csv", TOPOLOGY.decode() + f"{'n' * 100_000},8,{'9' * 100_000},3,3,1,1,1,\n"


@pytest.mark.parametrize(("command", "name", "text"), list(_hostile()), ids=lambda each: each[:12])
def test_one_short_line_for_a_hostile_file(command: str, name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    result = invoke(command, path)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "this is a bug" not in result.output
    assert len(result.output) < 2000
    lines = 9 if name == "w.toml" else 1  # with the syntax of shapes
    assert result.output.count("\n") == lines


@pytest.mark.parametrize("text", ["gemm:" + "9" * 9000 + "x1x1", "gemm:1x1x1,clamp" + "9" * 9000, "x" * 100_000])
def test_endless_names_of_workloads(text: str) -> None:
    result = invoke("workloads", text)
    assert result.exit_code == 2
    assert "this is a bug" not in result.output
    assert len(result.output) < 4000


def test_reasons_are_short() -> None:
    for read, text in ((parse_json, "[" * 100_000), (parse_json, "9" * 5000), (parse_toml, "a=" + "9" * 5000)):
        with pytest.raises(ValueError, match=r"nested too deeply|thousands of digits"):
            read(text)
    assert parse_json('\ufeff{"a": 1}') == {"a": 1}
    assert parse_toml("\ufeffa = 1") == {"a": 1}


def test_messages_are_bounded_and_paths_stay_whole() -> None:
    path = "/" + "/".join(["folder"] * 40)
    assert bounded(f"{path}: is a folder") == f"{path}: is a folder"
    assert re.fullmatch(r"a x{60}\.\.\. \(1,000 characters\) b", bounded(f"a {'x' * 1000} b"))
    assert len(bounded("ab " * 100_000)) < 5000
