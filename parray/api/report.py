"""Reports for people: sections of lines and tables, as text, in a terminal's colours, or as HTML in a notebook."""
from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Any, Sequence

_NUMBER = re.compile(r"[≥ ]*[\d.]+( ?[A-Za-z%]{1,3}( \w+)?)?$")
_STYLE = "<style>.parray td,.parray th{text-align:left;padding:0 1em 0 0;font-family:monospace}</style>"


@dataclass
class Section:
    """A title, lines, and rows of cells under a header; columns of numbers are flush right."""
    title: str
    lines: list[str] = field(default_factory=list)
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    picture: str = ""                            # an SVG, for HTML only

    def text(self) -> list[str]:
        """The section as lines of text."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows)]
        right = self.flush_right()
        table = ["  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)).rstrip()
                 for row in ([self.header] if any(self.header) else []) + self.rows]
        return [self.title, *("  " + line for line in [*self.lines, *table])]

    def flush_right(self) -> list[bool]:
        """Which columns are numbers."""
        return [all(_NUMBER.match(c) for c in column if c) and any(column) for column in zip(*self.rows)]

    def html(self) -> str:
        """The section as HTML."""
        out = [f"<h4>{html.escape(self.title)}</h4>"]
        if self.lines:
            out.append("<pre>" + html.escape("\n".join(self.lines)) + "</pre>")
        if self.rows:
            cells = [("th", self.header)] + [("td", row) for row in self.rows]
            out.append("<table>" + "".join("<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"
                                           for tag, row in cells) + "</table>")
        return "".join(out) + self.picture


class Report(str):
    """Text that also knows its sections: a notebook shows it as HTML, `show` uses a terminal's colours."""
    sections: tuple[Section, ...]

    def __new__(cls, sections: Sequence[Section]) -> Report:
        self = super().__new__(cls, "\n".join(line for s in sections for line in s.text()) + "\n")
        self.sections = tuple(sections)
        return self

    def html(self) -> str:
        """The report as a piece of HTML."""
        return f"{_STYLE}<div class='parray'>{''.join(s.html() for s in self.sections)}</div>"

    _repr_html_ = html

    def show(self, file: Any = None) -> None:
        """Print it; in a terminal, with rich installed, tables are ruled and titles stand out."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            print(self, end="", file=file)
            return
        console = Console(file=file, highlight=False)
        if not console.is_terminal:
            print(self, end="", file=file)
            return
        for s in self.sections:
            console.print(s.title, style="bold", markup=False)
            for line in s.lines:
                console.print("  " + line, markup=False)
            if s.rows:
                table = Table(*s.header, box=None, header_style="dim", pad_edge=True)
                for column, right in zip(table.columns, s.flush_right()):
                    column.justify = "right" if right else "left"
                for row in s.rows:
                    table.add_row(*row)
                console.print(table)


def quantity(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix: ``1.25 M``, ``83.4 kB``."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale * 0.9995:
            digits = ".3g" if value < scale * 999.5 else ".0f"
            return f"{value / scale:{digits}} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip() if value != int(value) else f"{int(value)} {unit}".rstrip()


def duration(ns: float) -> str:
    """Nanoseconds in a unit that suits them."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}" if ns < 999.5 * scale else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"
