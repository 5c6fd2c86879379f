"""Versions of a layer by a closed form, for networks of which only a table of layers is known.

It follows Layer-Puzzle's Algorithm 1 with its slips mended (folds are whole, weights are loaded, an array fills and
drains once): cores share the batch, the pixels, the output channels or the input channels, or two of these. Cores that
share input channels add up partial sums of int32, which travel from core to core. Times come from the phases of the
fluid model, where loads overlap with products.

`compiled` is what serves: anything else that makes a `Network` of a name, a batch and a platform takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil

from ...serving.fluid import EXPOSED, LATENCY, alone
from ...serving.scheduler import Layer, Network, Platform, Version
from ...workload.layer_tables import TableLayer, table

#: Makes a network for a batch and a platform.
Compile = Callable[[str, int, Platform], Network]
#: Discount factors of the bandwidth at which schemes are compared (section III-A.2): low, medium, high congestion.
LEVELS = (0.8, 0.5, 0.2)
#: Words of an int32 sum for each word of results.
_SUM_WORDS = 4


@dataclass(frozen=True)
class Split:
    """By how much each dimension is divided; the product is the number of cores."""

    batch: int = 1
    pixels: int = 1
    outputs: int = 1
    inputs: int = 1

    @property
    def scheme(self) -> str:
        """`pixels2.outputs3`; `whole` for one core."""
        parts = [f"{name}{count}" for name, count in vars(self).items() if count > 1]
        return ".".join(parts) or "whole"


@cache
def splits(cores: int) -> tuple[Split, ...]:
    """Every way to divide at most two dimensions over exactly so many cores."""
    names = ("batch", "pixels", "outputs", "inputs")
    found = {Split(**{name: cores}) for name in names}
    for one in range(2, cores):
        if cores % one == 0:
            found |= {Split(**{a: one, b: cores // one}) for a in names for b in names if a != b}
    return tuple(sorted(found, key=lambda split: split.scheme))


@cache
def compiled(name: str, batch: int, platform: Platform, fixed: bool = False) -> Network:
    """One of `layer_tables.NAMES`, compiled by the closed form. `fixed`: cores share the feature map only, as in works
    before Layer-Puzzle (section III-A.2). Raises WorkloadError for other names."""
    versions = feature_map_versions if fixed else versions_of
    layers = (Layer(entry.shape.name, entry.macs, versions(entry, platform)) for entry in table(name, batch))
    return Network(name, batch, tuple(layers))


def feature_map_versions(entry: TableLayer, platform: Platform) -> tuple[Version, ...]:
    """A version for each number of cores that share the pixels."""
    found = (version_of(entry, Split(pixels=cores), platform) for cores in range(1, len(platform.cores) + 1))
    return tuple(version for version in found if version)


def versions_of(entry: TableLayer, platform: Platform) -> tuple[Version, ...]:
    """The versions of a layer that are on the Pareto front of speed-up and PE utilisation at one of LEVELS."""
    candidates = [
        [version for split in splits(cores) if (version := version_of(entry, split, platform))]
        for cores in range(1, len(platform.cores) + 1)
    ]
    kept: set[Version] = set()
    for level in LEVELS:
        best = [
            min(found, key=lambda version: (_at(version, platform, level), version.scheme))
            for found in candidates
            if found
        ]
        kept |= set(pareto([(_at(version, platform, level), version) for version in best]))
    return tuple(sorted(kept, key=lambda version: (version.cores, version.cycles, version.scheme)))


def pareto(timed: list[tuple[float, Version]]) -> list[Version]:
    """Of versions with their cycles: those to which no other is equal or better in both speed-up and PE utilisation.

    Utilisation is speed-up over cores, but for a factor, so the one that comes first with fewer cores and is no slower
    dominates: going up in cores, those remain that are faster than all before.
    """
    found: list[Version] = []
    best = float("inf")
    for cycles, version in sorted(timed, key=lambda pair: (pair[1].cores, pair[0], pair[1].scheme)):
        if cycles < best:
            best = cycles
            found.append(version)
    return found


def _at(version: Version, platform: Platform, level: float) -> float:
    """Cycles of a version when it gets a part of the bandwidth."""
    peak = level * min(platform.bandwidth, platform.link * version.cores)
    words = version.read + version.written
    return LATENCY + EXPOSED * words / peak + max(version.compute, (1 - EXPOSED) * words / peak)


def version_of(entry: TableLayer, split: Split, platform: Platform) -> Version | None:
    """A layer divided so; None if a dimension is smaller than what it is divided by."""
    work = _share(entry, split, platform)
    if work is None:
        return None
    compute, read, written = work
    cores = split.batch * split.pixels * split.outputs * split.inputs
    cycles = alone(platform, cores, compute, read + written)
    utilisation = entry.macs / (cores * platform.macs * cycles)
    return Version(cores, split.scheme, cycles, compute, read, written, utilisation)


def _share(entry: TableLayer, split: Split, platform: Platform) -> tuple[int, int, int] | None:
    """Cycles of the core with the largest share, and DRAM words that all read and write."""
    shape, lanes = entry.shape, platform.lanes
    side = round(platform.macs**0.5)
    images, pixels = shape.batch * entry.copies, shape.out_h * shape.out_w
    out_blocks, in_blocks = ceil(shape.out_channels / side), ceil(shape.in_channels / lanes)
    extents = (images, split.batch), (pixels, split.pixels), (out_blocks, split.outputs)
    if any(extent < parts for extent, parts in extents):
        return None
    if split.inputs > (1 if entry.depthwise else in_blocks):
        return None
    own_images, own_pixels = ceil(images / split.batch), ceil(pixels / split.pixels)
    own_out, own_in = ceil(out_blocks / split.outputs), ceil(in_blocks / split.inputs)
    taps = shape.kernel_h * shape.kernel_w
    band = own_images * _band(shape.in_h * shape.in_w, entry, split.pixels)
    channels = min(shape.out_channels, own_out * side)
    results = own_images * own_pixels * own_out
    if entry.depthwise:
        compute = results * shape.kernel_h * shape.stride_w + taps  # a column of the window in each cycle
        read = band * own_out + own_out * taps
    else:
        compute = own_images * ceil(own_pixels / side) * own_out * own_in * lanes * taps + 2 * side
        weights = channels * taps * own_in * min(entry.copies, own_images)
        read = band * own_in + weights
    compute += ceil(_SUM_WORDS * results * (split.inputs - 1) / split.inputs)
    cores = split.batch * split.pixels * split.outputs
    return compute, cores * split.inputs * read, cores * results


def _band(words: int, entry: TableLayer, parts: int) -> int:
    """Words of one channel block that a part of the pixels needs of an image: its rows, and what kernels overlap."""
    shape = entry.shape
    if parts == 1 or shape.in_h == 1:
        return ceil(words / parts)
    rows = (ceil(shape.out_h / parts) - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation + 1
    return min(shape.in_h, rows) * shape.in_w
