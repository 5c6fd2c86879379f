"""Sizes of gateware: generic cells after synthesis by Yosys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshloom.hw.spec.routes import RouteField

from ..build.synthesis import LOGIC, WHOLE, Area, area

#: A data flit of a chip with 16 lanes.
BITS, DEPTH = 128, 4
#: Room for the diameter of a 6 x 6 mesh and detours.
ROUTES = RouteField(flag_bit=64, first_bit=65, turns=13)


def router_area(vcs: int, allocate: str = "same", bits: int = BITS, depth: int = DEPTH) -> Area:
    """A router with all five ports and source routes, its buffers as flip-flops. Takes a minute of CPU time, so results
    are cached by content.

    Raises BuildError.
    """

    from meshloom.hw.noc.link import Plane
    from meshloom.hw.noc.router import Router

    router = Router(1, 1, Plane(3, 3, bits, depth, vcs, allocate=allocate, routes=ROUTES))
    return component_area(f"router-{vcs}vc-{allocate}", router, WHOLE)


def component_area(name: str, component: Any, script: str = LOGIC, others: Mapping[str, Any] | None = None) -> Area:
    """The area of a design. `others`: modules that it instantiates, by name. Raises BuildError."""
    from meshloom.hw.assembly.verilog import merge, to_rtlil

    text = to_rtlil(component, "design")
    if others:
        text = merge("\n".join([text, *(to_rtlil(part, module) for module, part in others.items())]))
    return area(name, text, script)
