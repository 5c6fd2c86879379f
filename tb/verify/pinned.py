"""Tools of campaigns, which nothing else needs: installed into a folder of the cache by the pins of a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def installed(pins: Path, home: Path, say: Callable[[str], None]) -> Path:
    """The folder `home` with what `pins` names, installed if need be. Raises CalledProcessError."""
    stamp, text = home / "stamp", pins.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != text:
        say(f"installing what {pins.name} names into {home}")
        shutil.rmtree(home, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
        subprocess.run([*pip, "--target", str(home), "--requirement", str(pins)], check=True)
        stamp.write_text(text, encoding="utf-8")
    return home
