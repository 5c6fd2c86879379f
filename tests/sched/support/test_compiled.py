"""Functions compiled by numba: what several processes keep at once is what each of them compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshloom.sched.routing import compiled
from meshloom.sched.store import provenance
from meshloom.sched.support import kept_code

ROOT = Path(__file__).parents[3]

MODULE = """
from meshloom.sched.routing.compiled import jit


@jit
def doubled(x):
    return x + x
"""

#: Compiles for one type. Whoever has read the index waits until another process could have read it as well.
PROCESS = """
import sys, time
from numba.core import caching

read = caching.IndexDataCacheFile._load_index


def slow(self):
    found = read(self)
    time.sleep(1)
    return found


if sys.argv[2] == "slow":
    caching.IndexDataCacheFile._load_index = slow
from doubled import doubled

value = {"int": 21, "float": 2.25, "complex": 1 + 2j}[sys.argv[1]]
print(doubled(value), sum(doubled.stats.cache_hits.values()))
"""


@pytest.mark.slow  # several compile the same
def test_processes_that_compile_at_once_do_not_mix_up_what_they_keep(tmp_path: Path) -> None:
    """numba by itself gives two new forms one name, and a later process runs that of the wrong types."""
    (tmp_path / "doubled.py").write_text(MODULE)

    def start(kind: str, how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS, kind, how]
        cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        return subprocess.Popen(command, env=cache, stdout=subprocess.PIPE, text=True)

    kinds = {"int": "42", "float": "4.5", "complex": "(2+4j)"}
    first = {kind: start(kind, "slow") for kind in kinds}
    for kind, process in first.items():
        assert process.communicate()[0].split() == [kinds[kind], "0"]
    for kind, value in kinds.items():
        assert start(kind, "fast").communicate()[0].split() == [value, "1"], "compiled once, kept, and right"


def test_inner_functions_of_processes_have_numbers_of_their_own() -> None:
    """By which alone numba tells those of the same name apart."""
    script = "from meshloom.sched.routing import compiled\nfrom numba.core.bytecode import FunctionIdentity\n"
    script += "print(next(FunctionIdentity._unique_ids))"
    numbers = [int(subprocess.check_output([sys.executable, "-c", script], text=True)) for _ in range(2)]
    assert abs(numbers[0] - numbers[1]) > 10**6


BOUNDS = """
from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.workload import zoo

print(find_network("zigzag", None)(zoo.load("squeezenet"), load("klotski9"), None).micro_ops.bound_cycles)
"""


@pytest.mark.slow
def test_code_that_was_compiled_against_kept_code_is_what_it_was(tmp_path: Path) -> None:
    """A process that finds some of what it calls, and the next one, which finds all, prove the same bound. By numba
    alone, the sort of the second one has a half of another sort."""
    cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def bound() -> int:
        return int(subprocess.check_output([sys.executable, "-c", BOUNDS], env=cache, text=True))

    first = bound()
    for path in tmp_path.rglob("bounds.*"):
        if not path.name.startswith("bounds._pigeonhole"):
            path.unlink()
    assert [bound(), bound()] == [first] * 2


def test_what_cannot_be_kept_is_compiled_all_the_same(tmp_path: Path) -> None:
    """As on a full disk."""
    (tmp_path / "doubled.py").write_text(MODULE)
    refused = "import os\nfrom numba.core import caching\n\ndef full(*_):\n    raise OSError(28, 'No space left')\n\n"
    script = refused + "caching.IndexDataCacheFile.save = full\nfrom doubled import doubled\nprint(doubled(21))"
    cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", script], env=cache, capture_output=True, text=True, check=True)
    assert result.stdout == "42\n"


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


HARM: dict[str, Callable[[Path], object]] = {
    "cut": _cut,
    "flipped": _flipped,
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_files_count_as_none(suffix: str, harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in them is unpickled; that is said once."""
    files = kept_code._Sealed(str(tmp_path), "function", "its source")
    files.save("types", "code" * 100)
    files.save("other types", "other")
    assert (files.load("types"), files.load("other types"), files.load("none")) == ("code" * 100, "other", None)
    assert caplog.messages == []
    path = min(tmp_path.glob(f"*{suffix}"))
    HARM[harm](path)
    assert (files.load("types"), files.load("types")) == (None, None)
    assert caplog.messages == [f"{path} is damaged: it is compiled again"]
    files.save("types", "anew")
    assert files.load("types") == "anew"
    assert kept_code._Sealed(str(tmp_path), "function", "an edited source").load("types") is None


@pytest.mark.slow
def test_damaged_code_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text(MODULE)
    cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def ran() -> tuple[list[str], list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, "int", "fast"], env=cache, capture_output=True, text=True, check=True
        )
        return done.stdout.split(), done.stderr.splitlines()

    assert ran() == (["42", "0"], [])
    for suffix in (".nbi", ".nbc"):
        (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
        _flipped(path)
        assert ran() == (["42", "0"], [f"{path} is damaged: it is compiled again"])
        assert ran() == (["42", "1"], [])
        path.unlink()
        assert ran() == (["42", "0"], [])


def test_every_source_that_compiled_code_is_made_of_names_its_folder(tmp_path: Path) -> None:
    """Also those without compiled functions, which constants and layouts of records come from."""
    package = tmp_path / "sched" / "routing"
    for name in provenance.needed(ROOT, ["sched.routing.fetch"]):
        path = tmp_path / name.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.read_bytes())
    before = compiled._digest(package, tmp_path)
    for name in ("routing/fetch", "routing/tables", "support/records", "support/kept_code"):
        path = tmp_path / "sched" / f"{name}.py"
        text = path.read_text()
        path.write_text(text + "\nMORE = 1\n")
        assert compiled._digest(package, tmp_path) != before, name
        path.write_text(text)
    assert compiled._digest(package, tmp_path) == before
