"""`meshloom noc`: the network on chip by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Json, Nearest, examples
from .outputs import STDOUT, check_places, put
from .requests import filled

if TYPE_CHECKING:
    from rich.console import Console

    from ..results.noc import NocReplay

app = typer.Typer(
    help="Send other tools' traffic through the RTL of the NoC.",
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
#: Links and transfers that are shown.
_SHOWN = 8


@app.callback()
def noc() -> None:
    """Send other tools' traffic through the RTL of the NoC."""


@dataclass(frozen=True)
class ReplayRequest:
    """Traffic to be replayed: the fields are the options of the command."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="Traffic: of tt-npe (.json), BookSim or Noxim.")]
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh", metavar="WxH", help="Columns and rows.", show_default="as many as a workload of tt-npe needs"
        ),
    ] = None
    flit_bytes: Annotated[
        int, typer.Option("--flit-bytes", min=1, max=1024, metavar="N", help="Bytes that a flit carries.")
    ] = 32
    vcs: Annotated[int, typer.Option("--vcs", min=1, max=4, metavar="N", help="Virtual channels of a link.")] = 2
    flits: Annotated[
        int, typer.Option("--flits", min=1, max=4096, metavar="N", help="Flits of each packet of Noxim's.")
    ] = 8
    cycles: Annotated[
        int, typer.Option("--cycles", min=1, max=1 << 20, metavar="N", help="How long a table of Noxim's sends.")
    ] = 10_000
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="By which a table of Noxim's is drawn.")] = 0
    nearest: Nearest = False
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1 << 31, metavar="N", help="Give up after so many cycles.")
    ] = 10_000_000
    json: Json = None


@app.command(
    epilog=examples(
        "meshloom noc replay workload.json",
        "meshloom noc replay workload.json --mesh 8x8 --nearest --json replay.json",
        "meshloom noc replay table.txt --mesh 4x4 --cycles 2000",
    )
)
@filled(ReplayRequest)
def replay(request: ReplayRequest) -> None:
    """Replay the transfers of a file on the RTL of a mesh: latency, throughput, the busiest links, beside the claim.

    Packets leave as the file says, one at a time from each tile, and go along x and then along y. Every flit is
    checked. What the NoC lacks, such as multicasts, is refused, or with --nearest sent as unicasts.
    """
    from ..report.console import console
    from ..report.progress import Working
    from ..runs.noc_replay import ReplaySettings, replayed

    check_places(request.json)
    settings = ReplaySettings(
        _side(request.mesh),
        request.flit_bytes,
        request.vcs,
        request.nearest,
        request.limit,
        request.flits,
        request.cycles,
        request.seed,
    )
    screen = console(stderr=request.json == STDOUT)
    with Working(console(stderr=True), f"replaying {request.file.name}, building the mesh first unless it is there"):
        result = replayed(request.file, settings)
    _print(result, screen)
    if request.json is not None:
        put(request.json, result.model_dump_json(indent=2) + "\n")


def _side(text: str | None) -> tuple[int, int] | None:
    """Columns and rows. Raises BadParameter."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,2})x(\d{1,2})", text)
    if match is None or min(int(match[1]), int(match[2])) < 1:
        raise typer.BadParameter(f"{text!r} must be like 4x4", param_hint="--mesh")
    return int(match[1]), int(match[2])


def _print(result: NocReplay, to: Console) -> None:
    from ..report.console import dense
    from ..report.narrow import show

    to.print(f"{result.file} on {result.mesh}", markup=False, soft_wrap=True)
    claim = ""
    if result.claimed_cycles is not None and result.beyond_claim_percent is not None:
        claim = f"; {result.tool} says {result.claimed_cycles:,} ({result.beyond_claim_percent:+.2f} %)"
    to.print(f"{result.cycles:,} cycles{claim}", markup=False, soft_wrap=True)
    latency = "" if result.claimed_latency is None else f" ({result.tool} says {result.claimed_latency:,.1f})"
    to.print(
        f"{result.bytes:,} bytes, {result.bytes_per_cycle:.2f} a cycle; latency of a packet {result.mean_latency:,.1f} "
        f"cycles in the mean{latency}, {result.worst_latency:,} at most",
        markup=False,
        soft_wrap=True,
    )
    links = dense("busiest links", ("link",), ("flits", "of the cycles", "blocked"))
    for link in result.links[:_SHOWN]:
        share = 100 * link.busy / max(1, result.cycles)
        links.add_row(f"({link.x}, {link.y}) {link.port}", f"{link.busy:,}", f"{share:.1f} %", f"{link.blocked:,}")
    show(links, to)
    flows = dense("transfers that end last", ("from", "to"), ("bytes", "packets", "begin", "end"))
    for flow in sorted(result.flows, key=lambda each: -each.end)[:_SHOWN]:
        cells = (flow.source, flow.target, f"{flow.bytes:,}", f"{flow.packets:,}", f"{flow.begin:,}", f"{flow.end:,}")
        flows.add_row(*map(str, cells))
    show(flows, to)
    for change in result.changes:
        to.print(f"note: {change}", style="yellow", markup=False, soft_wrap=True)
