"""Numbers in prose: each comes from somewhere, and docs/claims.md says what the rows say."""

from __future__ import annotations

import io
import re
import tokenize
from ast import literal_eval
from functools import cache
from pathlib import Path

import pytest

from meshloom.tb.studies import prose
from meshloom.tb.studies.engine.measure import measured
from meshloom.tb.studies.engine.page import EARLIER, row_file
from meshloom.tb.studies.engine.rows import Rows, StudyError
from meshloom.tb.studies.engine.sources import StudySource, tables_of
from meshloom.tb.studies.engine.study import Figure, Study
from meshloom.tb.studies.engine.tables import Table, markdown, table
from meshloom.tb.studies.engine.values import Origin, ProseNumber, behind, fewer, ratio, size, span, verdict, written

from .test_engine import Square

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
STUDIES = Path(prose.__file__).parent
#: Texts whose numbers need no source, by rule, in this order.
EXEMPT = (
    r"(?m)^    .*$",  # commands and what they print
    r"`[^`]*`",  # code
    r"(?s)<!--.*?-->",
    r"\]\([^)]*\)",  # where a link goes
    r"(?s)\{%.*?%\}|\{\{.*?\}\}",  # references to figures, and to tables
    r"(?:CGO|DATE|ICCAD|MICRO) 20\d\d|Python 3\.\d+|Debian \d+|License 2\.0",
    r"(?:Algorithms?|Tables?|Figures?|Eqs?\.|[Bb]aselines?|cycle) \(?\d+(?:(?:,| and| to|-) ?\d+)*",
    r"\b[A-Za-z]\w*(?:[-./+]?\w+)*",  # names: arch5, VGG-16, v3
    r"\b\d+(?:x\d+)+\b",  # sizes: 3x3, 45x45
)


def unsourced(text: str) -> list[str]:
    """Numbers of a text that no rule exempts."""
    for rule in EXEMPT:
        text = re.sub(rule, " ", text)
    return re.findall(r"\d[\d,]*(?:\.\d+)?", text)


def of_ours(text: str) -> str:
    """docs/claims.md without what papers say: the first column of tables, and the paragraph below a heading, which
    names the paper and what it assumes."""
    text = re.sub(r"^\| [^|]* \|", "|", text, flags=re.MULTILINE)
    return re.sub(r"^(## .*\n\n)(?:.+\n)+", r"\1", text, flags=re.MULTILINE)


@cache
def of_code(folder: Path) -> frozenset[str]:
    """Numbers in the code of a folder of studies, those of shares in percent too: prose may say how a study is set."""
    texts: set[str] = set()
    for path in folder.glob("*.py"):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NUMBER and (number := literal_eval(token.string)) is not None:
                texts.update((f"{number:g}", f"{100 * number:g}", token.string.replace("_", "")))
            elif token.type == tokenize.STRING:
                texts.update(re.findall(r"\d+(?:\.\d+)?", token.string))
    return frozenset(texts)


def test_claims_and_the_readmes_table_are_what_rows_and_pages_say() -> None:
    claims = prose.printed(prose.CLAIMS.read_text(encoding="utf-8"), RESULTS)
    assert claims == (ROOT / "docs" / "claims.md").read_text(encoding="utf-8"), "run: meshloom bench NAME --print"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert prose.with_costs(readme, RESULTS) == readme, "run: meshloom bench NAME --print"


