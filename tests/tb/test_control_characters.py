"""Labels and names from files, wherever they are shown: a terminal, a page, XML, SVG and a trace get escapes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.table import Table

from meshloom.sched.ir.schedule import Schedule
from meshloom.tb.cli.errors import say_error
from meshloom.tb.report.console import console, dense
from meshloom.tb.report.junit import junit
from meshloom.tb.report.markup import escape
from meshloom.tb.report.narrow import show
from meshloom.tb.runs.sweeps import query

from .command_line import invoke
from .test_results import recorded, row

EVIL = "conv\x1b[31m\x1b]0;title\x07\x9b5m\x08\u202e</script>]]>[/red]&"
#: Characters that a terminal obeys, but for line breaks.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved schedule all of whose labels and names are evil."""
    path = tmp_path_factory.mktemp("evil") / "evil.json"
    assert invoke("schedule", "gemm:8x8x8", "--chip", "tiny", "--out", path).exit_code == 0
    saved = json.loads(path.read_text())
    for operation in saved["operations"]:
        operation["label"] = EVIL + "\nerror: forged"
    saved["scheduler"] = EVIL
    path.write_text(Schedule.model_validate(saved).model_dump_json())
    return path


@pytest.mark.parametrize("command", ["explain", "disasm", "check"])
def test_labels_of_a_schedule_obey_nothing(schedule: Path, command: str) -> None:
    result = invoke(command, schedule)
    assert result.exit_code == 0, result.output
    assert not OBEYED.search(result.output)
    assert "\nerror: forged" not in result.output
    if command != "check":
        assert "\\x1b[31m" in result.output


def test_a_refused_schedule_names_its_labels_as_escapes(schedule: Path, tmp_path: Path) -> None:
    saved = json.loads(schedule.read_text())
    saved["operations"][0]["words"] = 1 << 15
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(saved))
    result = invoke("check", path)
    assert result.exit_code == 2
    assert not OBEYED.search(result.output)


def test_pages_and_traces_of_a_schedule(schedule: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "p.html", tmp_path / "p.json"
    result = invoke("report", schedule, "--out", page, "--trace", trace)
    assert result.exit_code == 0, result.output
    assert not OBEYED.search(result.output)
    assert "\x1b" not in page.read_text()
    assert not any(OBEYED.search(event["name"]) for event in json.loads(trace.read_text()))
    assert not OBEYED.search(escape(EVIL))


def _shown(content: Any, width: int = 60) -> str:
    screen = console()
    screen.file, screen.width = io.StringIO(), width
    show(content, screen) if isinstance(content, Table) else screen.print(content, markup=False, soft_wrap=True)
    return screen.file.getvalue()


def test_tables_keep_their_shape() -> None:
    """Escapes are as wide as they look: every line of a table is as long as the others."""
    table = Table()
    for name in ("a", EVIL.replace("[", "("), "c"):
        table.add_column(name)
    table.add_row("x\x1bx", "y", "z\x07")
    lines = _shown(table, 200).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "x\\x1bx" in "".join(lines)
    narrow = _shown(dense(EVIL, ("n",), tuple(map(str, range(30)))))
    assert not OBEYED.search(narrow)
    assert not OBEYED.search(_shown(EVIL))


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(EVIL)
    assert "conv\\x1b[31m" in capsys.readouterr().err


def test_junit_is_valid_xml_whatever_names_are(tmp_path: Path) -> None:
    error = {"stage": "scheduling", "kind": "ValueError", "message": EVIL + "\ufffe"}
    results, _ = recorded(tmp_path, row(workload=EVIL + "\0", scheduler=EVIL, error=error))
    root = ElementTree.fromstring(junit(results).encode())
    case = next(root.iter("testcase"))
    assert "\\x1b[31m" in case.attrib["name"]


def test_names_in_pictures(tmp_path: Path) -> None:
    import polars

    frame = polars.DataFrame({"chip": [EVIL, "$x_$"], "a\x1b$b$": [1, 2], "c": [2, 1]})
    query.draw(frame, ["a\x1b$b$", "c"], tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert "a\\x1b$b$" in "".join(ElementTree.fromstring(text).itertext())
