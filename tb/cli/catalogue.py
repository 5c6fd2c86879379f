"""The commands of `meshloom`: which module has each, and its line in `--help`.

A module is imported when its command is used. `--help` itself needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand

from .errors import Group, strict


class Listed(NamedTuple):
    """A command: its module below this package, and the first paragraph of its help."""

    module: str
    summary: str


#: All commands, in the order of the help.
LISTED = {
    "init": Listed(
        "init", "Write a commented scheduler, chip, scenario or sweep into this folder that runs as it stands."
    ),
    "run": Listed("run", "Co-simulate workloads on the RTL and print the comparison."),
    "runs": Listed("runs", "List the last runs in sim_build/results, newest first: what they were and how they ended."),
    "explain": Listed("explain", "Explain the cycles of a run that is over, workload by workload."),
    "compare": Listed(
        "compare", "Compare runs, of different schedulers, chips or commits: what moved, layer by layer, and why."
    ),
    "report": Listed("report", "Write a run that is over as a page to look at, or as a trace for Perfetto."),
    "serve": Listed(
        "serve",
        "Serve a scenario of several networks: an online scheduler places layers on free cores while the chip runs.",
    ),
    "serve-tokens": Listed(
        "serve_tokens",
        "Serve texts with a small language model: a token scheduler decides after each step what the next one reads.",
    ),
    "train": Listed("train", "Train a network with int8 forward and backward passes on the chip's RTL."),
    "generate": Listed("generate", "Generate text with a small language model on the chip's RTL."),
    "sweep": Listed("sweep", "Predict or run every point of a sweep: chips x schedulers x workloads x options."),
    "arena": Listed(
        "arena",
        "Put schedulers and other tools' mappings against each other: who is the fastest on the RTL, and by how much.",
    ),
    "query": Listed("query", "Select from the rows of a sweep or a run: SQL, Pareto fronts, tables and pictures."),
    "schedule": Listed("schedule", "Make schedules, check them and predict their cycles, without a simulator."),
    "import": Listed(
        "imports",
        "Make the schedule of a layer or a fused group as another tool has mapped it, check it, predict its cycles.",
    ),
    "export-chip": Listed(
        "imports", "Write a chip as another tool describes hardware, so that the tool maps layers onto it."
    ),
    "import-chip": Listed(
        "imports", "Make the chip that another tool's hardware file describes, and list what is not carried over."
    ),
    "schedulers": Listed(
        "schedulers", "List the schedulers, including those of installed packages, or show the options of one."
    ),
    "verilog": Listed("chips", "Write the chip as synthesisable Verilog, with a manifest of its ports and parameters."),
    "export": Listed(
        "export",
        "Write a workload as files that run it without Meshloom: memory images, a C driver, a Verilog test bench.",
    ),
    "chips": Listed("chips", "List the built-in chips, or check and show a chip of your own."),
    "workloads": Listed("workloads", "List the built-in networks and the syntax of shapes, or the layers of one name."),
    "devices": Listed(
        "devices",
        "List what programs can run on: the simulators, and devices of installed packages, with their versions.",
    ),
    "board": Listed("board", "Run a board with this chip in a simulator: its UART is behind a TCP port."),
    "bitstream": Listed(
        "bitstream",
        "Synthesise, place and route a chip with its link for an FPGA board: a bitstream, and how the chip lies there.",
    ),
    "load": Listed(
        "bitstream", "Load a bitstream onto an FPGA board, by openFPGALoader. The board keeps it until it loses power."
    ),
    "check": Listed(
        "saved",
        "Prove that a schedule or a program can run on its chip: capacity, defined bytes, no deadlock, no race and, if "
        "it is timed ahead, nothing late. Of an ONNX file, say what the chip would run, or what it cannot.",
    ),
    "disasm": Listed(
        "saved", "Print a program's instructions, stream by stream, with the labels of its schedule if there is one."
    ),
    "schemas": Listed(
        "schemas",
        "Write JSON Schemas of chips, schedules, scenarios and sweeps, with which editors complete and check, and of "
        "all that commands write as JSON.",
    ),
    "mcp": Listed(
        "mcp",
        "Serve agents over standard input and output (Model Context Protocol): schedule, check, run, explain, compare.",
    ),
    "bench": Listed("bench", "Measure studies of speed, accuracy and papers' claims, and write their pages."),
    "studies": Listed(
        "bench", "List the studies, including those of installed packages: what `meshloom bench` measures."
    ),
    "noc": Listed("noc", "Send other tools' traffic through the RTL of the NoC."),
    "doctor": Listed(
        "doctor",
        "Look at what Meshloom needs of this machine: Python, packages, compilers, the cache, the compiled model, "
        "room.",
    ),
    "cache": Listed(
        "cache", "Show or clean what is kept between runs: simulators, found schedules, compiled code, folders of runs."
    ),
}


class _Commands(MutableMapping[str, Any]):
    """The commands by name; each is imported when it is looked up."""

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported |= commands_of(LISTED[name].module)
        return self._imported[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __contains__(self, name: object) -> bool:
        return name in LISTED

    def __iter__(self) -> Iterator[str]:
        return iter(LISTED)

    def __len__(self) -> int:
        return len(LISTED)


def commands_of(module: str) -> dict[str, Any]:
    """The commands of a module; one whose app has a callback is itself a command, with others below it."""
    app = strict(import_module(f".{module}", __package__).app)
    holder = typer.Typer(rich_markup_mode="markdown")
    holder.add_typer(app, name=module if app.registered_callback else None, cls=Group)
    return dict(cast("Group", typer.main.get_group(holder)).commands)


class Catalogue(Group):
    """A group of the commands above."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        listing = copy(self)
        listing.commands = {name: TyperCommand(name, help=each.summary) for name, each in LISTED.items()}
        Group.format_help(listing, ctx, formatter)
