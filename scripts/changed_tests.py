"""Runs the slow tests that a change can break: those whose files import, directly or not, what was changed.

    python scripts/changed_tests.py                     since the branch left origin/main; there, since HEAD~1
    python scripts/changed_tests.py --since v0.1.0      since any commit, with what is not committed
    python scripts/changed_tests.py --list              which files, and because of what; runs nothing
    python scripts/changed_tests.py --seconds 300       starts no test later than that; names those that were left out

Files whose own text was changed come first, then those that need least: what is left out when time is up is what is
farthest from the change. `make test` has run the first tier already.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from meshloom.sched.store import provenance

ROOT = Path(__file__).resolve().parents[1]
#: A change of one of these can break any test.
EVERYTHING = {"pyproject.toml", "requirements.lock", "tests/conftest.py", "tests/tiers.py", "scripts/setup.sh"}
_MODULE = re.compile(r"meshloom(\.[a-z_]\w*)+")


class GitError(RuntimeError):
    """What Git said when it could not answer."""


def git(*arguments: str) -> list[str]:
    """The lines of Git's answer in the project's root. Raises GitError."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GitError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def beginning() -> str | None:
    """The commit that a change begins after; None where history does not reach so far."""
    try:
        (head,) = git("rev-parse", "HEAD")
        (fork,) = git("merge-base", "HEAD", "origin/main")
    except GitError:
        head = fork = ""
    if head and fork != head:
        return fork
    try:
        return git("rev-parse", "--verify", "HEAD~1")[0]
    except GitError:
        return None


def changed_since(commit: str) -> set[str]:
    """Paths that differ from a commit, committed or not, with new ones that Git does not ignore. Raises GitError."""
    return {*git("diff", "--name-only", commit, "--"), *git("ls-files", "--others", "--exclude-standard")}


def slow_files(root: Path = ROOT) -> list[str]:
    """Test files with a test marked slow."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            # the marker itself, or parameters marked by `tests/tiers.py`
            if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in ("pytest.mark.slow", "slow_but"):
                found.append(path.relative_to(root).as_posix())
                break
    return found


def needs(test: str, root: Path = ROOT) -> set[str]:
    """All files of the project that a test file imports, or names as a module in a string (`meshloom.tb.build.cosim`
    is told to a simulator; registries name modules that they import late)."""
    modules = {test.removesuffix(".py").replace("/", ".")}
    while True:
        files = provenance.needed(root, modules)
        named = {module for path in files for module in _named(path) if _exists(root, module)}
        if named <= modules:
            return {path.relative_to(root).as_posix() for path in files}
        modules |= named


def _named(path: Path) -> Iterable[str]:
    """Names of modules in a file's strings, without `meshloom` and without what stands behind a colon."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if _MODULE.fullmatch(name):
                yield name.partition(".")[2]


def _exists(root: Path, module: str) -> bool:
    place = root.joinpath(*module.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def stands_for(path: str, root: Path = ROOT) -> str:
    """A changed file, or for data (chips, weights, Verilog) the package that it lies in."""
    if path.endswith(".py") or path.partition("/")[0] not in ("hw", "sched", "tb"):
        return path
    folder = (root / path).parent
    while folder != root and not (folder / "__init__.py").is_file():
        folder = folder.parent
    return (folder / "__init__.py").relative_to(root).as_posix()


def chosen(changed: set[str], root: Path = ROOT) -> dict[str, list[str]]:
    """Slow test files to the changed files because of which they are to run, in the order in which they should."""
    common = sorted(changed & EVERYTHING)
    causes = {stands_for(path, root) for path in changed}
    found: list[tuple[bool, int, str, list[str]]] = []
    for test in slow_files(root):
        needed = needs(test, root)
        because = common or sorted(needed & causes)
        if because:
            found.append((test not in changed, len(needed), test, because))
    return {test: because for _, _, test, because in sorted(found)}


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--seconds", type=int, metavar="S", help="start no test later than S seconds from now")
    parser.add_argument("--list", action="store_true", help="print the files and why; run nothing")
    options = parser.parse_args()
    since = options.since or beginning()
    try:
        changed = changed_since(since) if since else set(git("ls-files"))
    except GitError as error:
        print(f"changed_tests: error: {error}; give a commit that exists with --since", file=sys.stderr)
        return 2
    files = chosen(changed)
    print(f"{len(changed)} files changed since {since or 'the beginning'}: {len(files)} files with slow tests use them")
    for test, because in files.items():
        print(f"  {test}: {', '.join(because[:3])}{' ...' if len(because) > 3 else ''}")
    if options.list or not files:
        return 0
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "slow"]
    if options.seconds is not None:
        command += ["--stop-after", str(options.seconds)]
    sys.stdout.flush()
    return subprocess.run([*command, *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
