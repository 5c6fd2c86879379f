"""What results that are kept are named after: every source that decides them."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.sched.store import provenance
from meshloom.sched.store.provenance import needed, of_files

ROOT = Path(__file__).parents[2]

FILES = {
    "sched/__init__.py": "",
    "sched/a.py": "if TYPE_CHECKING:\n    from .types import Only\nfrom .b import B\n",
    "sched/b.py": "def late():\n    try:\n        import meshloom.hw.c\n    except ImportError:\n        pass\n",
    "sched/types.py": "",
    "sched/beside.py": "",
    "hw/__init__.py": "import numpy as np\n",
    "hw/c.py": "import os.path\nfrom meshloom.sched import d\nfrom .deep import e\n",
    "hw/deep/__init__.py": "",
    "hw/deep/e.py": "from ...sched.d import D\n",
    "sched/d.py": "match 1:\n    case 1:\n        from . import f\n",
    "sched/f.py": "from .a import A\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_imports_are_followed_wherever_they_stand(tree: Path) -> None:
    """In functions, under `try` and `match`, relative and absolute, in circles; not those for types only."""
    found = {str(path.relative_to(tree)) for path in needed(tree, ["sched.a"])}
    assert found == set(FILES) - {"sched/types.py", "sched/beside.py"}


def test_every_source_that_is_needed_counts(tree: Path) -> None:
    before = of_files(tree, ["sched.a"])
    for name in FILES:
        (tree / name).write_text(FILES[name] + "# changed\n")
        changed = of_files(tree, ["sched.a"]) != before
        assert changed == (name not in ("sched/types.py", "sched/beside.py")), name
        (tree / name).write_text(FILES[name])
    assert of_files(tree, ["sched.a"]) == before
    with pytest.raises(ValueError, match=r"there is no module sched\.none"):
        of_files(tree, ["sched.none"])


@pytest.mark.parametrize(
    ("module", "decisive"),
    [
        (
            "sched.schedulers.flexer.search",
            ["schedulers/flexer/sets", "schedulers/flexer/turns", "mapping/problem", "mapping/estimate"],
        ),
        (
            "sched.schedulers.flexer.judge",
            ["schedulers/flexer/order", "ir/dependences", "model/timeline", "lowering/semaphores/lower", "ir/schedule"],
        ),
        ("sched.schedulers.loop_order.scheduler", ["mapping/staging", "model/timeline"]),
    ],
)
def test_what_decides_a_search_is_part_of_its_name(module: str, decisive: list[str]) -> None:
    found = needed(ROOT, [module])
    assert {ROOT / "sched" / f"{name}.py" for name in decisive} < set(found)
    assert ROOT / "hw" / "config.py" in found
    assert provenance.digest(module) == of_files(ROOT, [module])
