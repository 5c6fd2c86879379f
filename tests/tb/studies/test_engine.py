"""The engine of studies: points are measured once, rows are text, an interrupt loses nothing, pages say what is old."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.tb.cli.main import app
from meshloom.tb.report.console import console
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.schema import Row
from meshloom.tb.runs.sweeps import cluster
from meshloom.tb.studies import command, registry
from meshloom.tb.studies.engine import page as pages
from meshloom.tb.studies.engine.index import index
from meshloom.tb.studies.engine.measure import PendingStudy, PointJob, _line, left_of, measure, shard
from meshloom.tb.studies.engine.page import Page, filled, page_of, row_file
from meshloom.tb.studies.engine.point import Inputs, Point, Report, form
from meshloom.tb.studies.engine.rows import Line, RowFile, Rows, StudyError
from meshloom.tb.studies.engine.study import Bar, Figure, Study
from meshloom.tb.studies.engine.tables import Table, mean_ratio, ratio, table
from meshloom.tb.studies.points.runs import RunPoint, chip_of

from ...tiers import slow_but


@dataclass(frozen=True)
class Square(Point):
    """A number, squared; 13 does not fit, 7 is a bug, 99 interrupts."""

    number: int
    row: ClassVar[Any] = int
    calls: ClassVar[list[int]] = []
    version: ClassVar[str] = "1"

    @property
    def name(self) -> str:
        return f"square of {self.number}"

    @property
    def work(self) -> float:
        return float(self.number)

    def inputs(self) -> Inputs:
        return Inputs(("sched.schedulers.budget",), (("version", self.version),))

    def measure(self, report: Report) -> int:
        report("multiplying")
        self.calls.append(self.number)
        if self.number == 13:
            raise DoesNotFit("13 does not fit")
        if self.number == 99:
            raise KeyboardInterrupt
        return self.number**2 if self.number != 7 else self.number // 0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of pages and rows, and where the command runs."""
    monkeypatch.chdir(tmp_path)
    for function in (page_of, row_file, pages.save):
        monkeypatch.setattr(function, "__defaults__", (tmp_path,))
    for module in (pages, command):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    Square.calls.clear()
    yield tmp_path
    Square.version = "1"


@pytest.fixture
def file(folder: Path) -> RowFile:
    return RowFile(folder / "rows" / "squares.jsonl")


def here(points: Sequence[Point], file: RowFile, **more: Any) -> int:
    return measure([PendingStudy("squares", file, left_of(points, file, **more))], lambda event: None, jobs=0)


SOME = [Square(3), Square(5), Square(4)]


def test_each_point_is_measured_once_the_most_work_first(file: RowFile) -> None:
    assert here([*SOME, Square(3)], file) == 3
    assert Square.calls == [5, 4, 3]
    again = RowFile(file.path)
    assert here(SOME, again) == 0
    assert Rows(SOME, again.look(SOME)) == {Square(3): 9, Square(5): 25, Square(4): 16}
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [line["point"] for line in lines] == [{"number": 3}, {"number": 4}, {"number": 5}], "sorted"
    assert all(line["date"] > "2026" and "commit" in line["code"] and line["seconds"] >= 0 for line in lines)


def test_other_code_measures_anew_and_its_rows_are_shown_meanwhile(file: RowFile) -> None:
    here(SOME, file)
    Square.version = "2"
    again = RowFile(file.path)
    assert again.missing(SOME) == SOME
    rows = Rows(SOME, again.look(SOME))
    assert rows[Square(3)] == 9
    assert rows.older == SOME
    assert here(SOME[:1], again) == 1
    assert Rows(SOME, again.look(SOME)).older == SOME[1:]


def test_errors_are_rows_too_and_stop_no_other_point(file: RowFile, folder: Path) -> None:
    some = [Square(13), Square(7), Square(2)]
    assert here(some, file) == 3
    rows = Rows(some, file.look(some))
    assert dict(rows) == {Square(2): 4}
    assert rows.errors[Square(13)] == "multiplying: 13 does not fit"
    assert "multiplying: ZeroDivisionError: " in rows.errors[Square(7)]
    (trace,) = (folder / "sim_build" / "bench").iterdir()
    assert "ZeroDivisionError" in trace.read_text()
    Square.calls.clear()
    assert here(some, file) == 0, "they are known"
    assert here(some, file, retry=True) == 2
    assert Square.calls == [13, 7]


