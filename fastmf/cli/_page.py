"""Pages of results: HTML that needs no other file."""

import base64
import re
from html import escape
from importlib.resources import files
from io import StringIO
from string import Template
from typing import Any, NamedTuple

from fastmf.models._io import replacing

# Figures have the colours of the page: matplotlib's black has no colour of its own.
_FIGURE_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328}"
    "@media (prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
)


class Table(NamedTuple):
    """A table: names of the columns, and rows of texts and numbers, the first cell a name."""

    header: tuple
    rows: list

    def _repr_html_(self):
        """The table in HTML; numbers have two digits."""
        lines = ['<div class="wide"><table>']
        if any(self.header):
            cells = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in self.header)
            lines.append(f"<thead><tr>{cells}</tr></thead>")
        lines.append("<tbody>")
        for row in self.rows:
            name, *cells = (escape(x) if isinstance(x, str) else f"{x:.2f}" for x in row)
            cells = "".join(f"<td>{cell}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
        return "\n".join([*lines, "</tbody>", "</table></div>"])


class Figure(NamedTuple):
    """A figure of matplotlib and its caption."""

    figure: Any
    caption: str

    def _repr_html_(self):
        """The figure in HTML, as SVG."""
        buffer = StringIO()
        self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        text = buffer.getvalue()
        tag, _, content = text[text.index("<svg") :].partition(">")
        image = f"{tag}>{_FIGURE_STYLE}{content.replace('#000000', 'currentColor')}"
        data, caption = base64.b64encode(image.encode()).decode(), escape(self.caption)
        return (
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )


class Code(NamedTuple):
    """Lines of code in a language."""

    language: str
    text: str

    def _repr_html_(self):
        """The code in HTML."""
        return f'<pre><code class="{self.language}">{escape(self.text)}</code></pre>'


class Page:
    """A page of HTML whose text is a file of this folder.

    The file begins with a title; paragraphs are divided by empty lines, the last one is the foot,
    and `##` begins a section. ``$name`` is a value, and a paragraph ``{name}`` the parts of this
    name: paragraphs, sections (lines that begin with `##`), or results that notebooks show. A
    section is left out where its parts are None.
    """

    def __init__(self, name, values, parts):
        paragraphs = _text(f"{name}.txt").strip().split("\n\n")
        texts = [Template(paragraph).substitute(values) for paragraph in paragraphs]
        self.title, self.foot = texts[0].removeprefix("# "), texts[-1]
        self.introduction, self.sections = [], []
        for paragraph, text in zip(paragraphs[1:-1], texts[1:-1], strict=True):
            is_name = re.fullmatch(r"\{(\w+)\}", paragraph)
            self._add(parts[is_name[1]] if is_name else [text])

    def _add(self, parts):
        if parts is None:
            del self.sections[-1]
            return
        for part in parts:
            if isinstance(part, str) and part.startswith("## "):
                self.sections.append((part[3:], []))
            else:
                (self.sections[-1][1] if self.sections else self.introduction).append(part)

    def write(self, path):
        """Write the page."""
        names = [re.sub(r"\W+", "-", heading.lower()) for heading, _ in self.sections]
        links, sections = [], []
        for name, (heading, parts) in zip(names, self.sections, strict=True):
            links.append(f'<a href="#{name}">{escape(heading)}</a>')
            body = "\n".join(map(_html_of, parts))
            sections.append(
                f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n{body}\n</section>'
            )
        text = Template(_text("page.html")).substitute(
            title=escape(self.title),
            introduction="\n".join(map(_html_of, self.introduction)),
            links="\n".join(links),
            sections="\n".join(sections),
            foot=escape(self.foot),
        )
        with replacing(path) as file:
            file.write(text.encode())


def _text(name):
    return files("fastmf.cli").joinpath(name).read_text("utf-8")


def _html_of(part):
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    return f'<div class="wide">{part._repr_html_()}</div>'
