"""Descriptions take values as what they look like, however deep, read from Python, TOML or JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from meshloom.hw.spec.exact import Exact


class Kind(StrEnum):
    ONE = "one"


class Part(Exact):
    at: Annotated[int, Field(ge=0)] = 0


class Whole(Exact):
    count: int = 0
    share: float = 0.0
    on: bool = False
    name: str = ""
    kind: Kind = Kind.ONE
    way: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = ()
    maybe: Annotated[int, Field(ge=1)] | None = None
    parts: tuple[Part, ...] = ()
    table: dict[str, list[float]] = {}


GOOD: dict[str, Any] = {
    "count": 3, "share": 2, "on": True, "name": "x", "kind": "one", "way": "b", "sizes": [1, 2], "maybe": 5,
    "parts": [{"at": 1}], "table": {"x": [1, 2.5]},
}  # fmt: skip
BAD = [
    *[("count", value) for value in (True, "3", 3.0, None, [3])],
    *[("share", value) for value in (True, "3", None)],
    *[("on", value) for value in (1, 0, "yes", "true", None)],
    *[("name", value) for value in (1, True, None)],
    *[("sizes", value) for value in ([True], ["1"], [1.0], "12")],
    *[("maybe", value) for value in (True, "3", 3.0)],
    *[("parts", [{"at": value}]) for value in (True, "3", 3.0)],
    *[("table", {"x": [value]}) for value in (True, "3")],
]


def test_what_is_right_is_taken() -> None:
    import json

    assert Whole.model_validate(GOOD) == Whole.model_validate_json(json.dumps(GOOD))
    assert Whole.model_validate(GOOD).share == 2.0


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_is_something_else_is_not(name: str, value: Any) -> None:
    import json

    with pytest.raises(ValidationError):
        Whole.model_validate(GOOD | {name: value})
    with pytest.raises(ValidationError):
        Whole.model_validate_json(json.dumps(GOOD | {name: value}))


def test_all_that_is_read_from_files_is_exact() -> None:
    """Every model that is not a scheduler's options, which come as text from the command line."""
    import ast
    from pathlib import Path

    import meshloom.hw

    root = Path(meshloom.hw.__file__).parents[1]
    plain = {
        f"{path.relative_to(root).as_posix()}:{node.name}"
        for folder in ("hw", "sched", "tb")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "BaseModel" for base in node.bases)
    }
    assert plain == {
        "hw/spec/exact.py:Exact",
        "sched/schedulers/interface.py:Options",
        "sched/papers/dtt/search.py:_Choice",  # of the cache, whose entries carry a digest
    }
