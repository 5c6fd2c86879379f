"""One change of a source: `python target.py FILE SEED`, in a process that has Cosmic Ray. Prints it as JSON.

A place is drawn among all that can be changed, then one of its changes: a place with many of them weighs no more.
Types, texts and what is only for type checkers are no places, since a change there changes nothing. To Cosmic Ray's
operators come two that gateware needs: a statement that adds to a domain is left out, and a condition of `m.If` is
turned round.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

# in an environment of its own, so nothing is known of their types
tree: Any = import_module("parso.python.tree")
syntax: Any = import_module("cosmic_ray.ast")
mutating: Any = import_module("cosmic_ray.mutating")
plugins: Any = import_module("cosmic_ray.plugins")

#: Changes that look like a mistake that somebody could make, by the names that Cosmic Ray gives them.
OPERATORS = (
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceBinaryOperator_BitOr_BitAnd", "ReplaceBinaryOperator_BitXor_BitOr", "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_LShift_RShift", "ReplaceBinaryOperator_Mod_FloorDiv", "ReplaceBinaryOperator_Mul_Add",
    "ReplaceBinaryOperator_RShift_LShift", "ReplaceBinaryOperator_Sub_Add", "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_GtE_Gt", "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_Gt_LtE", "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is", "ReplaceComparisonOperator_LtE_Gt", "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_GtE", "ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak", "ReplaceFalseWithTrue", "ReplaceOrWithAnd", "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Invert", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)  # fmt: skip
#: Statements of Amaranth that have a condition.
CONDITIONS = ("If", "Elif", "While")

Position = tuple[int, int]
Span = tuple[Position, Position]


class LeaveOut:
    """Leaves out a statement that adds to something: `m.d.sync += level.eq(0)`."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Where it can be applied."""
        if node.type == "expr_stmt" and getattr(node.children[1], "value", "") == "+=":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The node instead."""
        return tree.Keyword("pass", node.start_pos, node.get_first_leaf().prefix)


class TurnRound:
    """Turns a condition of gateware round: `m.If(full)` becomes `m.If(~(full).bool())`."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Where it can be applied."""
        if node.type == "trailer" and len(node.children) == 3 and node.children[0].value == "(":
            before = node.get_previous_leaf()
            if before.value in CONDITIONS and before.get_previous_leaf().value == ".":
                yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The node instead."""
        inside = node.children[1].get_code().strip()
        node.children[1] = tree.Name(f"~(({inside}).bool())", node.children[1].start_pos)
        return node


def operators() -> dict[str, Any]:
    """All operators by name."""
    return {name: plugins.get_operator(f"core/{name}")() for name in OPERATORS} | {
        "LeaveOut": LeaveOut(), "TurnRound": TurnRound()
    }  # fmt: skip


def _spans(nodes: Iterable[ast.AST | None]) -> list[Span]:
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.expr | ast.stmt)
    ]


def without_effect(source: str) -> list[Span]:
    """Where a change changes nothing: types, and what only type checkers read."""
    spans: list[Span] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            spans += _spans([node.returns])
        elif isinstance(node, ast.arg | ast.AnnAssign):
            spans += _spans([node.annotation])
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            spans += _spans([node])
    return spans


def places(source: str) -> dict[Position, list[tuple[str, int]]]:
    """The changes of a source by the place where they begin: operator, and which of its occurrences."""
    parsed: Any = syntax.get_ast(source)
    idle = without_effect(source)
    result: dict[Position, list[tuple[str, int]]] = {}
    for name, operator in operators().items():
        occurrence = 0
        for node in syntax.ast_nodes(parsed):
            for begin, _ in operator.mutation_positions(node):
                if not any(first <= begin < last for first, last in idle):
                    result.setdefault(begin, []).append((name, occurrence))
                occurrence += 1
    return dict(sorted(result.items()))


def _differs(source: str, changed: str) -> bool:
    """Whether a change is one: neither another spelling, nor no Python any more, as a signature whose star is added."""
    try:
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def main(file: str, seed: str) -> None:
    """Prints a change that is drawn, or null if the file has none."""
    source = Path(file).read_text(encoding="utf-8")
    rng, choices = random.Random(seed), places(source)
    while choices:
        begin = rng.choice(list(choices))
        name, occurrence = rng.choice(choices.pop(begin))
        changed: str | None = mutating.mutate_code(source, operators()[name], occurrence)
        if changed is None or not _differs(source, changed):
            continue
        pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
        line, (before, after) = next((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        change = {"operator": name, "line": line, "before": before.strip(), "after": after.strip(), "source": changed}
        print(json.dumps(change))
        return
    print("null")


if __name__ == "__main__":
    main(*sys.argv[1:])
