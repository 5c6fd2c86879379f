"""How a float model is quantised, as options say it."""

from __future__ import annotations

from math import isfinite

import typer


def numbers(text: str, option: str) -> tuple[float, ...]:
    """Those of --mean or --std. Raises BadParameter."""
    try:
        result = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} must be numbers separated by commas", param_hint=option) from None
    if not all(map(isfinite, result)) or (option == "--std" and 0 in result):
        raise typer.BadParameter(f"{text!r}: every value must be finite, and those of --std not 0", param_hint=option)
    return result


def ranges_of(text: str) -> str:
    """How a float model's ranges follow from values (`onnx.calibrate.ranges`). Raises BadParameter."""
    from meshloom.sched.workload.onnx.calibrate import ranges
    from meshloom.sched.workload.onnx.errors import OnnxError

    try:
        ranges(text)
    except OnnxError as error:
        raise typer.BadParameter(str(error), param_hint="--calibration") from None
    return text