def test_an_interrupt_keeps_what_is_measured(file: RowFile) -> None:
    with pytest.raises(KeyboardInterrupt):
        here([Square(100), Square(99), Square(98)], file)
    again = RowFile(file.path)
    assert again.missing([Square(100), Square(98)]) == [Square(98)]
    assert here([Square(100), Square(98)], again) == 1


def test_half_a_line_of_a_process_that_was_killed_counts_as_none(file: RowFile) -> None:
    here(SOME, file)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-20])
    again = RowFile(file.path)
    (left,) = again.missing(SOME)
    assert here(SOME, again) == 1
    assert Square.calls[-1] == left.number  # pyright: ignore[reportAttributeAccessIssue]
    assert [json.loads(line)["point"] for line in file.path.read_text().splitlines()] == [
        json.loads(line)["point"] for line in whole.decode().splitlines()
    ]


@pytest.mark.parametrize("line", ["{", '{"kind": "Square"}'])
def test_a_damaged_line_is_named(file: RowFile, line: str) -> None:
    here(SOME, file)
    file.path.write_text(line + "\n" + file.path.read_text())
    with pytest.raises(StudyError, match=r"squares.jsonl, line 1: .*; remove the line, its point is measured anew"):
        RowFile(file.path).look(SOME)


def test_a_row_of_another_form_counts_as_none(file: RowFile) -> None:
    here(SOME, file)
    file.path.write_text(file.path.read_text().replace('"row":9', '"row":"nine"'))
    assert RowFile(file.path).missing(SOME) == [Square(3)]


def test_a_job_is_done_in_any_process() -> None:
    """What a worker gets and returns is text, and its points are of a class that it can import."""
    point = RunPoint("tiny", "gemm:4x4x4", changes=(("core.a_words", 64), ("floorplan", ("host core", "dram spm"))))
    text = form(RunPoint).dump_json(point).decode()
    job = PointJob(sources="other", guard=command_guard(), place=f"{RunPoint.__module__}:RunPoint", points=(text,) * 2)
    assert list(job.read()) == [point] * 2
    assert [each.points for each in job.apart()] == [(text,)] * 2
    with pytest.raises(RuntimeError, match="install the same on all machines"):
        PointJob.perform(job.model_dump_json())


def command_guard() -> Any:
    from meshloom.sched.support.limits import guard

    return guard()


