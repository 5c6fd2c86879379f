"""`meshloom init`: files to begin with."""

from __future__ import annotations

import re
import sys
from importlib import resources
from importlib.metadata import packages_distributions
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from ..api.options import examples
from .outputs import put

app = typer.Typer()

#: Kinds of templates, the file of each, and what to try with it first.
TEMPLATES = {
    "scheduler": ("scheduler.py", "meshloom run gemm:64x64x64 --chip quad8 --scheduler ./{name}.py:schedule"),
    "chip": ("chip.toml", "meshloom run resnet8/conv2_1_1 --chip {name}.toml"),
    "scenario": ("scenario.toml", "meshloom serve {name}.toml --model"),
    "sweep": ("sweep.toml", "meshloom sweep {name}.toml"),
}
_LONGEST = 40


def _complete(incomplete: str) -> list[str]:
    return [kind for kind in TEMPLATES if kind.startswith(incomplete)]


@app.command(
    epilog=examples(
        "meshloom init scheduler mine",
        "meshloom init chip my_chip",
        "meshloom init scenario rush",
        "meshloom init sweep sizes",
    )
)
def init(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", autocompletion=_complete, help=f"One of {', '.join(TEMPLATES)}."),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, and the file.")],
) -> None:
    """Write a commented scheduler, chip, scenario or sweep into this folder that runs as it stands.

    A file that is there already is left as it is.
    """
    from meshloom.hw.spec.config import built_in_chips, near_or_all

    from ..report.console import console

    if kind not in TEMPLATES:
        raise typer.BadParameter(
            f"there is no template of a {kind!r}; {near_or_all(kind, TEMPLATES)}", param_hint="KIND"
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name, flags=re.ASCII) or len(name) > _LONGEST:
        raise typer.BadParameter(
            f"{name!r} must be letters, digits and underscores, at most {_LONGEST}, the first a letter",
            param_hint="NAME",
        )
    if kind == "chip" and name in built_in_chips():
        raise typer.BadParameter(f"{name} is a built-in chip; take another name", param_hint="NAME")
    file, example = TEMPLATES[kind]
    path = Path(f"{name}{Path(file).suffix}")
    if path.exists() or path.is_symlink():
        raise typer.BadParameter(f"{path} is there already; take another name, or remove it", param_hint="NAME")
    if kind == "scheduler" and (what := _taken(name)):
        raise typer.BadParameter(f"{name} is {what}; take another name for the file", param_hint="NAME")
    text = resources.files(f"{__package__}.templates").joinpath(file).read_text(encoding="utf-8")
    put(path, text.replace("TEMPLATE", name))
    console().print(f"{path}; try: {example.format(name=name)}", soft_wrap=True)


def _taken(name: str) -> str:
    """What else Python means by a name, if anything."""
    if iskeyword(name):
        return "a word of Python"
    if name in sys.stdlib_module_names:
        return "a module of Python"
    return "an installed module" if name in packages_distributions() else ""
