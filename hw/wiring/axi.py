"""The two AXI interfaces of the chip, seen from the manager (master).

AMBA AXI4 and AXI4-Lite (ARM IHI 0022). Signals that are constant or optional here (LOCK, CACHE, PROT, QOS, REGION,
USER) are left out; an integrator ties them to their default values. A port `axi` becomes `axi__awaddr`,
`axi__awvalid`, ... in Verilog. A channel transfers in a cycle in which its `valid` and `ready` are both 1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from amaranth.hdl import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .signatures import PortObject


class Burst(IntEnum):
    """AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """RRESP and BRESP; the top bit says that something went wrong."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class AXI4(wiring.Signature):
    """AXI4 manager: `address_bits` wide byte addresses, `data_bits` (8 to 1024, a power of two), `id_bits`.

    Raises ValueError for a data width that AXI4 does not have.
    """

    def __init__(self, *, address_bits: int, data_bits: int, id_bits: int = 1) -> None:
        if data_bits not in (8 << n for n in range(8)):
            raise ValueError(f"AXI4 has no data width of {data_bits} bits; use a power of two from 8 to 1024")
        self.address_bits, self.data_bits, self.id_bits = address_bits, data_bits, id_bits
        address: dict[str, int] = {"id": id_bits, "addr": address_bits, "len": 8, "size": 3, "burst": 2}
        super().__init__(
            {
                **_channel("aw", Out, address),
                **_channel("w", Out, {"data": data_bits, "strb": data_bits // 8, "last": 1}),
                **_channel("b", In, {"id": id_bits, "resp": 2}),
                **_channel("ar", Out, address),
                **_channel("r", In, {"id": id_bits, "data": data_bits, "resp": 2, "last": 1}),
            }
        )


class AXI4Lite(wiring.Signature):
    """AXI4-Lite manager: `address_bits` wide byte addresses, 32 or 64 `data_bits` (ValueError otherwise)."""

    def __init__(self, *, address_bits: int, data_bits: int = 32) -> None:
        if data_bits not in (32, 64):
            raise ValueError(f"AXI4-Lite has no data width of {data_bits} bits; use 32 or 64")
        self.address_bits, self.data_bits = address_bits, data_bits
        super().__init__(
            {
                **_channel("aw", Out, {"addr": address_bits, "prot": 3}),
                **_channel("w", Out, {"data": data_bits, "strb": data_bits // 8}),
                **_channel("b", In, {"resp": 2}),
                **_channel("ar", Out, {"addr": address_bits, "prot": 3}),
                **_channel("r", In, {"data": data_bits, "resp": 2}),
            }
        )


class AXI4LitePort(PortObject, Protocol):
    """A port with the signature `AXI4Lite`, or the part that `AXI4` has in common with it."""

    awaddr: Signal
    awvalid: Signal
    awready: Signal
    wdata: Signal
    wstrb: Signal
    wvalid: Signal
    wready: Signal
    bresp: Signal
    bvalid: Signal
    bready: Signal
    araddr: Signal
    arvalid: Signal
    arready: Signal
    rdata: Signal
    rresp: Signal
    rvalid: Signal
    rready: Signal


class AXI4Port(AXI4LitePort, Protocol):
    """A port with the signature `AXI4`."""

    awid: Signal
    awlen: Signal
    awsize: Signal
    awburst: Signal
    wlast: Signal
    bid: Signal
    arid: Signal
    arlen: Signal
    arsize: Signal
    arburst: Signal
    rid: Signal
    rlast: Signal


def _channel(name: str, flow: wiring.Flow, payload: dict[str, int]) -> dict[str, wiring.Member]:
    """The signals of one channel, whose payload flows by `flow` as seen from the manager."""
    members = {f"{name}{field}": flow(width) for field, width in payload.items()}
    return {**members, f"{name}valid": flow(1), f"{name}ready": flow.flip()(1)}