def test_shards_are_all_of_it_once() -> None:
    some = [Square(number) for number in range(11)]
    parts = [shard(some, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(point.number for part in parts for point in part if isinstance(point, Square)) == list(range(11))
    for text in ("0/3", "4/3", "1", "1/0", "a/b", "-1/3"):
        with pytest.raises(StudyError, match=f"--shard {text}: give I/N"):
            shard(some, text)


# -- pages ------------------------------------------------------------------------------------------------------------


def squares(rows: Rows) -> Table:
    columns: dict[str, Callable[[Point], str]] = {
        "number": lambda point: point.name,
        "square>": lambda point: f"{rows[point]:,}",
    }
    return table("Squares", columns, rows)


def study(**changes: Any) -> Study:
    fields: dict[str, Any] = {
        "name": "squares",
        "title": "Squares | of numbers",
        "question": "How large are squares?",
        "answer": "At most {{ most }}.",
        "about": "Of {{ count }} numbers.",
        "points": lambda full: [Square(number) for number in range(1, 6 if full else 3)],
        "tables": (squares,),
        "figures": (
            Figure("most", "the largest", lambda rows: max(rows.values(), default=None), "{:,.0f}", Bar("at most", 20)),
            Figure("count", "numbers", len, "{:.0f}"),
        ),
    }
    return Study(**fields | changes)


def test_a_page_says_how_much_of_it_is_new(folder: Path) -> None:
    one = study()
    here(one.points(False), row_file(one))
    page = page_of(one)
    assert page.answer == "At most 4."
    assert page.missed == []
    text = page.markdown()
    assert "| figure | quick | bar |" in text
    assert "| the largest | 4 | at most 20 |" in text
    assert "Quick: 2 of 2 points are measured, 2 of them with the present code" in text
    assert "Full: 2 of 5 points" in text
    here(one.points(True), row_file(one))
    Square.version = "2"
    here(one.points(False), row_file(one))
    page = page_of(one)
    assert page.missed == ["the largest: 25, not at most 20"]
    text = page.markdown()
    assert "| figure | quick | full | bar |" in text
    assert "| the largest | 4 | 25 | at most 20 |" in text
    assert "Full: 5 of 5 points are measured, 2 of them with the present code" in text
    assert "**Verdict: 1 bars missed.**" in text
    assert "| square of 5 | 25 |" in text


def test_a_page_of_before_is_set_aside_once(folder: Path) -> None:
    """Its tables stand nowhere else. Where nothing is measured no page is written at all."""
    page = folder / "squares.md"

    def draw(rows: Rows, path: Path) -> None:
        path.write_text("new")

    one = replace(study(), pictures={"squares.svg": draw})
    page.write_text("# Squares\n\nPrinted by hand.\n")
    (folder / "squares.svg").write_text("old")
    assert not command.run([one], command.StudyOptions(printed=True), console())
    assert page.read_text() == "# Squares\n\nPrinted by hand.\n"
    for _ in range(2):
        assert command.run([one], command.StudyOptions(jobs=0), console())
        assert (folder / "earlier" / "squares.md").read_text() == "# Squares\n\nPrinted by hand.\n"
        assert (folder / "earlier" / "squares.svg").read_text() == "old"
        assert (folder / "squares.svg").read_text() == "new"
        assert "The full study was printed before rows were kept as text: [earlier/squares.md]" in page.read_text()


def test_a_page_without_rows(folder: Path) -> None:
    page = page_of(study())
    assert page.answer == "At most -."
    assert "none of 2 points is measured" in page.markdown()
    assert "## Squares" not in page.markdown(), "a table without rows"


def test_prose_refers_to_figures_alone() -> None:
    assert filled("{{ a }} and {{ b }}", {"a": "1", "b": "2"}) == "1 and 2"
    with pytest.raises(StudyError, match="'c' is undefined"):
        filled("{{ c }}", {})


def test_errors_of_points_are_missed_bars(folder: Path) -> None:
    one = study(points=lambda full: [Square(13), Square(2)])
    here(one.points(False), row_file(one))
    assert page_of(one).missed == ["square of 13: multiplying: 13 does not fit"]


@pytest.mark.parametrize(
    ("relation", "good", "bad"),
    [("at least", 2, 1), ("at most", 2, 3), ("above", 3, 2), ("below", 1, 2), ("exactly", 2, 1)],
)
def test_bars(relation: Any, good: float, bad: float) -> None:
    bar = Bar(relation, 2)
    assert bar.holds(good)
    assert not bar.holds(bad)


def test_ratios_of_what_is_not_known() -> None:
    assert [ratio(3, 2), ratio(None, 2), ratio(3, None), ratio(3, 0)] == ["1.500", "-", "-", "-"]
    assert mean_ratio([(8, 2), (2, 2), (None, 1), (1, None)]) == pytest.approx(2.0)
    assert mean_ratio([]) is None


@pytest.mark.parametrize("name", slow_but(registry.SHIPPED, "whole_packets", "klotski", "flexer_rtl", "area"))
def test_every_study_that_ships_has_the_name_of_its_module_and_a_quick_part(name: str) -> None:
    one = registry.REGISTRY.get(name)
    assert one.name == name
    quick, full = one.points(False), one.points(True)
    assert quick
    assert {type(point) for point in quick} <= {type(point) for point in full}
    rows = Rows([], {})
    assert filled(one.about, one.texts(rows))
    assert Page(one, rows, rows).answer
    for point in (*quick[:1], *full[:1]):
        assert form(type(point)).validate_json(form(type(point)).dump_json(point)) == point
        assert point.name


# -- the command ------------------------------------------------------------------------------------------------------

MINE = """
from dataclasses import dataclass
from typing import ClassVar

from meshloom.tb.studies.engine.point import Inputs, Point
from meshloom.tb.studies.engine.study import Figure, Study
from meshloom.tb.studies.engine.tables import table
from meshloom.tb.studies.points.runs import RunPoint


@dataclass(frozen=True)
class Twice(Point):
    number: int
    row: ClassVar = int

    @property
    def name(self):
        return f"twice {self.number}"

    def inputs(self):
        return Inputs(())

    def measure(self, report):
        return 2 * self.number


STUDY = Study(
    name="mine",
    title="Mine",
    question="How much is twice [red]as much:x:?",
    answer="{{ most }}.",
    about="Numbers.",
    points=lambda full: [Twice(number) for number in range(10 if full else 3)],
    tables=[lambda rows: table("It", {"number": lambda p: p.name, "twice>": lambda p: str(rows[p])}, rows)],
    figures=[Figure("most", "the most", lambda rows: max(rows.values(), default=None), "{:.0f}")],
)
"""


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, ["bench", *words])


def test_a_study_is_a_file(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    shown = invoke("mine.py:STUDY", "--jobs", "2")
    assert shown.exit_code == 0, shown.output
    assert "How much is twice [red]as much:x:?" in shown.output
    assert "Mine" in (folder / "mine.md").read_text()
    assert "| twice 2 | 4 |" in (folder / "mine.md").read_text()
    shown = invoke("mine.py:STUDY", "--stale")
    assert shown.exit_code == 0, shown.output
    cells = [line.replace("│", " ").split() for line in shown.output.splitlines() if "mine" in line]
    assert cells == [["mine", "quick", "3", "0", "0", "0"], ["mine", "full", "10", "7", "0", "7"]]
    assert invoke("mine.py:STUDY", "--full", "--shard", "2/2").exit_code == 0
    assert "Full: 7 of 10 points" in (folder / "mine.md").read_text()
    before = (folder / "mine.md").read_bytes()
    assert invoke("mine.py:STUDY", "--print").exit_code == 0
    assert (folder / "mine.md").read_bytes() == before


def test_a_part_of_a_quick_study_replaces_no_page(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    shown = invoke("mine.py:STUDY", "--shard", "1/2", "--jobs", "0")
    assert shown.exit_code == 0, shown.output
    assert re.search("no page: [12] of 3 points of the quick study are not measured", shown.output)
    assert not (folder / "mine.md").exists()
    assert invoke("mine.py:STUDY", "--shard", "2/2", "--jobs", "0").exit_code == 0
    assert "Quick: 3 of 3 points" in (folder / "mine.md").read_text()


EXAMPLE = Path(__file__).parents[3] / "examples" / "studies" / "slow_dram.py"


def test_the_guide_shows_the_example_as_it_is() -> None:
    guide = (EXAMPLE.parents[2] / "docs" / "studies.md").read_text()
    assert f"```python\n{EXAMPLE.read_text()}```" in guide
    assert len(EXAMPLE.read_text().splitlines()) < 60


@pytest.mark.slow
def test_the_example_runs(folder: Path) -> None:
    shown = invoke(f"{EXAMPLE}:STUDY", "--jobs", "0")
    assert shown.exit_code == 0, shown.output
    page = (folder / "slow_dram.md").read_text()
    assert "Quick: 4 of 4 points are measured, 4 of them with the present code" in page
    assert re.search(r"They take 1\.\d\d\d times as many cycles", page)


def test_wrong_names_and_shards_measure_nothing(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE + "\nOTHER = 3\n")
    for words, text in (
        (("mine.py:OTHER",), "is of type int; it must be a Study"),
        (("mine.py:STUDY", "--shard", "3/2"), "give I/N"),
        (("whole_packet",), "did you mean whole_packets?"),
    ):
        shown = invoke(*words)
        assert shown.exit_code == Exit.BAD_INPUT, shown.output
        assert text in " ".join(shown.output.replace("│", " ").split())
    assert not (folder / "rows").exists()


def test_one_that_cannot_be_measured_stops_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> int:
        raise StudyError("no such tool")

    usual = command.left_of
    monkeypatch.setattr(command, "left_of", lambda points, file, *rest: (
        broken() if file.path.stem == "bad" else usual(points, file, *rest)
    ))  # fmt: skip
    good = command.run([study(name="bad"), study()], command.StudyOptions(jobs=0), console())
    assert not good
    assert not (folder / "bad.md").exists()
    assert "At most 4." in (folder / "squares.md").read_text()


def test_studies_are_measured_together_and_shown_when_they_are_whole(file: RowFile) -> None:
    """The most work first, whichever study's it is; what two need is measured once, and both get it."""
    other, heard = RowFile(file.path.with_name("others.jsonl")), list[tuple[str, list[int]]]()

    def part(name: str, rows: RowFile, *numbers: int) -> PendingStudy:
        points = [Square(number) for number in numbers]
        return PendingStudy(name, rows, left_of(points, rows), lambda: heard.append((name, list(Square.calls))))

    parts = [part("small", file, 2, 3), part("none", file), part("large", other, 3, 6), part("same", file, 3)]
    assert measure(parts, lambda event: None, jobs=0) == 3
    assert Square.calls == [6, 3, 2]
    assert heard == [("none", []), ("large", [6, 3]), ("same", [6, 3]), ("small", [6, 3, 2])]
    for rows, count in ((file, 2), (other, 2)):
        assert len(rows.path.read_text().splitlines()) == len(RowFile(rows.path).lines) == count


def test_the_index_has_a_line_for_each_page(folder: Path) -> None:
    """By question, with the page's own answer; pages of another form by their titles."""
    assert command.run([study(name="klotski"), study(name="other")], command.StudyOptions(jobs=0), console())
    (folder / "old.md").write_text("# How fast\n\nPrinted by hand.\n\n**Verdict: 2 bars missed.**\n")
    text = index(registry.SHIPPED, folder)
    line = "| How large are squares? | At most 4. | [{}]({}.md) | all bars kept |"
    assert "## Klotski: networks in micro-ops" in text
    assert line.format("klotski", "klotski") in text
    others = text[text.index("## Others") :]
    assert line.format("other", "other") in others
    assert "| How fast | see the page | [old](old.md) | 2 bars missed |" in others
    assert "| How large are squares?" in (folder / "README.md").read_text()


# -- points that are runs ---------------------------------------------------------------------------------------------


def test_a_run_is_known_by_all_that_decides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [
        RunPoint("tiny", "gemm:4x4x4"),
        RunPoint("quad8", "gemm:4x4x4"),
        RunPoint("tiny", "gemm:4x4x5"),
        RunPoint("tiny", "gemm:4x4x4", "paper_static"),
        RunPoint("tiny", "gemm:4x4x4", links=True),
        RunPoint("tiny", "gemm:4x4x4", changes=(("spm_words", 512),)),
    ]
    keys = [point.key for point in some]
    assert len(set(keys)) == len(keys)
    assert chip_of("tiny", (("spm_words", 512),)).spm_words == 512
    before = some[0].key
    monkeypatch.setattr("meshloom.tb.studies.points.runs.gateware", lambda device: "other sources")
    assert some[0].key != before


def test_a_row_of_a_run_comes_back_as_it_was() -> None:
    row = Row(
        workload="w", chip="tiny", scheduler="loop_order", simulator="verilator", rtl_cycles=100, model_cycles=101,
        utilisation=0.5, bytes_checked=64, cpu_seconds=0.1,
    )  # fmt: skip
    value = json.loads(json.dumps(RunPoint.dump(row)))
    assert "error_percent" not in value, "it follows from others"
    assert RunPoint.load(value) == row


def test_points_of_ours_go_to_workers_and_those_of_a_file_do_not(
    file: RowFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the checkout is no folder of `sys.path`, as in the program `meshloom`."""
    root = Path(__file__).parents[3]
    monkeypatch.setattr(sys, "path", [each for each in sys.path if Path(each or ".").resolve() != root])
    sent: list[Point] = []

    def run(client: object, jobs: Sequence[PointJob], on_done: object) -> None:
        sent.extend(point for job in jobs for point in job.read())

    monkeypatch.setattr(cluster, "opened", lambda jobs, address: nullcontext())
    monkeypatch.setattr(cluster, "run", run)
    ours, own = RunPoint("tiny", "gemm:4x4x4"), Square(3)
    monkeypatch.setattr(Square, "__module__", "a_file_that_was_named")
    monkeypatch.setitem(sys.modules, "a_file_that_was_named", sys.modules[__name__])
    assert measure([PendingStudy("both", file, [ours, own])], lambda event: None, jobs=2) == 2
    assert sent == [ours]
    assert file.look([ours, own]).keys() == {own}
    sent.clear()
    here = list[Point]()
    monkeypatch.setattr(RunPoint, "alone", True)

    def measured_here(point: Point, report: Report) -> Line:
        here.append(point)
        return _line(point, 0.0, error="not now")

    monkeypatch.setattr("meshloom.tb.studies.engine.measure.measured", measured_here)
    assert measure([PendingStudy("timed", file, [ours])], lambda event: None, jobs=2) == 1
    assert (sent, here) == ([], [ours]), "what measures time has the machine to itself"


@pytest.mark.slow
def test_workers_measure_the_same(file: RowFile) -> None:
    some = [RunPoint("tiny", name) for name in ("gemm:4x4x4", "gemm:9x5x4", "gemm:4x999999x4")]
    assert measure([PendingStudy("runs", file, left_of(some, file))], lambda event: None, jobs=2) == 3
    rows = Rows(some, file.look(some))
    assert rows.errors.keys() == {some[2]}
    assert all(row.rtl_cycles == row.model_cycles > 0 for row in rows.values())
    again = RowFile(file.path.with_name("again.jsonl"))
    here(some, again)
    assert {point: row.rtl_cycles for point, row in Rows(some, again.look(some)).items()} == {
        point: row.rtl_cycles for point, row in rows.items()
    }
