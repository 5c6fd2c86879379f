"""`meshloom devices`."""

from __future__ import annotations

import typer

from ..api.options import Json, examples
from .loadable import loadable
from .outputs import listing_screen, put_list

app = typer.Typer()


@app.command(epilog=examples("meshloom devices", "meshloom devices --json -"))
def devices(json: Json = None) -> None:
    """List what programs can run on: the simulators, and devices of installed packages, with their versions."""
    from ..devices.registry import REGISTRY
    from ..report.narrow import show
    from ..report.tables import text_table
    from ..results.listings import DeviceEntry, DeviceList

    broken: list[str] = []
    known = loadable(REGISTRY, broken)
    versions = {name: kind.version() for name, kind in known.items()}
    screen = listing_screen(json)
    lines = (
        (name, versions[name] or "not there", "yes" if kind.waves else "no", kind.summary)
        for name, kind in known.items()
    )
    show(text_table(("device", "version", "waveforms", "what it is"), lines), screen)
    for each in broken:
        screen.print(each, style="red", soft_wrap=True)
    entries = (
        DeviceEntry(name=name, summary=kind.summary, version=versions[name], waves=kind.waves, most=kind.most)
        for name, kind in known.items()
    )
    put_list(json, DeviceList(devices=tuple(entries), broken=tuple(broken)))
