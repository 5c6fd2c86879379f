"""Looks inside gateware: its registers by name, and the words of its memories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth.hdl import Fragment, Module, Signal, Value
from amaranth.lib.memory import Memory

from .engine import ProveError


def elaborated(component: Any) -> Module:
    """The module of a component, elaborated now; used as a submodule later, the component is just this module."""
    module = component.elaborate(None)
    _replace(component, module)
    return module


def _replace(component: Any, elaboration: Any) -> None:
    """Lets a component elaborate to what it has been elaborated to before."""

    def elaborate(platform: Any) -> Any:
        return elaboration

    component.elaborate = elaborate


def _is_memory(thing: object) -> bool:
    """Not inline: there it would narrow the type to a Memory of unknown words."""
    return isinstance(thing, Memory)


class Inside:
    """The inner signals of `component`, which is elaborated now; it can then be used as a submodule once.

    Signals of a submodule are named `<submodule>.<signal>`, at any depth. `memories`: submodules that are a memory or
    keep one in `storage`, or as `<submodule>.<memory>`, whose words (all of them) are asked for; each word gets a read
    port of its own, which leaves what the memory does as it is. Raises ProveError, here and in the methods, for a name
    that does not exist.
    """

    def __init__(self, component: Any, memories: Sequence[str] = ()) -> None:
        self._name = type(component).__name__
        module: Module = component.elaborate(None)
        self._rows: dict[str, list[Value]] = {}
        missing: list[str] = []
        for name in memories:
            owner, _, of = name.partition(".")
            part: Any = getattr(module.submodules, owner, None)
            memory: Any = part if _is_memory(part) else getattr(part, of or "storage", None)
            if part is not None and memory is None:  # the library's queues have it once they are elaborated
                memory = getattr(elaborated(part).submodules, "storage", None)
            if not _is_memory(memory):
                missing.append(name)
                continue
            self._rows[name] = [_row(module, memory, row) for row in range(memory.depth)]
        fragment = _fragment(module)
        if missing:
            raise ProveError(f"{self._name} has no memory {missing[0]!r}")
        self._signals: dict[str, list[Signal]] = {}
        #: All registers, without the memories.
        self.registers: list[Signal] = []
        self._collect(fragment, "")
        _replace(component, fragment)

    def _collect(self, fragment: Any, prefix: str) -> None:
        """Names the signals that a fragment and those in it drive."""
        driven = {id(signal): signal for part in fragment.statements.values() for signal in _driven(part)}
        for signal in driven.values():
            self._signals.setdefault(prefix + signal.name, []).append(signal)
        clocked = [part for domain, part in fragment.statements.items() if domain != "comb"]
        self.registers += {id(signal): signal for part in clocked for signal in _driven(part)}.values()
        for inner, name, *_ in fragment.subfragments:
            self._collect(inner, f"{prefix}{name}.")

    def __getitem__(self, name: str) -> Signal:
        """The signal of this name."""
        signals = self._signals.get(name, [])
        if len(signals) != 1:
            near = ", ".join(sorted(self._signals)[:20])
            raise ProveError(f"{self._name} has {len(signals)} signals {name!r}; it has {near}, ...")
        return signals[0]

    def has(self, name: str) -> bool:
        """Whether there is a signal of this name."""
        return name in self._signals

    def rows(self, name: str) -> list[Value]:
        """The words of a memory."""
        return self._rows[name]


def _fragment(module: Module) -> Any:
    """What a module is made of; the stubs say nothing of it."""
    value: Any = Fragment
    return value.get(module, None)


def _row(module: Module, memory: Any, row: int) -> Value:
    port = memory.read_port(domain="comb")
    module.d.comb += port.addr.eq(row)
    return Value.cast(port.data)


def _driven(statements: Sequence[Any]) -> Iterator[Signal]:
    """The signals that statements assign to."""
    for statement in statements:
        if hasattr(statement, "lhs"):
            yield from _signals(statement.lhs)
        for case in getattr(statement, "cases", ()):
            yield from _driven(case[1])


def _signals(target: Any) -> Iterator[Signal]:
    if isinstance(target, Signal):
        yield target
    elif hasattr(target, "parts"):
        for part in target.parts:
            yield from _signals(part)
    elif hasattr(target, "value"):
        yield from _signals(target.value)
