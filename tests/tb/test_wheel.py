"""A wheel brings the timeline model compiled: whoever installs it needs no compiler. It is the same wherever it is
built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from meshloom.sched.model import native
from meshloom.sched.store import cache

ROOT = Path(__file__).parents[2]
#: What a wheel is made of.
SOURCES = ("hw", "sched", "tb", "meshloom", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources elsewhere, where a build may leave what it likes."""
    return copied(tmp_path_factory.mktemp("tree"))


def copied(place: Path) -> Path:
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place / name)
    return place


def test_what_a_wheel_has_brought_serves_where_nothing_can_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = native.ready()
    assert compiled is not None
    shutil.copytree(compiled, tmp_path / "brought" / compiled.name)
    monkeypatch.setattr(native, "COMPILED", tmp_path / "brought")
    monkeypatch.setattr(cache, "checkout", lambda: None)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "no-compiler")
    place = native.ready()
    assert place is not None
    assert place.is_relative_to(tmp_path / "cache")
    assert {path.name for path in place.iterdir()} == {path.name for path in compiled.iterdir()}


def wheel(tree: Path, compiled: Path | None, **variables: str) -> Path:
    environment = {name: value for name, value in os.environ.items() if name != "MESHLOOM_COMPILED"} | variables
    if compiled is not None:
        environment["MESHLOOM_COMPILED"] = str(compiled)
    shutil.rmtree(tree / "build", ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True)
    (path,) = (tree / "dist").glob("*.whl")
    return path.rename(tree / path.name)


@pytest.mark.slow
def test_a_wheel_with_the_compiled_model_needs_no_compiler(tree: Path, tmp_path: Path) -> None:
    compiled = native.ready()
    assert compiled is not None
    path = wheel(tree, compiled)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-linux_" in path.name
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "site")
    check = (
        "from meshloom.sched.model import native; import meshloom; "
        "assert meshloom.__file__.startswith(sys.argv[1]), meshloom.__file__; "
        "assert native.ready() is not None and native.compiled()"
    )
    packages = sysconfig.get_path("purelib")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), packages)),
        "MESHLOOM_CACHE": str(tmp_path / "cache"),
        "CC": "no-compiler",
    }
    # without `site`, which would find this checkout: it is installed here, editable
    command = [sys.executable, "-S", "-c", f"import sys; {check}", str(tmp_path / "site")]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_one_without_is_for_every_python(tree: Path) -> None:
    path = wheel(tree, None)
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]


def compiled_at(place: Path, seed: str) -> Path:
    """Two modules of the model, compiled in a folder of its own with other hashes of strings."""
    model, temporary = place / "sched" / "model", place / "temporary"
    model.mkdir(parents=True)
    temporary.mkdir()
    for path in (ROOT / "sched").iterdir():
        if path.name != "model":
            (model.parent / path.name).symlink_to(path)
    for name in ("__init__.py", "clock.py", "flow.py"):
        shutil.copy(native.MODEL / name, model / name)
    script = (
        "import sys; from pathlib import Path; from meshloom.sched.model.native import build; build(Path(sys.argv[1]))"
    )
    variables = {"TMPDIR": str(temporary), "PYTHONHASHSEED": seed}
    subprocess.run([sys.executable, "-c", script, str(model)], env=os.environ | variables, check=True)
    (home,) = (model / "native").glob("cpython-*")
    return home


@pytest.mark.slow
def test_compiled_code_is_the_same_wherever_it_is_compiled(tmp_path: Path) -> None:
    one, other = compiled_at(tmp_path / "one", "1"), compiled_at(tmp_path / "a_longer_name" / "other", "2")
    names = [path.name for path in one.glob("*.so")]
    assert len(names) == 3
    for name in names:
        content = (one / name).read_bytes()
        assert content == (other / name).read_bytes(), name
        assert str(tmp_path).encode() not in content


@pytest.mark.slow
def test_it_is_the_same_bytes_wherever_and_whenever_it_is_built(tree: Path, tmp_path: Path) -> None:
    """The second tree and its model have files of other dates, and others may not read them."""
    compiled = native.ready()
    assert compiled is not None
    first = wheel(tree, compiled, PYTHONHASHSEED="1")
    later, again = copied(tmp_path / "a longer name" / "tree"), tmp_path / compiled.name
    shutil.copytree(compiled, again)
    manifest = again / "manifest.json"  # as if it had been made at another time
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"made": "0" * 32}))
    for folder in (later, again):
        for path in (path for path in folder.rglob("*") if path.is_file()):
            os.utime(path, (1_000_000_000, 1_000_000_000))
            path.chmod(0o600)
    before = os.umask(0o077)
    try:
        second = wheel(later, again, PYTHONHASHSEED="2")
    finally:
        os.umask(before)
    assert second.name == first.name
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        for mine, yours in zip(one.infolist(), other.infolist(), strict=True):
            assert (mine.filename, mine.CRC, mine.external_attr) == (yours.filename, yours.CRC, yours.external_attr)
        assert {info.date_time for info in one.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert sha256(first.read_bytes()).hexdigest() == sha256(second.read_bytes()).hexdigest()
