"""The wait-for graph of a hang, and its cycle as a sentence.

The checker builds it for programs that would hang, the bench from the reports of a hung chip's tiles.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Waiting(Generic[K]):
    """A node: `who` is blocked, what it `waits` for ("waits for semaphore 5 ..."), and for each node that would unblock
    it by advancing, how ("which core@(2,0) matrix stream [7] GEMM tag 60 posts")."""

    who: str
    waits: str
    helped_by: Mapping[K, str]


def cycle_of(graph: Mapping[K, Waiting[K]]) -> list[K]:
    """Some cycle of the graph, as its nodes in order; empty when there is none."""
    done: set[K] = set()
    for root in graph:
        path: list[K] = []
        stack = [(root, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                path.append(node)
            targets = _targets(graph, node)
            while index < len(targets) and targets[index] in done:
                index += 1
            if index == len(targets):
                done.add(node)
                path.pop()
                continue
            target = targets[index]
            if target in path:
                return path[path.index(target) :]
            stack.append((node, index + 1))
            stack.append((target, 0))
    return []


def ends_of(graph: Mapping[K, Waiting[K]]) -> list[K]:
    """The nodes that no other node can unblock: the causes of a hang without a cycle."""
    return [node for node in graph if not _targets(graph, node)]


def in_words(graph: Mapping[K, Waiting[K]], path: list[K], closed: bool) -> str:
    """A path through the graph as one sentence; `closed`: the last node waits for the first."""
    parts: list[str] = []
    for at, node in enumerate(path):
        here = graph[node]
        then = path[(at + 1) % len(path)] if closed or at + 1 < len(path) else None
        how = f", {here.helped_by[then]}" if then is not None else ""
        parts.append(f"{here.who} {here.waits}{how}")
    return "; ".join(parts) + (", closing the cycle" if closed else "")


def _targets(graph: Mapping[K, Waiting[K]], node: K) -> list[K]:
    return [target for target in graph[node].helped_by if target in graph]
