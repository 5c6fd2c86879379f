"""Modules from files: what lies beside each, and what is loaded again."""

from __future__ import annotations

import sys
from math import e
from pathlib import Path

import pytest

from meshloom.sched.support import file_modules
from meshloom.sched.support.file_modules import load


def written(folder: Path, **texts: str) -> Path:
    """The file `s.py` of a folder with these modules; `a__b` is `a/b.py`."""
    for name, text in texts.items():
        path = (
            folder / f"{name.replace('__', '/', 1) if not name.endswith('__init__') else name[:-10] + '/__init__'}.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "s.py"


def test_each_file_has_what_lies_beside_it(tmp_path: Path) -> None:
    """Also what that imports, and what is only imported when it runs."""
    text = "from helper import N\ndef late():\n    import later\n    return later.N\n"
    first, second = (
        load(written(tmp_path / name, s=text, helper="import deeper\nN = deeper.N\n", deeper=f"N = {n}\n",
                     later=f"N = {10 * n}\n"))
        for n, name in enumerate("ab", 1)
    )  # fmt: skip
    assert (first.N, second.N) == (1, 2)
    assert (second.late(), first.late()) == (20, 10)
    assert {"helper", "deeper", "later"}.isdisjoint(sys.modules)


def test_packages_beside_a_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        s="import pack.one\nfrom pack.one import *\nfrom pack import two, N\nimport pack.two as other\n"
        "from bare import three\nresult = pack.one.N, two.N, N, ONE, other.N, three.N\n",
        pack____init__="N = 0\n",
        pack__one="from . import two\nfrom beside import B\nN, ONE = two.N + B, 1\n",
        pack__two="N = 2\n",
        bare__three="N = 3\n",
        beside="B = 40\n",
    )
    assert load(path).result == (42, 2, 0, 1, 2, 3)


def test_relative_imports_and_what_looks_up_modules(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom pydantic import BaseModel\n"
    path = written(
        tmp_path,
        s="from .helper import Options, Pair\nfrom . import other\nresult = Options(pair=Pair(1)).pair.n, other.N\n",
        helper=f"{text}@dataclass\nclass Pair:\n    n: int\nclass Options(BaseModel):\n    pair: Pair\n",
        other="N = 2\n",
    )
    assert load(path).result == (1, 2)


def test_odd_names(tmp_path: Path) -> None:
    folder = tmp_path / "a folder.of mine"
    written(folder, helper="N = 1\n")
    (folder / "my.own-one.py").write_text("from helper import N\n")
    assert load(folder / "my.own-one.py").N == 1


def test_what_is_never_hidden(tmp_path: Path) -> None:
    """Nor is what is installed by a folder that is no package."""
    path = written(
        tmp_path,
        s="import random, meshloom.hw.spec.isa, numpy as np, polars\nresult = random.random() < 1, polars.WHO, np.e\n",
        numpy__data="N = 1\n",
        random="raise SystemExit('not this one')\n",
        meshloom="raise SystemExit('not this one')\n",
        polars="WHO = 'mine'\n",
    )
    assert load(path).result == (True, "mine", e)


def test_what_is_loaded_again(tmp_path: Path) -> None:
    path = written(tmp_path, s="from helper import N\n", helper="N = 1\n")
    first = load(path)
    assert load(path) is first
    (tmp_path / "helper.py").write_text("N = 2\n")
    assert (load(path).N, first.N) == (2, 1)
    (tmp_path / "helper.py").unlink()
    with pytest.raises(ModuleNotFoundError, match="No module named 'helper'"):
        load(path)
    written(tmp_path, helper="N = 3\n")
    assert load(path).N == 3, "nothing is left of the one that failed"


def test_what_is_not_there(tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(ImportError, match="cannot import name 'M'"):
        load(written(tmp_path, s="from helper import M\n", helper="N = 1\n"))
    with pytest.raises(ModuleNotFoundError, match="No module named 'nothing'"):
        load(written(tmp_path, s="import nothing\n"))
    assert set(sys.modules) == before, "nothing is left of what failed"


def test_names_of_their_modules(tmp_path: Path) -> None:
    name = load(written(tmp_path, s="N = 1\n")).__name__
    assert file_modules.is_of_file(name)
    assert not file_modules.is_of_file(__name__)
