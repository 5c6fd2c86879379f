"""A chip from SCALE-Sim's configuration (3.0.0): one core with its array, three memories, and the bandwidth of DRAM."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from meshloom.hw.spec.exact import Exact
from meshloom.sched.support.text import whole_number

from .hardware import ChipImporter, ToolHardware
from .interface import ImportFileError, text_of, validated

_WHAT = "a configuration of SCALE-Sim: sections general and architecture_presets"
_KILO = 1024
Size = Annotated[int, Field(gt=0)]


class _Architecture(Exact):
    """Keys have no capitals. `bandwidth`: words a cycle, of all operands or of each."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    arrayheight: Size
    arraywidth: Size
    ifmapsramszkb: Size
    filtersramszkb: Size
    ofmapsramszkb: Size
    dataflow: str = "os"
    bandwidth: list[Size] = []


class _Configuration(Exact):
    model_config = ConfigDict(frozen=True, extra="ignore")

    architecture_presets: _Architecture


def read(path: Path) -> ToolHardware:
    """The hardware of a file. Raises ImportFileError, OSError."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text_of(path))
    except configparser.Error as error:
        raise ImportFileError(f"{path}: {' '.join(str(error).split())}; it must be {_WHAT}") from error
    sections: dict[str, dict[str, object]] = {name: dict(section.items()) for name, section in parser.items()}
    values = sections.get("architecture_presets", {})
    for key, text in values.items():
        numbers = [whole_number(part.strip()) for part in str(text).split(",")]
        if None not in numbers:
            values[key] = numbers if key == "bandwidth" else numbers[0]
    presets = validated(_Configuration, sections, path, _WHAT).architecture_presets
    name = parser.get("general", "run_name", fallback=path.stem)
    kilobytes = presets.ifmapsramszkb, presets.filtersramszkb, presets.ofmapsramszkb
    inputs, weights, results = (_KILO * size for size in kilobytes)
    hardware = ToolHardware(name, presets.arrayheight, presets.arraywidth, 1, inputs, weights, None, results)
    hardware.bandwidth = max(presets.bandwidth) if presets.bandwidth else None
    if len(set(presets.bandwidth)) > 1:
        hardware.left.append("Bandwidth of each operand: all share the channels, which have the most of them")
    if presets.dataflow != "os":
        hardware.left.append(f"Dataflow = {presets.dataflow}: the array keeps sums (os)")
    hardware.left.append("OfmapSramSzkB is that of OUT, where results wait; sums lie in ACC")
    return hardware


SCALESIM_HARDWARE = ChipImporter("scalesim", "configuration of SCALE-Sim (.cfg)", read)
