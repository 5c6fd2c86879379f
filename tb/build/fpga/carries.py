"""Carry chains of an ECP5's netlist, as nextpnr places them in fewest cells: what leads a carry into a chain, or out of
it, is a cell of its own there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

#: A port without a net, in Yosys' JSON.
NO_NET = "x"
#: Two bits of a chain; for each its ports and parameters, but for the number.
_KIND = "CCU2C"
_PORTS, _PARAMETERS = ("A", "B", "C", "D", "S"), ("INIT", "INJECT1_")
#: What a bit with ones at its four inputs leads on, whatever comes into it: a carry that is its key.
_FIRST = {"0": f"{0:016b}", "1": f"{0b1000:016b}"}

_Cell = dict[str, Any]


def without_feeds(module: dict[str, Any]) -> None:
    """Changes the cells of a module in Yosys' JSON; they compute the same.

    A carry that nobody reads gets no net, else nextpnr leads it out. A chain of an odd number of bits begins with a bit
    that makes the constant carry, which takes the place that is free at its end.
    """
    readers = Counter(bit for port in module["ports"].values() for bit in port["bits"])
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                readers.update(bits)
    for cell in module["cells"].values():
        if cell["type"] == _KIND and not readers[_net(cell, "COUT")]:
            cell["connections"]["COUT"] = [NO_NET]
    for chain in _chains(module["cells"]):
        carry = _net(chain[0], "CIN")
        ends_odd = not readers[_net(chain[-1], "S1")] and _net(chain[-1], "COUT") == NO_NET
        alone = all(readers[_net(cell, "COUT")] == 1 for cell in chain[:-1])
        plain = all(cell["parameters"][f"INJECT1_{half}"] == "NO" for cell in chain for half in range(2))
        if carry in _FIRST and ends_odd and alone and plain:
            _begin(chain, carry)


def _net(cell: _Cell, port: str) -> Any:
    return cell["connections"].get(port, [NO_NET])[0]


def _chains(cells: dict[str, _Cell]) -> Iterator[list[_Cell]]:
    """Cells whose carries lead from one to the next."""
    carries = [cell for cell in cells.values() if cell["type"] == _KIND]
    following = {_net(cell, "CIN"): cell for cell in carries}
    driven = {_net(cell, "COUT") for cell in carries}
    for cell in carries:
        if _net(cell, "CIN") in driven:
            continue
        chain = [cell]
        while (after := following.get(_net(chain[-1], "COUT"))) is not None:
            chain.append(after)
        yield chain


def _begin(chain: list[_Cell], carry: str) -> None:
    """Moves all bits by one; the first makes the carry."""
    chain[0]["connections"]["CIN"] = [NO_NET]
    wires: list[dict[str, Any]] = [{port: [NO_NET if port == "S" else "1"] for port in _PORTS}]
    texts = [{"INIT": _FIRST[carry], "INJECT1_": "NO"}]
    for cell in chain:
        for half in range(2):
            wires.append({port: cell["connections"].get(f"{port}{half}", [NO_NET]) for port in _PORTS})
            texts.append({name: cell["parameters"][f"{name}{half}"] for name in _PARAMETERS})
    for index, cell in enumerate(chain):
        for half in range(2):
            cell["connections"] |= {f"{port}{half}": bits for port, bits in wires[2 * index + half].items()}
            cell["parameters"] |= {f"{name}{half}": text for name, text in texts[2 * index + half].items()}
