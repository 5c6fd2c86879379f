"""A chip from Stream's hardware file (stream-dse 2.1): cores as ZigZag describes them, and DRAM.

A core is written out in the file, or named as another file beside it or in the folder `cores` there. All cores of a
chip here are alike: those of which there are most are built.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from meshloom.hw.spec.exact import Exact

from .hardware import ChipImporter, ToolHardware
from .interface import ImportFileError, validated
from .plain_yaml import read_yaml
from .zigzag_hardware import ToolAccelerator, core_of

_WHAT = "a hardware file of stream-dse 2.1: cores, offchip_core_id, core_connectivity"
_CORE = "a core: memories and operational_array"
_BYTE = 8


class _File(Exact):
    """The topology is left alone: cores are in a mesh here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = "chip"
    cores: dict[int, Any]
    offchip_core_id: int | None = None


def read(path: Path) -> ToolHardware:
    """The hardware of a file. Raises ImportFileError, OSError."""
    file = validated(_File, read_yaml(path, _WHAT), path, _WHAT)
    cores = {number: _core(core, path, number) for number, core in file.cores.items()}
    if file.offchip_core_id is not None and file.offchip_core_id not in cores:
        raise ImportFileError(
            f"{path}: offchip_core_id: there is no core {file.offchip_core_id}; name the one with DRAM"
        )
    computing = {number: core for number, core in cores.items() if number != file.offchip_core_id}
    forms = {number: core.model_dump_json(exclude={"name"}) for number, core in computing.items()}
    if not forms:
        raise ImportFileError(f"{path}: cores: none computes; give one beside that of DRAM")
    form, count = Counter(forms.values()).most_common(1)[0]
    first = next(number for number in forms if forms[number] == form)
    hardware = core_of(computing[first], path, dram=False)
    if hardware.cores > 1:
        raise ImportFileError(
            f"{path}: cores.{first}: an array of {hardware.cores} planes; give two axes, and more cores"
        )
    hardware.name, hardware.cores = file.name, count
    others = [f"{number} ({computing[number].name})" for number in forms if forms[number] != form]
    if others:
        hardware.left.append(f"cores {', '.join(others)}: all cores of a chip are alike, as core {first} is")
    hardware.left.append("core_connectivity: here cores and DRAM are in a mesh")
    if file.offchip_core_id is not None:
        memories = list(cores[file.offchip_core_id].memories.values())
        if not memories:
            raise ImportFileError(f"{path}: cores.{file.offchip_core_id}.memories: is empty; give the DRAM")
        hardware.dram, hardware.bandwidth = memories[-1].size // _BYTE, max(1, memories[-1].bandwidth // _BYTE)
    return hardware


def _core(value: object, path: Path, number: int) -> ToolAccelerator:
    """A core, or the one in the file that is named. Raises ImportFileError, OSError."""
    if not isinstance(value, str):
        return validated(ToolAccelerator, value, path, f"{_WHAT}; core {number}: {_CORE}")
    folder = path.resolve().parent
    place = (folder / value).resolve()
    if "/" not in value and (folder / "cores" / value).is_file():  # Stream looks there first
        place = folder / "cores" / value
    if not place.is_relative_to(folder):
        raise ImportFileError(f"{path}: cores.{number}: {value} lies outside of the folder of this file; move it there")
    return validated(ToolAccelerator, read_yaml(place, _CORE), place, _CORE)


STREAM_HARDWARE = ChipImporter("stream", "hardware file of Stream (YAML)", read)
