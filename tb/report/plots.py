"""Plots of matplotlib as files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from meshloom.sched.support.files import write_atomically


def save_plot(figure: Any, path: Path) -> None:
    """Writes a figure in the form of the path's suffix, and closes it. The same figure gives the same SVG. Raises
    WriteError, ValueError for a form that there is not."""
    from matplotlib import pyplot as plt

    content = io.BytesIO()
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
    try:
        form = path.suffix.removeprefix(".")
        if not form:
            raise ValueError(f"{path.name} has no suffix, which would say the form")
        figure.savefig(content, format=form, metadata=dated and {dated: None})
    finally:
        plt.close(figure)
    write_atomically(path, content.getvalue())
