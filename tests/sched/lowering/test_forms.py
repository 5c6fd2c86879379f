"""Stages of one form: compiled once, and word for word what each would be by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.sched.lowering.templates import compiling
from meshloom.sched.lowering.templates.compiling import compile_stage, template_cache
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import Scheme, schemes
from meshloom.sched.lowering.templates.template import Template
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.program.program import ProgramError
from meshloom.sched.schedulers.online import versions
from meshloom.sched.workload.graph import By, Graph, Layer, Value

from ..network_graphs import Grower, attention, every_kind, square
from .test_serving_templates import served_chip

SIZE, CHANNELS = 12, 24


def blocks(count: int = 3) -> Graph:
    """Residual blocks: two convolutions, the second with the addition, and a depthwise one; scales differ."""
    g = Grower(5, Value("input", CHANNELS, SIZE, SIZE))
    x = g.conv("stem", "input", CHANNELS, square(1), relu=True)
    for number in range(count):
        y = g.conv(f"first{number}", x, CHANNELS, square(3, pad=1), relu=True)
        y = g.conv(f"second{number}", y, CHANNELS, square(1))
        y = g.depthwise(f"third{number}", g.add(f"sum{number}", y, x, relu=True), square(3, pad=1), relu=True)
        x = y
    g.layers = [
        replace(layer, scale=layer.scale + at) if layer.kind != "add" else layer for at, layer in enumerate(g.layers)
    ]
    return g.graph("blocks", x)


@pytest.mark.parametrize("cores", [1, 3, 4])
def test_stages_of_one_form_are_compiled_once(cores: int, monkeypatch: pytest.MonkeyPatch):
    net = ServedNetwork(blocks(), served_chip(), 2)
    forms = [net.form(index) for index in range(len(net.stages))]
    assert len(set(forms)) < len(forms)
    memory = template_cache(None, net.chip)
    played: list[int] = []
    play = compiling.play
    monkeypatch.setattr(compiling, "play", lambda *given: (played.append(1), play(*given))[1])
    result, request = {}, set()
    for index, shape in enumerate(net.shapes):
        for scheme in schemes(shape, cores)[:4]:
            result[index, scheme] = compile_stage(net, index, scheme, memory)
            request.add((forms[index], scheme))
    assert len(played) == len(request) < len(result)
    for (index, scheme), template in result.items():
        assert vars(template) == vars(compile_stage(net, index, scheme)), net.stages[index].y


def gates(count: int = 2) -> Graph:
    """Gates, each way to normalise, transposes and products, one after another; scales differ."""
    g = Grower(5, Value("input", 16, 1, 16))
    x = "input"
    for number in range(count):
        y = g.mul(f"gate{number}", g.table(f"function{number}", x), x, 500 + 77 * number)
        ways: tuple[tuple[By, int], ...] = ("max", 0), ("mean", 2500), ("sum", 9000), ("root", 4000)
        for way, scale in ways:
            y = g.take(Layer("normalise", f"{way}{number}", (y,), by=way, scale=scale and scale + number))
        turned = g.take(Layer("transpose", f"turned{number}", (y,)))
        x = g.take(Layer("product", f"product{number}", (turned, y), scale=900 + number))
    return g.graph("gates", x)


@pytest.mark.parametrize("batch", [1, 3])
def test_stages_of_the_vector_unit_and_products_of_one_form(batch: int):
    net = ServedNetwork(gates(), served_chip(), batch)
    assert len({net.form(index) for index in range(len(net.stages))}) <= len(net.stages) // 2 + 1
    memory = template_cache(None, net.chip)
    for index, shape in enumerate(net.shapes):
        for scheme in schemes(shape, 2)[:2]:
            template = compile_stage(net, index, scheme, memory)
            assert vars(template) == vars(compile_stage(net, index, scheme)), net.stages[index].y


@pytest.mark.parametrize("graph", [every_kind(size=10), attention(heads=3, depth=5)], ids=lambda graph: graph.name)
def test_products_of_stages_are_those_of_the_network(graph: Graph):
    """Lanes without a channel do not count, and images do."""
    net = ServedNetwork(graph, served_chip(), 3)
    macs = {stage.layer.output: shape.macs for stage, shape in zip(net.stages, net.shapes, strict=True) if shape.matrix}
    assert macs == {each.output: 3 * graph.macs(each) for each in graph.layers if each.kind in ("conv", "product")}


@pytest.mark.parametrize("error", [DoesNotFit("no room"), ProgramError("99 semaphores")])
def test_schemes_that_no_core_or_program_has_room_for_are_left_out(error: Exception, monkeypatch: pytest.MonkeyPatch):
    net = ServedNetwork(blocks(1), served_chip(), 1)
    every = versions.compiled(net, 1)
    least = every[0].scheme

    def single(net: ServedNetwork, index: int, scheme: Scheme, memory: object) -> Template:
        if scheme != least:
            raise error
        return compile_stage(net, index, scheme)

    monkeypatch.setattr(versions, "compile_stage", single)
    assert [each.scheme for each in versions.compiled(net, 1)] == [least] != [each.scheme for each in every]
    least = Scheme(batch=9)
    with pytest.raises(DoesNotFit, match=f"blocks/first0: {error}"):
        versions.compiled(net, 1)


def test_what_differs_is_another_form():
    """Other shapes, other ends of a layer, and operands that are one array."""
    g = Grower(6, Value("input", CHANNELS, SIZE, SIZE))
    a = g.conv("a", "input", CHANNELS, square(1))
    g.conv("b", a, CHANNELS, square(1))
    g.conv("c", "b", CHANNELS, square(1), relu=True)
    g.conv("d", "c", CHANNELS, square(3, pad=1))
    g.add("e", g.conv("e0", "d", CHANNELS, square(1)), "c")
    g.add("f", g.conv("f0", "e", CHANNELS, square(1)), "e")
    net = ServedNetwork(g.graph("others", "f"), served_chip(), 1)
    by_name = {stage.y: net.form(index) for index, stage in enumerate(net.stages)}
    assert by_name["a"] == by_name["b"]
    assert len(set(by_name.values())) == len(by_name) - 1
