"""The networks of a scenario, compiled: templates for the chip, versions for schedulers, and what they are fed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.sched.lowering.templates.compiling import template_cache
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.template import Template
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.online.interface import Layer, Network, Version
from meshloom.sched.schedulers.online.versions import compiled
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.scenario import FileReading, Scenario

from ...inputs.sources import NetworkSource, feeds, load, pictures

OnProgress = Callable[[str], None]
#: How many compiled networks a process keeps; large ones take some 100 MB each.
_MOST = 10
Arrays = dict[str, NDArray[np.int8]]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A network for one batch size. `network`: as schedulers see it; `templates`: of each layer by version; `pages`: of
    an instance's window: `code_page` of them, then the code of the layer that runs, and of its successor."""

    source: NetworkSource
    served: ServedNetwork
    network: Network
    templates: tuple[Mapping[Version, Template], ...]
    pages: int

    @property
    def code_page(self) -> int:
        return self.served.code_page

    def code_page_of(self, layer: int) -> int:
        """Where the code of a layer begins: that of the next one is written while the layer runs."""
        return self.code_page + layer % 2 * ((self.pages - self.code_page) // 2)

    def inputs(self, instance: int) -> list[Arrays]:
        """What instance number `instance` works on, for each image of its batch: stored pictures in turn, or stored
        arrays, each time rotated by another channel; a file of the user's works on random bytes."""
        graph, batch = self.served.graph, self.network.batch
        first = instance * batch
        stored = pictures(self.source.name) if not self.source.name.endswith(".onnx") else ()
        if stored:
            paths = [stored[(first + image) % len(stored)] for image in range(batch)]
            source = NetworkSource(self.source.name, tuple(paths))
            return [feed.arrays for feed in feeds(source, graph)]
        if self.source.name.endswith(".onnx"):
            random = np.random.default_rng(first)
            return [
                {each.name: random.integers(-128, 128, each.shape, np.int8) for each in graph.inputs}
                for _ in range(batch)
            ]
        (feed,) = feeds(self.source, graph)
        return [
            {name: np.roll(array, first + image, axis=1) for name, array in feed.arrays.items()}
            for image in range(batch)
        ]


#: Those that were asked for last: who serves one scenario after the other reads and decodes each network once.
_latest: OrderedDict[tuple[str, int, str, str], Compiled] = OrderedDict()


def compile_networks(
    scenario: Scenario, chip: ChipConfig, on_progress: OnProgress, schemes: str = "all"
) -> dict[tuple[str, int], Compiled]:
    """Every network and batch size of a scenario, from the store if it has been compiled before; float models are
    quantised, with drawn numbers if the scenario names no files. `schemes`: see `versions.compiled`.

    Raises WorkloadError and its kin for a network that is unknown, or cannot be computed or held by the chip.
    """
    compilations: dict[tuple[str, int], Compiled] = {}
    for name, batch in scenario.networks:
        reading = scenario.readings.get(name, FileReading())
        source = NetworkSource(name, calibration=reading.calibration, bind=reading.bind)
        graph, key = load(source), (name, batch, chip.digest, schemes)
        compilation = _latest.pop(key, None)
        if compilation is None or compilation.served.graph is not graph:  # a file may have changed
            compilation = _compile(source, graph, batch, chip, schemes, on_progress)
        compilations[name, batch] = _latest[key] = compilation
        while len(_latest) > _MOST:
            _latest.popitem(last=False)
    return compilations


def _compile(
    source: NetworkSource, graph: Graph, batch: int, chip: ChipConfig, schemes: str, on_progress: OnProgress
) -> Compiled:
    """One of them, from the store or anew. Raises as `compile_networks` does."""
    memory = template_cache(SCHEDULES.folder(), chip)
    try:
        net = ServedNetwork(graph, chip, batch)
    except (WorkloadError, DoesNotFit) as error:
        raise type(error)(f"network {source.title}, batch {batch}: {error}") from error
    layers: list[Layer] = []
    templates: list[dict[Version, Template]] = []
    words = 0
    for index, stage in enumerate(net.stages):
        on_progress(f"compiling {source.title} x{batch}: {stage.y} ({index + 1} of {len(net.stages)})")
        result = compiled(net, index, memory, kind=schemes)
        words = max(words, *(template.code_words for template in result))
        templates.append({_version(template): template for template in result})
        versions = tuple(sorted(templates[-1], key=lambda version: (version.cores, version.scheme)))
        layers.append(Layer(stage.y, result[0].measures.macs, versions))
    network = Network(source.title, batch, tuple(layers))
    pages = net.code_page + 2 * -(-words // PAGE_WORDS)
    return Compiled(source, net, network, tuple(templates), pages)


def _version(template: Template) -> Version:
    measures = template.measures
    scheme, cores = str(template.scheme), len(template.cores)
    return Version(
        cores, scheme, measures.cycles, measures.compute, measures.read, measures.written, measures.utilisation
    )
