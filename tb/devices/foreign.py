"""Devices that do not ship with Meshloom: what goes wrong in their code is one error that names the device and its
line, and what they return is looked at."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.support.plugins import failure

from .interface import Device, DeviceError, DeviceKind, Job, NoDeviceError, Run


def watched(name: str, kind: DeviceKind) -> DeviceKind:
    """The same kind; its errors are DeviceErrors. `name`: as the user wrote it."""

    @wraps(kind.open)
    def open_one(chip: ChipConfig, waves: bool, on_progress: Callable[[str], None]) -> Device:
        with _of_the_device(name, "cannot be opened", NoDeviceError):
            device: object = kind.open(chip, waves, on_progress)
        return _ForeignDevice(name, _checked(name, device))

    @wraps(kind.version)
    def version() -> str:
        with _of_the_device(name, "has no version", NoDeviceError):
            return kind.version()

    @wraps(kind.tools)
    def tools() -> dict[str, str]:
        with _of_the_device(name, "does not say its tools", NoDeviceError):
            return kind.tools()

    return replace(kind, open=open_one, version=version, tools=tools)


class _ForeignDevice:
    """A device, each of whose runs is one."""

    def __init__(self, name: str, device: Device) -> None:
        self._name, self._device = name, device

    @property
    def config(self) -> ChipConfig:
        return self._device.config

    @property
    def name(self) -> str:
        return self._device.name

    @property
    def waves(self) -> Path | None:
        return self._device.waves

    def run(self, jobs: Sequence[Job], label: str = "run") -> Generator[Run, None, None]:
        with _of_the_device(self._name, "failed", DeviceError):
            runs = iter(self._device.run(jobs, label))
        try:
            for done in range(len(jobs)):
                with _of_the_device(self._name, "failed", DeviceError):
                    run: object = next(runs, None)
                if not isinstance(run, Run):
                    what = "nothing" if run is None else f"a {type(run).__name__}, not a Run,"
                    raise DeviceError(f"device {self._name} yields {what} for job {done + 1} of {len(jobs)}")
                yield run
        finally:
            if (close := getattr(runs, "close", None)) is not None:  # of a generator
                close()

    def beside(self, on_progress: Callable[[str], None]) -> Device:
        with _of_the_device(self._name, "has none beside it", DeviceError):
            device: object = self._device.beside(on_progress)
        return _ForeignDevice(self._name, _checked(self._name, device))


def _checked(name: str, device: object) -> Device:
    """What a device's code has made, if it is a device. Raises NoDeviceError."""
    if lacks := [part for part in ("run", "beside", "config", "name", "waves") if not hasattr(device, part)]:
        raise NoDeviceError(f"device {name} is a {type(device).__name__} without {', '.join(lacks)}; return a Device")
    checked: Device = device  # pyright: ignore[reportAssignmentType]  (it has all that a Device has)
    return checked


@contextmanager
def _of_the_device(name: str, what: str, kind: type[DeviceError]) -> Generator[None]:
    """Raises such an error instead of those that a device's code raises, unless these are ours already."""
    try:
        yield
    except (DeviceError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise kind(f"device {name} {what}: {failure(name, error)}") from error
