"""Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `python arguments` with these environment variables besides its own."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
