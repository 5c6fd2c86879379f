"""SQL of sweeps and queries sees its table alone: what reaches for a file or an address is refused unopened."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshloom.tb.results.sweep import SweepError, SweepFile
from meshloom.tb.runs.sweeps import grid, query, sql

if TYPE_CHECKING:
    import polars

ROOT = Path(__file__).parents[2]

#: Ways to open FILE that polars by itself takes, and further statements than SELECT.
EVASIONS = (
    "select * from read_csv('FILE')",
    "select * from READ_csv ('FILE')",
    "select * from \"read_csv\"('FILE')",
    "select * from `read_csv`('FILE')",
    "select * from 'read_csv'('FILE')",
    "select * from read_csv/* ( */('FILE')",
    "select * from read_csv -- (\n('FILE')",
    "select * from read_csv\u00a0('FILE')",
    "select * from read_csv(E'FILE')",
    "select * from read_csv(['FILE'])",
    "select * from (((select * from read_csv('FILE'))))",
    "select a from points where a in (select a from read_csv('FILE'))",
    "select (select count(*) from read_csv('FILE')) as n",
    "select E'\\' from read_csv('FILE') --'",
    "select '\\' as n, * from read_csv('FILE') --'",
    "select a as \"'\" from read_csv('FILE') --\"'",
    "select /* /* */ 1 */ a from read_csv('FILE')",
    "select /* ' */ a from read_csv('FILE') /* ' */",
    "with t as (select * from read_csv('FILE')) select * from t",
    "with t as (select 1), u as (from read_csv('FILE')) select * from u",
    "select * from points, read_csv('FILE') as r",
    "select * from points join read_csv('FILE') r on points.a = r.a",
    "select a from points union all select a from read_csv('FILE')",
    "values (1) union select a from read_csv('FILE')",
    "from read_csv('FILE')",
    "select * from read_parquet('FILE')",
    "select * from read_ipc('FILE')",
    "select * from read_json('FILE')",
    "select * from read_ndjson('FILE')",
    "select * from scan_csv('FILE')",
    "select * from lateral read_csv('FILE')",
    "select * from table(read_csv('FILE'))",
    "select * from points as t, read_csv(FILE) as (a)",
    "with t(a) as (select 1), read_csv('FILE') as (a) select * from t",
    "select * from 'FILE'",
    'select * from "FILE"',
    "select {fn read_csv('FILE')}",
    "select $$ $$ from read_csv('FILE')",
    "select * from read_parquet('http://127.0.0.1:9/x.parquet')",
    "explain select * from read_csv('FILE')",
    "create table t as select * from read_csv('FILE')",
    "select 1; select * from read_csv('FILE')",
    "copy points to 'FILE'",
    "drop table points",
    "truncate table points",
    "delete from points",
    "with t as (select 1) delete from points",
    "insert into points values (1, 'x', 2)",
    "select * into t from points",
    "select * from generate_series(1, 1000000000000)",
    "select " + "+".join(["a"] * 50_000) + " from points",
    "select 'a",
    "select 1 /*",
    "",
)

QUERIES = {
    "select a from points": [(1,), (2,)],
    "SELECT n FROM points WHERE a IN (2, 3) AND (n LIKE 'y' OR n = 'read_csv(''x'')');": [("y",)],
    "with t as (select a from points) select sum(a) from t": [(3,)],
    "with t(q) as (select a from points), u(r, s) as (select 3, 4) select q, r, s from t, u": [(1, 3, 4), (2, 3, 4)],
    "select count(*), min(a) filter (where a > 1) from points": [(2, 2)],
    "select n, row_number() over (order by a desc) as r from points order by r": [("y", 1), ("x", 2)],
    "select * exclude(a, n) from points -- (": [(3,), (4,)],
    "select a /* ( /* nested */ */ from points limit 1": [(1,)],
    "select cast(a as decimal(10, 2))::float / 2 as h from points where a = 1": [(0.5,)],
    'select "core.a_words" from points where "core.a_words" >= 4': [(4,)],
    "(select a from points where a = 1) union (select a * 1 from points where (a = 1))": [(1,)],
    "select p.a from points p join (select a from points where a = 1) as q(b) on p.a = q.b": [(1,)],
    "select case when (a > 1) then 'big' else 'small' end as s from points order by (s)": [("big",), ("small",)],
    "select a from points where a between (1) and (3) and not (a = 2) and exists (select 1 from points)": [(1,)],
    "select extract(year from date '2020-01-01') as y": [(2020,)],
    "from points": [(1, "x", 3), (2, "y", 4)],
    "values (1, 2)": [(1, 2)],
}


@cache
def _frame() -> polars.DataFrame:
    import polars  # slow to import

    return polars.DataFrame({"a": [1, 2], "n": ["x", "y"], "core.a_words": [3, 4]})


@pytest.mark.parametrize("evasion", EVASIONS)
def test_nothing_but_the_table_is_opened(evasion: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,n\n7,secret\n")
    with pytest.raises(query.QueryError, match=r"the table is points, its columns are a, n, core\.") as error:
        query.select(_frame(), evasion.replace("FILE", str(file)))
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert file.read_text() == "a,n\n7,secret\n"


@pytest.mark.parametrize("text", QUERIES)
def test_queries_work(text: str) -> None:
    assert query.select(_frame(), text).rows() == QUERIES[text]


def _complaint(text: str) -> str:
    """What polars says against a statement; empty if it is fine."""
    import polars

    try:
        polars.SQLContext({"points": _frame()}, eager=True).execute(text)
    except polars.exceptions.PolarsError as error:
        return str(error)
    return ""


def test_functions_of_values_open_no_table() -> None:
    for name in sorted(sql.FUNCTIONS - {"unnest"}):
        assert "unsupported function" not in _complaint(f"select {name}(a) from points"), name
        assert _complaint(f"select * from {name}('x.csv')"), name
    assert query.select(_frame(), "select * from unnest(['x.csv']) as t(a)").rows() == [("x.csv",)]  # a list of values


def _sweep(where: str) -> SweepFile:
    return SweepFile(name="s", chips=("tiny",), workloads=("gemm:4x4x4", "gemm:8x8x8"), where=(where,))


@pytest.mark.parametrize(
    "where",
    [
        "macs > (select count(*) from read_csv('FILE'))",
        "macs > (select count(*) from \"read_csv\"('FILE'))",
        "exists (select 1 from read_csv/**/('FILE'))",
        "true) union all (select * from read_csv('FILE')",
        "true) union all (select * from self",
        "true; drop table self",
        "macs in read_csv('FILE')",
        "true -- ) from read_csv('FILE'",
    ],
)
def test_conditions_see_the_sweep_alone(where: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\n7\n")
    condition = where.replace("FILE", str(file))
    if where.startswith("true --"):  # a comment, and no more
        assert len(grid.points(_sweep(condition), tmp_path)) == 2
        return
    with pytest.raises(SweepError, match=r"sweep s: where .* columns are chip, scheduler, workload, macs"):
        grid.points(_sweep(condition), tmp_path)


def test_conditions_work(tmp_path: Path) -> None:
    for where in ("macs > 100", "(macs = 512) -- (", "macs = (select max(macs) from self)", "abs(macs) > 64 /* ) */"):
        (point,) = grid.points(_sweep(where), tmp_path)
        assert point.workload == "gemm:8x8x8"


def test_every_example_in_the_texts_is_taken() -> None:
    texts = "\n".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    shown = re.findall(r"meshloom query \S+ [\"'](select [^\"']*)[\"']", texts)
    shown += re.findall(
        r"[\"'](select [^\"']* from points[^\"']*)[\"']", (ROOT / "tb" / "cli" / "query.py").read_text()
    )
    assert len(shown) >= 4
    for text in shown:
        sql.checked(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select a from points; select n from points", "holds more than one statement$"),
        ("drop table points", "must begin with SELECT, VALUES, FROM or WITH$"),
        ("with t as (select a from points) delete from t", "must go on with SELECT behind WITH, not DELETE$"),
    ],
)
def test_a_statement_that_does_not_select_is_refused(text: str, message: str) -> None:
    with pytest.raises(sql.SqlError, match=message):
        sql.checked(text)


def test_an_unknown_column_is_named_without_the_list_of_all() -> None:
    with pytest.raises(query.QueryError, match="missing") as error:
        query.select(_frame(), "select missing from points")
    assert "; valid columns" not in str(error.value)
