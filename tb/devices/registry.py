"""Devices by name: the simulators, those of installed packages (entry points `meshloom.devices`), and any
`package.module:KIND` or `FILE.py:KIND`; boards by where they are: tcp:HOST:PORT, serial:PATH."""

from __future__ import annotations

from dataclasses import replace

from meshloom.sched.support.plugins import Registry

from .interface import DeviceKind, UnknownDeviceError

#: Entry points of other packages that are kinds of devices.
GROUP = "meshloom.devices"


#: First words of the names of boards: tcp:HOST:PORT, serial:PATH.
BOARDS = ("tcp", "serial")


def _accept(name: str, thing: object) -> DeviceKind:
    if not isinstance(thing, DeviceKind):
        raise TypeError(f"is of type {type(thing).__name__}; it must be a DeviceKind")
    if name in SHIPPED:
        return thing
    from .foreign import watched

    return watched(name, replace(thing, name=name) if ":" in name else thing)


_SIMULATED = "meshloom.tb.devices.simulated"
SHIPPED = {"verilator": f"{_SIMULATED}:VERILATOR", "icarus": f"{_SIMULATED}:ICARUS"}
REGISTRY: Registry[DeviceKind] = Registry(
    "device",
    GROUP,
    SHIPPED,
    _accept,
    UnknownDeviceError,
)


def find(name: str) -> DeviceKind:
    """A kind of device by name. Raises UnknownDeviceError, also for a board whose place is none."""
    word, colon, place = name.partition(":")
    if colon and word in BOARDS:
        from .board.device import serial, tcp

        return {"tcp": tcp, "serial": serial}[word](place)
    try:
        return REGISTRY.get(name)
    except UnknownDeviceError as error:
        if not str(error).endswith("FILE.py:NAME"):  # it has a better hint
            raise
        raise UnknownDeviceError(f"{error}; boards are tcp:HOST:PORT and serial:PATH") from None
