"""The picture of a run's page in the README: `python scripts/picture.py [RUN]` writes docs/page.png.

RUN: as of `meshloom report`; without it, `latest`, after `meshloom run resnet8`. Debian's Chromium draws it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

PLACE = Path(__file__).parents[1] / "docs" / "page.png"
#: Sections that the picture has; the page has more.
SECTIONS = ("chip", "cycles", "timeline")
#: Colours of the picture, so that it is small.
COLOURS = 160


def picture(page: Path) -> Image.Image:
    """Some sections of a page."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = chromium.new_page(viewport={"width": 1280, "height": 900})
        shown.goto(page.as_uri())
        shown.wait_for_selector("body[data-ready=yes]")
        shown.evaluate(
            """names => { for (const section of document.querySelectorAll("section"))
            if (!names.some(name => section.querySelector(`[id$=s-${name}]`))) section.remove();
            document.querySelectorAll("figure, .buttons, #w0-s-timeline + p").forEach(each => each.remove()); }""",
            list(SECTIONS),
        )
        image = Image.open(io.BytesIO(shown.locator("body").screenshot()))
        chromium.close()
    return image.convert("RGB").quantize(COLOURS)


def main(run: str = "latest") -> None:
    """Writes the picture."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "run.html"
        command = [
            str(Path(sys.executable).parent / "meshloom"),
            "report",
            run,
            "--workload",
            "resnet8",
            "--out",
            str(page),
        ]
        subprocess.run(command, check=True)
        picture(page).save(PLACE, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
