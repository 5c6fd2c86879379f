"""Averages of pictures with padding, and pixels in another order: which zeros count, and how many pixels may move."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from meshloom.sched.workload.onnx.building import pictures
from meshloom.sched.workload.onnx.building.views import View
from meshloom.sched.workload.onnx.quantise import quantise

from ...float_models import FloatModel, decibels, integer_outputs, run_float


@pytest.mark.parametrize(("before", "own"), list(product([False, True], repeat=2)))
def test_zeros_count_in_averages_as_onnx_runtime_counts_them(before: bool, own: bool) -> None:
    """Those of a Pad always, those of the pool itself only if it says so; with `ceil_mode`, too."""
    for counts, ceil in ((0, 0), (1, 0), (0, 1)):
        m = FloatModel((1, 2, 8, 7))
        source = m.node("Pad", ["x", m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "p") if before else "x"
        pads = {"pads": [1, 1, 1, 1]} if own else {}
        more = {"count_include_pad": counts, "ceil_mode": ceil}
        m.node("AveragePool", source, "y", kernel_shape=[3, 3], strides=[2, 2], **pads, **more)
        model = m.build("y")
        graph = quantise(model, m.data())
        for x in m.data(2):
            exact, result = run_float(model, x)["y"], integer_outputs(graph, x)["y"]
            assert decibels(exact, result) > 30, (counts, ceil)
            # one step more than rounding: the corners are what padding changes most
            assert np.abs(exact - result.reshape(exact.shape)).max() < 3 * graph.value("y").step, (counts, ceil)


def moved(channels: list[int], pixels: list[int], size: tuple[int, int]) -> View:
    """A view of these channels and pixels of a value with so many."""
    index = np.array(channels)[:, None] * size[1] + np.array(pixels)
    return View("v", (size[0], 1, size[1]), (1, len(channels), 1, len(pixels)), index[None, :, None])


def test_rows_of_pixels_in_any_order_up_to_the_most() -> None:
    """Both the pixels that there are and those that are made become channels of a convolution."""
    most = pictures.MOST_MOVED
    for result, there in ((most, most), (3, most), (most, 2)):
        pixels = [there - 1 - n % there for n in range(result)]
        channels, columns = pictures._rows_and_columns(moved([1, 0], pixels, (2, there))) or ([], [])
        assert (list(channels), list(columns)) == ([1, 0], pixels)
    for result, there in ((most + 1, 2), (3, most + 1), (most + 1, most + 1)):
        pixels = [there - 1 - n % there for n in range(result)]
        assert pictures._rows_and_columns(moved([1, 0], pixels, (2, there))) is None


def test_channels_with_pixels_of_their_own_are_no_rows_and_columns() -> None:
    view = moved([0, 1], [0, 1, 2], (2, 3))
    index = view.order.copy()
    assert pictures._rows_and_columns(view) is not None
    index[0, 1, 0] = [3, 5, 4]  # the second channel has its pixels in another order
    assert pictures._rows_and_columns(View("v", (2, 1, 3), (1, 2, 1, 3), index)) is None
    index[0, 1, 0] = [3, 1, 5]  # ... and one of another channel
    assert pictures._rows_and_columns(View("v", (2, 1, 3), (1, 2, 1, 3), index)) is None
