"""Verilog for people: a header, a comment at each module, and names instead of numbers.

It describes the same gates as `hw.assembly.verilog.verilog`: wires without a reader are gone, and what Yosys numbers
has the name of the signal that it is a part of (`last_t1`, `last_t2`: terms of `last`).
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from itertools import count
from typing import Any

from ..spec.config import ChipConfig

#: What follows the optimisation of `hw.assembly.verilog`: Yosys names each net after what drives it, or reads it.
NAMING = "opt_clean -purge; autoname; write_verilog"
#: Columns of a comment.
WIDTH = 116

_MODULE = re.compile(r"^module (\S+)\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (?:input|output|inout) (?:\[[^]]*\] )?(\S+?) ?;$", re.MULTILINE)
_LOCAL = re.compile(r"^  (?:wire|reg) (?:signed )?(?:\[[^]]*\] )?(\\\S+|\w+)(?= *(?:\[[^]]*\])? *[;=])", re.MULTILINE)
_FUNCTION = re.compile(r"^  function (?:signed )?(?:\[[^]]*\] )?(\S+?) ?;$", re.MULTILINE)
_INSTANCE = re.compile(r"^  (\w+) (?:\\\S+ |\w+) ?\($")
_NAME = re.compile(r"(\.?)(\\\S+ |[A-Za-z_]\w*)")
_TERM = re.compile(r"_\$\w.*$")

#: Kinds of warning of `verilator --lint-only -Wall` and of what they are about, all of them as meant.
WAIVED = {
    "DECLFILENAME": "a file holds all modules of a chip",
    "PROCASSINIT": "registers have an initial value, as those of an FPGA do, and take others",
    "WIDTHEXPAND": "operands are of the width that they need; Verilog widens them as the sources mean it",
    "WIDTHTRUNC": "a shift by a variable distance is cut to the bits that are used",
    "CASEOVERLAP": "Yosys writes a choice by priority as cases of which the first counts",
    "UNUSEDSIGNAL": "parts of a module's outputs, of a packet, an instruction or a sum, that nobody reads there",
    "UNOPTFLAT": "a wire joins fields of which one follows from another; Verilator looks at whole wires",
    "UNDRIVEN": "the words of a buffer into which nothing is sent, and their notes, in a router without a tile",
}
#: Of these kinds, the warnings that are as meant, as Verilator writes them; of the others, all.
_MATCHES = {"UNDRIVEN": ("Signal is not driven: 'storage'", "Signal is not driven: 'notes'")}


def readable(text: str, config: ChipConfig, contracts: Mapping[str, str]) -> str:
    """The Verilog of a chip with header, comments and names. `contracts`: what each module is, as far as that is known,
    the first paragraph of its source's docstring."""
    version = metadata.version("meshloom")
    header = (
        f"// Chip {config.name}: {config.width} x {config.height} tiles, words of {config.lanes} bytes. "
        f"Digest: {config.digest}.\n"
        f"// Written by Meshloom {version} from its Amaranth sources. Licence: Apache-2.0.\n"
        "// One clock (clk), synchronous reset (rst, active high). Top module: chip.\n"
        "// Names that end in _t and a number are terms of the signal before it; functions end in _choice.\n\n"
    )
    return header + "\n".join(_modules(text, contracts))


def waivers(config: ChipConfig) -> str:
    """A control file for `verilator --lint-only -Wall`, with the reason for each kind of warning."""
    lines = ["`verilator_config\n"]
    for kind, reason in WAIVED.items():
        matches = [f' -match "{text}"' for text in _MATCHES.get(kind, ())] or [""]
        lines.append(f"// {kind}: {reason}\n")
        lines += [f'lint_off -rule {kind} -file "*{config.name}.v"{match}\n' for match in matches]
    return "".join(lines)


def contracts_of(fragment: Any, name: str) -> Iterator[tuple[str, str]]:
    """Modules of a hierarchy (Amaranth's `Fragment`, which its stubs lack) by the names that RTLIL gives them, each
    with the first paragraph of its source's docstring, on one line. Modules whose source has none are left out."""
    for origin in fragment.origins or ():
        document = vars(type(origin)).get("__doc__")
        if document:
            yield name, " ".join(inspect.cleandoc(document).partition("\n\n")[0].split())
            break
    for number, (part, part_name, _) in enumerate(fragment.subfragments):
        yield from contracts_of(part, f"{name}__{part_name or f'U${number}'}")


def _modules(text: str, contracts: Mapping[str, str]) -> Iterator[str]:
    modules = {match[1]: match[0] for match in _MODULE.finditer(text)}
    ports, names = dict[str, dict[str, str]](), dict[str, dict[str, str]]()
    numbers = count(1)
    for name, module in modules.items():
        reserved = {match[2].strip().removeprefix("\\") for match in _NAME.finditer(module)}
        ports[name] = _names(_PORT.findall(module), reserved)
        functions = (each.removeprefix("\\") for each in _FUNCTION.findall(module))
        # numbers of their own in the whole file: a function must have no name of a wire of a module around it either
        choices = {each: f"{_base(each)}_choice{next(numbers)}" for each in functions}
        names[name] = _names(_LOCAL.findall(module), reserved) | ports[name] | choices
    for name, module in modules.items():
        comment = textwrap.wrap(contracts.get(name, ""), WIDTH - 3)
        yield "".join(f"// {line}\n" for line in comment) + "".join(_lines(module, names[name], ports))


def _lines(module: str, names: Mapping[str, str], ports: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The lines of a module with new names: its own, and those of the ports of what it instantiates."""
    pins: Mapping[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        name = match[2].strip().removeprefix("\\")
        new = (pins if match[1] else names).get(name)
        return match[0] if new is None else match[1] + new

    for line in module.splitlines(keepends=True):
        if instance := _INSTANCE.match(line):
            pins = ports.get(instance[1], {})
        yield _NAME.sub(renamed, line)


def _names(escaped: Iterable[str], reserved: set[str]) -> dict[str, str]:
    """New names of those that are escaped or numbers, by their old ones without the escape; adds them to `reserved`."""
    names: dict[str, str] = {}
    for name in (each.removeprefix("\\") for each in escaped):
        if name not in names and (new := _plain(name, reserved)):
            names[name] = new
            reserved.add(new)
    return names


def _base(name: str) -> str:
    """The name of the signal that a net is a part of, without what needs an escape."""
    base = re.sub(r"\W+", "_", _TERM.sub("", name)).strip("_")
    return base if base and not base[0].isdigit() else f"net_{base}".rstrip("_")


def _plain(name: str, reserved: set[str]) -> str:
    """A name that needs no escape; empty for one that is good as it is."""
    if re.fullmatch(r"\w+", name) and not re.fullmatch(r"_\d+_", name):
        return ""
    base = _base(name)
    if not _TERM.search(name) and base not in reserved:
        return base
    return next(new for number in count(1) if (new := f"{base}_t{number}") not in reserved)
