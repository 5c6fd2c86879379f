"""`meshloom query`: SQL on the rows of sweeps and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..api.options import examples
from .outputs import STDOUT, check_places, put

app = typer.Typer()
#: Rows that are printed; a file gets all.
_SHOWN = 50
_PICTURES = (".svg", ".png")


@app.command(
    epilog=examples(
        "meshloom query sim_build/sweeps/memory 'select chip, min(cycles) from points group by chip'",
        "meshloom query sim_build/sweeps/memory --pareto cycles,dram_bytes --out front.svg",
        'meshloom query latest "select workload, rtl_cycles from points" --out rows.csv',
    )
)
def query(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", help="Folder or name of a sweep; a run (.json, its name, `latest`); .csv; .parquet."
        ),
    ],
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            help="What to select from the table `points`.",
            show_default="all columns into a file, those that one wants first on the screen",
        ),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN",
            help="Only the rows of the Pareto front: least values are best, with - in front of a column the greatest.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Write a .csv (- is stdout), a .parquet, or a picture: .svg, .png."),
    ] = None,
) -> None:
    """Select from the rows of a sweep or a run: SQL, Pareto fronts, tables and pictures."""

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import frame_table
    from ..runs.sweeps import query as queries

    check_places(out)
    frame = queries.select(queries.rows(results), sql or "select * from points")
    aims = [] if pareto is None else [each.strip() for each in pareto.split(",")]
    front = queries.pareto(frame, aims) if aims else frame
    if out is None:
        first = [*queries.main_columns(frame), *(aim.removeprefix("-") for aim in aims)]
        columns = frame.columns if sql is not None else list(dict.fromkeys(first))
        show(frame_table(front.select(columns).head(_SHOWN)), console())
        if len(columns) < len(frame.columns):
            rest = [name for name in frame.columns if name not in columns]
            console().print(f"{len(rest)} more columns, such as {rest[0]} and {rest[-1]}", soft_wrap=True)
        if front.height > _SHOWN:
            console().print(f"{_SHOWN} of {front.height:,} rows; --out writes all of them")
    elif out == STDOUT or out.suffix == ".csv":
        put(out, front.write_csv())
    elif out.suffix == ".parquet":
        import io

        data = io.BytesIO()
        front.write_parquet(data)
        put(out, data.getvalue())
    elif out.suffix not in _PICTURES and len(aims) < 2:
        raise typer.BadParameter(f"{out}: must end with .csv, .parquet, .svg or .png", param_hint="--out")
    else:
        queries.draw(frame, aims, out)
    if out is not None and out != STDOUT:
        what = "rows" if out.suffix in (".csv", ".parquet") else "picture"
        console().print(f"{what}: {out}", markup=False, soft_wrap=True)
