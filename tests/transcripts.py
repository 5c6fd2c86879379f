"""Transcripts in pages: what a newcomer types, and what matters of the answers.

In an indented block `$ ` begins a command; the lines below it must be in its output, in this order, whatever stands
between them. An ellipsis in a line stands for anything. Boxes around tables and runs of spaces do not count. A block
that begins with `# NAME.SUFFIX` is a file. `python -m tests.transcripts PAGE` prints what the commands print today.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

#: An indented block that begins with its file's name as a comment.
_FILE = re.compile(r"((?:^    # \w+\.(?:toml|ys|py)\n)(?:^(?:    (?!\$ ).*)?\n)+)", re.MULTILINE)


class Command(NamedTuple):
    """A command, and lines that its output must have."""

    line: str
    lines: list[str]


def files(text: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    values: dict[str, str] = {}
    for block in _FILE.findall(text):
        name, *lines = [line[4:] for line in block.rstrip("\n").splitlines()]
        values[name.removeprefix("# ")] = "\n".join((name, *lines)) + "\n"
    return values


def transcript(text: str) -> list[Command]:
    """The commands of a page, in its order."""
    values: list[Command] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("    $ "):
            values.append(Command(line[6:], []))
            inside = True
        elif inside and line.startswith("    "):
            values[-1].lines.append(line[4:])
        else:
            inside = inside and not line
    return values


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of a page in a folder, as in an activated environment. Its output is both streams, one after the
    other."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=os.environ | {"PATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout + done.stderr)


def missing(lines: list[str], output: str) -> str | None:
    """The first line that the output does not have behind those before it."""
    there = iter([plain(line) for line in output.splitlines()])
    for line in lines:
        parts = [re.escape(part) for part in re.split(r"\.\.\.|…", plain(line))]
        if not any(re.search(".*".join(parts), each) for each in there):
            return line
    return None


def plain(line: str) -> str:
    """A line without the boxes of tables, its words one space apart."""
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", line).split())


def main(page: Path) -> None:
    """Prints each command with its output of today."""
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as place:
        for name, content in files(text).items():
            (Path(place) / name).write_text(content, encoding="utf-8")
        for command in transcript(text):
            done = shell(command.line, Path(place))
            output = "\n".join(plain(line) for line in done.stdout.splitlines())
            gone = missing(command.lines, done.stdout)
            sys.stdout.write(f"$ {command.line}\n{output}\n[status {done.returncode}, missing: {gone}]\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