def test_each_number_of_claims_and_readme_has_a_source() -> None:
    assert unsourced(of_ours(prose.CLAIMS.read_text(encoding="utf-8"))) == []
    assert unsourced(prose.COSTS.read_text(encoding="utf-8")) == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count(prose.BEGIN) == readme.count(prose.END) == 1
    assert unsourced(re.sub(rf"{prose.BEGIN}.*{prose.END}", "", readme, flags=re.DOTALL)) == []


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*/*.md")), ids=lambda path: path.stem)
def test_each_number_of_a_studys_prose_is_a_figure_or_a_setting(path: Path) -> None:
    numbers = {text.rstrip(",").replace(",", "") for text in unsourced(path.read_text(encoding="utf-8"))}
    assert sorted(numbers - of_code(path.parent)) == []


@pytest.mark.parametrize(
    "text", ["it is 1.07 times as fast", "12 of 30 rows", "| claim | 20 to 33 % | page |", "2,468 moves"]
)
def test_a_number_without_a_source_is_noticed(text: str) -> None:
    assert unsourced(of_ours(text))


def test_names_and_commands_need_no_source() -> None:
    text = "VGG-16 on arch5 with 3x3 cores of 45x45 PEs, `x=3`, {{ a.b }}, Figure 9, baseline 2, MICRO 2023"
    assert unsourced(f"{text}\n\n    make 3\n") == []
    assert unsourced(of_ours("## Paper\n\nOf 2023; 8 MB.\n\n| 1.67 times | {{ a.b }} | [p](p.md) |\n")) == []


def squares(rows: Rows) -> Table:
    """A line for each number."""
    columns = {"number": lambda each: f"n{each[0].number}", "square>": lambda each: f"{each[1]} / 7"}
    return table("Squares of all", columns, rows.pairs(Square))


STUDY = Study(
    name="squares",
    title="Squares",
    question="How large are squares?",
    answer="{{ most }} at most.",
    about="Numbers.",
    points=lambda full: [Square(number) for number in ((2, 3, 4, 5) if full else (2, 3))],
    tables=(squares,),
    figures=(Figure("most", "the largest", lambda rows: max(rows.values(), default=None), "{:.1f}"),),
)
BEFORE = (
    "# Squares\n\n" + markdown(Table("Squares of all", ("number", "square>"), [("n9", "81")])) + "\n\nSome 1,024.\n"
)


def source(folder: Path, numbers: tuple[int, ...], before: str = "") -> StudySource:
    """Of rows of some numbers, and of an earlier page."""
    row_file(STUDY, folder).add([measured(Square(number)) for number in numbers])
    if before:
        (folder / EARLIER).mkdir()
        (folder / EARLIER / "squares.md").write_text(before, encoding="utf-8")
    return StudySource("squares", lambda name: STUDY, folder)


def test_rows_of_the_whole_study_stand_as_they_are(tmp_path: Path) -> None:
    rows = source(tmp_path, (2, 3, 4, 5), BEFORE)
    assert (str(rows["most"]), str(rows.cell("Squares", "n4", "square"))) == ("25.0", "16")
    assert str(rows.cell("Squares", "n4", "square", 2)) == "7"
    assert rows.state == "whole: 4 of 4 points"
    assert span(rows.cells("Squares", "", "square")) == "4 to 25"


def test_a_sample_says_so_and_the_page_of_before_comes_first(tmp_path: Path) -> None:
    rows = source(tmp_path, (2, 3))
    assert (str(rows["most"]), str(rows.cell("Squares", "n3", "square"))) == ("9.0 (quick)", "9 (quick)")
    both = source(tmp_path / "both", (2, 3, 4), BEFORE)
    assert both.state == "earlier page, sample: 2 of 2 points", "two of four are not the whole study"
    assert str(both["most"]) == "9.0 (quick)"
    assert str(both.cell("Squares", "n9", "square")) == "*81*"
    assert str(both.cell("Squares", "n3", "square")) == "9 (quick)", "what the page of before lacks"
    assert str(both.printed("1,024")) == "*1,024*"


def test_a_reference_to_nothing_is_an_error(tmp_path: Path) -> None:
    rows = source(tmp_path, (2, 3), BEFORE)
    for refer, says in (
        (lambda: rows["least"], "squares has no figure 'least'"),
        (lambda: rows.cell("Squares", "n8", "square"), "no number in column 'square', row 'n8'"),
        (lambda: rows.cell("Cubes", "n2", "square"), "of a table 'Cubes'"),
        (lambda: rows.printed("24"), "'24' does not stand in the earlier page of squares"),
        (lambda: StudySource("squares", lambda name: STUDY, tmp_path / "nothing")["most"], "do not suffice"),
        (lambda: ProseNumber.of_cell("none", Origin.FULL), "'none' has no number 1"),
        (
            lambda: prose.printed("{{ earlier('squares', 'Cubes', 'n2', 'square') }}", tmp_path),
            "squares.md: 0 numbers in column 'square', row 'n2' of table 'Cubes'",
        ),
    ):
        with pytest.raises(StudyError, match=says):
            refer()
    with pytest.raises(StudyError, match="prose refers"):
        prose.printed("{{ cubes.most }}", tmp_path)


def test_tables_of_a_page_are_read_as_they_were_written() -> None:
    one = Table("Of all | some", ("a", "b>"), [("x | y", "1"), ("z", "2")])
    (read,) = tables_of(f"# Title\n\n{markdown(one)}\n\nWords.\n")
    assert (read.title, read.columns, read.rows) == (one.title, ("a", "b"), one.rows)


def test_what_templates_do_with_numbers() -> None:
    few, many = ProseNumber(20, "20", Origin.FULL), ProseNumber(25.04, "25.04", Origin.EARLIER)
    assert str(fewer(few, many)) == "*20.1*"
    assert str(ratio(many, few)) == "*1.25*"
    assert span([few, many]) == "*20 to 25.04*"
    assert str(written(many, "{:.1f}")) == "*25.0*"
    assert str(size(ProseNumber(-3, "-3", Origin.QUICK))) == "3 (quick)"
    assert behind([few, many], [many, many]) == "*1 of 2*"
    assert (verdict(many, "more", "less", 21), verdict(few, "more", "less", 21)) == ("more", "less")
    assert verdict([few, many], "more", "less", 21) == "both"
