"""Which code this is, and which simulator: what a row needs so that it can be made again."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from meshloom.sched.store.cache import checkout

from ..build.tools import first_line

_ROOT = Path(__file__).resolve().parents[2]
#: Gateware, schedulers, bench and the simulation's Verilog. Chips, networks and inputs have digests of their own.
_SOURCES = ("*.py", "*.v", "*.sv")
_TOPS = ("hw", "sched", "tb")


@cache
def code() -> str:
    """Version, in a checkout the commit (with `-dirty` if its sources are others), and a digest of the sources."""
    parts = [metadata.version("meshloom"), _commit(), f"sources {sources()}"]
    return ", ".join(filter(None, parts))


def _commit() -> str:
    """As `git describe` names it; empty where there is no repository or no git."""
    home = checkout()
    if home is None or not (home / ".git").exists():
        return ""
    git = ("git", "-C", str(home))
    described = first_line(*git, "describe", "--always", "--abbrev=12")
    # what a run writes into docs while it goes on makes no other code of it
    changed = first_line(*git, "status", "--porcelain", "--", *_TOPS)
    return f"commit {described}{'-dirty' if changed else ''}" if described else ""


@cache
def sources() -> str:
    """A digest of the sources."""
    digest = hashlib.sha256()
    for top in _TOPS:
        for path in sorted(path for kind in _SOURCES for path in (_ROOT / top).rglob(kind)):
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
