"""Pieces of HTML that pages are made of, and how numbers look on them. Every text is escaped here."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple

from meshloom.sched.support.text import printable

#: Nothing may be fetched, whatever a script tries.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


class Section(NamedTuple):
    """A part of a page, with the heading that its table of contents names."""

    anchor: str
    title: str
    body: str


def escape(text: str) -> str:
    """Text from wherever, as HTML that shows it."""
    return html.escape(printable(text))


def paragraph(words: str, style: str = "") -> str:
    """A paragraph; `style`: a class of page.css."""
    return f'<p class="{style}">{escape(words)}</p>' if style else f"<p>{escape(words)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1, caption: str = "") -> str:
    """A table; its first `left` columns are text. Without words in `head` it has no line of them."""

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(
            f"<{tag} class='{'text' if number < left else 'number'}'>{escape(str(value))}</{tag}>"
            for number, value in enumerate(values)
        )

    text = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = f"<tr>{cells('th', head)}</tr>" if any(head) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{text}{top}{body}</table></div>'


def plot(anchor: str, title: str, style: str = "plot") -> str:
    """The place of a figure. Its title stands above it, where no button of the figure covers it."""
    return f'<figure><figcaption>{escape(title)}</figcaption><div class="{style}" id="{anchor}"></div></figure>'


def swatch(colour: str) -> str:
    """A small square of a colour of ours."""
    return f'<i class="swatch" style="background:{colour}"></i>'


def sections_text(sections: Sequence[Section], level: int = 2) -> str:
    """Headings with anchors, and what is below them."""
    return "\n".join(
        f'<section><h{level} id="{each.anchor}">{escape(each.title)}</h{level}>{each.body}</section>'
        for each in sections
    )


def contents(groups: Sequence[tuple[str, Sequence[Section]]]) -> str:
    """The table of contents: sections, below the name of their group if it has one."""
    parts: list[str] = []
    for title, sections in groups:
        links = "".join(f'<li><a href="#{each.anchor}">{escape(each.title)}</a></li>' for each in sections)
        parts.append(f"<b>{escape(title)}</b><ul>{links}</ul>" if title else f"<ul>{links}</ul>")
    return f"<nav><details open><summary>Contents</summary>{''.join(parts)}</details></nav>"


def document(title: str, navigation: str, body: Iterable[str], data: object) -> str:
    """A whole page: one file that needs no network. `data`: for page.js, as JSON."""
    here = files("meshloom.tb.report")
    plotly = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<style>{(here / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
        f"{navigation}<main><h1>{escape(title)}</h1>",
        *body,
        "</main>",
        f'<script type="application/json" id="data">{_embedded(data)}</script>',
        f"<script>{plotly}</script>",
        f"<script>{(here / 'page.js').read_text(encoding='utf-8')}</script>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _embedded(data: object) -> str:
    """JSON that cannot end the script element that it is in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def whole(number: float, sign: str = "") -> str:
    """A count, or cycles: no fraction, thousands apart."""
    return f"{number:{sign},.0f}"


def share(part: float, of: float) -> str:
    """A part in percent, one digit behind the point; a dash of nothing."""
    return f"{100 * part / of:.1f} %" if of else "-"
