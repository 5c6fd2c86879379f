"""Importers of anybody's: whatever one does is an error that names it, and neither hangs nor ends what called it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.support.limits import guard_of, guarded
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange import reading
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.reading import ImporterError, read_layer
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.runs import runner
from meshloom.tb.runs.failures import Failure
from meshloom.tb.runs.kinds.mappings import MappedSource

from ..command_line import invoke

MAESTRO = Path(__file__).parents[3] / "examples" / "mappings" / "maestro" / "tiny" / "conv_8x8x8-16_k3_p1.m"

MAP = Path(__file__).parents[3] / "examples" / "mappings" / "timeloop" / "tiny" / "gemm_32x32x32.map.yaml"
GEMM = parse("gemm:32x32x32")
TEMPLATE = """
import os
from dataclasses import replace
from meshloom.tb.exchange.interface import Importer
from meshloom.tb.exchange.timeloop import read as right
from meshloom.sched.workload.shapes import parse

def read(path, shape):
    {body}

READER = Importer("mine", "an example", read)
"""


def importer(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(TEMPLATE.format(body=body))
    return f"{path}:READER"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os._exit(3)", "ended its process with exit status 3 on "),
        ("os.abort()", "SIGABRT"),
        ("while True: pass", "no result within 0.3 seconds"),
        ("return bytearray(1 << 40)", r"needs more memory than 200 MB \(--memory-limit\)"),
        ("return {}['key']", r"failed: KeyError: 'key' \(line 9 of mine.py\)"),
        ("return 'garbage'", "returned a str of .*map.yaml, not a ToolLayer"),
        ("return replace(right(path, shape), claim=7)", "returned a int as the claim of .*, not a ToolClaim"),
        ("return replace(right(path, shape), mapping=None)", "a NoneType as the mapping of .*, not a LayerMapping"),
        (
            "one = right(path, shape); return replace(one, shape=parse('gemm:8x8x8'))",
            "is of another layer, by importer .*; name its own with --workload",
        ),
    ],
    ids=["exits", "aborts", "hangs", "memory", "raises", "garbage", "claim", "mapping", "layer"],
)
def test_whatever_it_does_is_one_line_that_names_it(body: str, says: str, tmp_path: Path) -> None:
    name = importer(tmp_path, body)
    with guarded(guard_of(0.3, 200)), pytest.raises((ImporterError, ImportFileError), match=says) as caught:
        read_layer(name, MAP, GEMM)
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mapping_of_other_sizes_than_its_layer_is_refused(tmp_path: Path) -> None:
    name = importer(tmp_path, "return replace(right(path, parse('gemm:32x32x32')), shape=parse('gemm:8x8x8'))")
    with pytest.raises(ImporterError, match="that is not of its layer's sizes"):
        read_layer(name, MAP, None)


def test_sizes_of_one_need_not_be_named() -> None:
    layer = IMPORTERS.get("maestro").read(MAESTRO, None)
    sizes = {dimension: size for dimension, size in layer.mapping.sizes.items() if size > 1}
    assert len(sizes) < len(layer.mapping.sizes)
    bare = replace(layer, mapping=replace(layer.mapping, sizes=sizes))
    assert reading._checked("mine.py:IT", MAESTRO, bare, None) is bare


def test_what_it_prints_and_changes_stays_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = importer(tmp_path, "print('garbage'); os.environ['HOME'] = 'x'; return right(path, shape)")
    assert read_layer(name, MAP, GEMM).shape == GEMM
    assert "garbage" not in capfd.readouterr().out


def test_the_errors_of_a_file_are_those_of_the_file(tmp_path: Path) -> None:
    name = importer(tmp_path, "return right(path, shape)")
    with pytest.raises(ImportFileError, match=r"short.yaml: "):
        read_layer(name, _cut(tmp_path), GEMM)
    with pytest.raises(FileNotFoundError):
        read_layer(name, tmp_path / "nobody.yaml", GEMM)


def _cut(folder: Path) -> Path:
    path = folder / "short.yaml"
    path.write_text(MAP.read_text()[:60])
    return path


def test_a_request_is_not_held_up_by_one_that_hangs(tmp_path: Path) -> None:
    """It is not called before the row that it is of is made."""
    name = importer(tmp_path, "while True: pass")
    source, chip = MappedSource(name, MAP, "gemm:32x32x32"), load("tiny")
    source.check(chip)
    with guarded(guard_of(0.2)):
        row = runner.prepared_here(source, chip, "")
    assert isinstance(row, Failure)
    assert (row.kind, row.stage, row.trace) == ("ImporterError", "reading", "")
    with pytest.raises(FileNotFoundError):
        MappedSource(name, tmp_path / "nobody.yaml").check(chip)


def test_import_has_the_limits_of_run(tmp_path: Path) -> None:
    name = importer(tmp_path, "while True: pass")
    shown = invoke("import", name, MAP, "--chip", "tiny", "--workload", "gemm:32x32x32", "--time-limit", "0.2")
    assert shown.exit_code == 2
    assert "no result within 0.2 seconds" in " ".join(shown.output.split())
