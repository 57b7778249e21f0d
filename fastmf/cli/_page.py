"""Pages of results: HTML that needs no other file, or Markdown with pictures beside it."""

import base64
import re
from html import escape
from importlib.resources import files
from io import BytesIO, StringIO
from string import Template
from typing import Any, NamedTuple

from fastmf._common import html
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

    def html(self):
        """The table in HTML."""
        rows = [list(map(_cell, row)) for row in self.rows]
        return (
            f'<div class="wide">{html.table(rows, self.header if any(self.header) else ())}</div>'
        )

    def markdown(self, path):
        """The table in Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        cells = [[_cell(cell).replace("|", "\\|") for cell in line] for line in lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)


class Figure(NamedTuple):
    """A figure of matplotlib and its caption."""

    figure: Any
    caption: str

    def html(self):
        """The figure in HTML, as SVG."""
        buffer = StringIO()
        self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        text = buffer.getvalue()
        tag, _, content = text[text.index("<svg") :].partition(">")
        image = f"{tag}>{_FIGURE_STYLE}{content.replace('#000000', 'currentColor')}"
        return (
            f"<figure>{_image('svg+xml', image.encode(), self.caption)}"
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )

    def markdown(self, path):
        """The figure in Markdown, in a file beside the page."""
        with replacing(path) as file:
            self.figure.savefig(file, format="png", dpi=130)
        return f"![{self.caption}]({path.name})"


class Strips(NamedTuple):
    """Rows of images: (name, images, perhaps a text), the shape of an image, and a caption."""

    rows: list
    shape: tuple
    caption: str

    def html(self):
        """The rows as a table in HTML; browsers enlarge the images."""
        lines = []
        for name, images, *texts in self.rows:
            image = _image("png", _mosaic(images, self.shape), f"{len(images)} images: {name}")
            cells = "".join(f"<td>{cell}</td>" for cell in (image, *map(escape, texts)))
            lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
        caption = f"<caption>{escape(self.caption)}</caption>"
        return "\n".join(['<table class="strips">', caption, *lines, "</table>"])


class Code(NamedTuple):
    """Lines of code in a language."""

    language: str
    text: str

    def html(self):
        """The code in HTML."""
        return f'<pre><code class="{self.language}">{escape(self.text)}</code></pre>'


class Page:
    """A page whose text is a file of this folder, as HTML or Markdown.

    The file begins with a title; paragraphs are divided by empty lines, the last one is the foot,
    and `##` begins a section. ``$name`` is a value, and a paragraph ``{name}`` the parts of this
    name: paragraphs, sections (lines that begin with `##`), or objects with methods `html` and
    `markdown`. A section is left out where its parts are None.
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
        """Write the page in the format of the file's suffix, .html or .md."""
        text = self._html() if path.suffix.lower() == ".html" else self._markdown(path)
        with replacing(path) as file:
            file.write(text.encode())

    def _html(self):
        names = [re.sub(r"\W+", "-", heading.lower()) for heading, _ in self.sections]
        links, sections = [], []
        for name, (heading, parts) in zip(names, self.sections, strict=True):
            links.append(f'<a href="#{name}">{escape(heading)}</a>')
            body = "\n".join(map(_html_of, parts))
            sections.append(
                f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n{body}\n</section>'
            )
        return Template(_text("page.html")).substitute(
            title=escape(self.title),
            introduction="\n".join(map(_html_of, self.introduction)),
            links="\n".join(links),
            sections="\n".join(sections),
            foot=escape(self.foot),
        )

    def _markdown(self, path):
        body = [f"# {self.title}", *self.introduction]
        for k, (heading, parts) in enumerate(self.sections):
            picture = path.with_name(f"{path.stem}_{k}.png")
            body.append(f"## {heading}")
            body += [p if isinstance(p, str) else p.markdown(picture) for p in parts]
        return "\n\n".join([*body, self.foot]) + "\n"


def _text(name):
    return files("fastmf.cli").joinpath(name).read_text("utf-8")


def _html_of(part):
    return f"<p>{escape(part)}</p>" if isinstance(part, str) else part.html()


def _cell(value):
    """Text, or a number with two digits."""
    return value if isinstance(value, str) else f"{value:.2f}"


def _mosaic(images, shape):
    """Images side by side as a file, one pixel a pixel."""
    from matplotlib.image import imsave

    from fastmf.plotting import mosaic

    buffer = BytesIO()
    image = mosaic(images, shape, len(images))
    imsave(buffer, image, cmap="gray", vmin=0, vmax=1, format="png")
    return buffer.getvalue()


def _image(kind, content, description):
    data = base64.b64encode(content).decode()
    return f'<img alt="{escape(description)}" src="data:image/{kind};base64,{data}">'
