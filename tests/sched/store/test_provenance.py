"""What results that are kept are named after: every source that decides them."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from meshloom.sched.store import provenance
from meshloom.sched.store.provenance import executed, needed, of_file, of_files, of_files_stored, of_module
from meshloom.sched.store.store import Store

ROOT = Path(__file__).parents[3]

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
    result = {str(path.relative_to(tree)) for path in needed(tree, ["sched.a"])}
    assert result == set(FILES) - {"sched/types.py", "sched/beside.py"}


def test_every_source_that_is_needed_counts(tree: Path) -> None:
    before = of_files(tree, ["sched.a"])
    for name in FILES:
        (tree / name).write_text(FILES[name] + "changed = 1\n")
        changed = of_files(tree, ["sched.a"]) != before
        assert changed == (name not in ("sched/types.py", "sched/beside.py")), name
        (tree / name).write_text(FILES[name])
    assert of_files(tree, ["sched.a"]) == before
    with pytest.raises(ValueError, match=r"there is no module sched\.none"):
        of_files(tree, ["sched.none"])


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_digest_that_is_kept_holds_as_long_as_its_files(tree: Path, tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "store")
    before = of_files_stored(tree, ["sched.a"], store)
    assert of_files_stored(tree, ["sched.a"], store) == before == of_files(tree, ["sched.a"])
    (tree / name).write_text(FILES[name] + "changed = 1\n")
    assert of_files_stored(tree, ["sched.a"], store) == of_files(tree, ["sched.a"])


def test_a_file_that_comes_may_be_what_was_imported(tree: Path, tmp_path: Path) -> None:
    """`from .b import B` of the class is, from then on, of a module."""
    store = Store(tmp_path / "store")
    (tree / "sched/b.py").unlink()
    (tree / "sched/b").mkdir()
    (tree / "sched/b/__init__.py").write_text("B = 1\n")
    before = of_files_stored(tree, ["sched.a"], store)
    (tree / "sched/b/B.py").write_text("C = 1\n")
    assert of_files_stored(tree, ["sched.a"], store) == of_files(tree, ["sched.a"]) != before


def test_a_digest_that_is_kept_needs_no_reading(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    before = of_files_stored(tree, ["sched.a"], store)
    monkeypatch.setattr(provenance, "needed", lambda *_: pytest.fail("reads the sources again"))
    assert of_files_stored(tree, ["sched.a"], store) == before


@pytest.mark.parametrize(
    ("module", "decisive"),
    [
        (
            "sched.papers.flexer.search",
            ["papers/flexer/sets", "papers/flexer/turns", "mapping/tiling/problem", "mapping/play/estimate"],
        ),
        (
            "sched.papers.flexer.judge",
            ["papers/flexer/order", "ir/dependences", "model/timeline", "lowering/semaphores/lower", "ir/schedule"],
        ),
        ("sched.schedulers.loop_order.scheduler", ["mapping/memory/staging", "model/timeline"]),
    ],
)
def test_what_decides_a_search_is_part_of_its_name(module: str, decisive: list[str]) -> None:
    result = needed(ROOT, [module])
    assert {ROOT / "sched" / f"{name}.py" for name in decisive} < set(result)
    assert ROOT / "hw" / "spec" / "config.py" in result
    assert provenance.digest(module) == of_files(ROOT, [module])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"""Says."""\nx = 1\n', "x = 1\n"),
        ('def f():\n    """Says.\n\n    # more\n    """\n    return 1\n', "# why\ndef f():\n\n    return 1\n"),
        ("class C:\n    x = 1\n    'What it is.'\n\n    # why\n    y = 2\n", "class C:\n    x = 1\n    y = 2\n"),
    ],
)
def test_what_only_people_read_does_not_count(one: str, other: str) -> None:
    assert executed(one.encode()) == executed(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('x = """\n# one\n"""\n', 'x = """\n# other\n"""\n'),
        ("x = 'a\\\n# one'\n", "x = 'a\\\n# other'\n"),
        ("x = '# one'\n", "x = '# other'\n"),
        ("'doc'; x = 1\n", "'doc'; x = 2\n"),
        ("f('one')\n", "f('other')\n"),
        ("def f():\n    return 'one'\n", "def f():\n    return 'other'\n"),
        ("if x:\n    'doc'\n    y = 1\n", "if x:\n    'doc'\ny = 1\n"),
    ],
)
def test_what_is_executed_counts(one: str, other: str) -> None:
    assert executed(one.encode()) != executed(other.encode())


_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def _tokens(source: bytes) -> Iterator[tuple[tuple[int, int], str]]:
    """Where each token begins, and what it says, but for layout and comments."""
    for token in tokenize.tokenize(BytesIO(source).readline):
        if token.type not in _LAYOUT:
            yield token.start, token.string


@pytest.mark.parametrize("folder", ["hw", "sched/mapping", "sched/model"])
def test_no_token_is_lost(folder: str) -> None:
    """Of each file everything is left but texts that nobody reads, as Python's own tokenizer sees it."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_bytes()
        unread = {
            (node.lineno, node.col_offset)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        expected = [message for start, message in _tokens(source) if start not in unread]
        assert [message for _, message in _tokens(executed(source))] == expected, path


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (b"x = 1; 'text'\ny = 2", b"x = 1; 'text'\ny = 2"),
        (b"'text'; x = 1", b"'text'; x = 1"),
        (b"'''text\n# more'''\nx = 1  # one\n\n# two\n", b"x = 1  # one"),
        (b"x = '''\n# text'''", b"x = '''\n# text'''"),
    ],
)
def test_a_line_with_something_beside_a_text_stays(source: bytes, lines: bytes) -> None:
    assert executed(source) == lines


def test_files_of_others_with_what_lies_beside_them(tmp_path: Path) -> None:
    """Not what is installed or nobody imports; a mistake in the text is no error here."""
    texts = {
        "mine": "import numpy, json, helper\nfrom pack.one import x\n",
        "helper": "import deeper\n",
        "deeper": "",
        "pack/one": "from . import two\n",
        "pack/two": "",
    }
    (tmp_path / "pack").mkdir()
    for name in (*texts, "other", "json"):
        (tmp_path / f"{name}.py").write_text(texts.get(name, ""))
    digests = [of_file(tmp_path / "mine.py")]
    for name in ("other", "json"):
        (tmp_path / f"{name}.py").write_text("changed = 1\n")
        assert of_file(tmp_path / "mine.py") == digests[0]
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(f"{text}changed = 1\n")
        digests.append(of_file(tmp_path / "mine.py"))
    (tmp_path / "deeper.py").write_text("what is that?\n")
    digests.append(of_file(tmp_path / "mine.py"))
    assert len(set(digests)) == len(digests)


def test_modules_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they import from their package, by its name or relative to them."""
    texts = {"__init__": "from .one import x\n", "one": "import provided.two\nx = 1\n", "two": "", "three": ""}
    (tmp_path / "provided").mkdir()
    for name, text in texts.items():
        (tmp_path / "provided" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    digests = [of_module("provided")]
    for name in ("__init__", "one", "two"):
        (tmp_path / "provided" / f"{name}.py").write_text(f"{texts[name]}changed = 1\n")
        digests.append(of_module("provided"))
    assert len(set(digests)) == 4
    inner = of_module("provided.one")
    (tmp_path / "provided" / "three.py").write_text("changed = 1\n")
    assert (of_module("provided"), of_module("provided.one")) == (digests[-1], inner)
    for name in ("nowhere_at_all", "provided.four", "sys"):
        with pytest.raises(ValueError, match=f"module {name} has no file"):
            of_module(name)
