"""Self-contained HTML pages of results."""

import base64
import re
from html import escape
from importlib.resources import files
from io import StringIO
from string import Template

from fastmf.models._io import write_text

# Figures use the text colour of the page instead of black.
_FIGURE_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328}"
    "@media (prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
)


class Html(str):
    """HTML that is inserted without escaping; all other text is escaped."""


def paragraph(text):
    """Return a paragraph in HTML."""
    return Html(f"<p>{escape(text)}</p>")


def table(header, rows):
    """Return a table in HTML; the first cell of a row is its header; numbers have two decimals."""
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    head = f"<thead><tr>{cells}</tr></thead>" if header else ""
    lines = []
    for row in rows:
        name, *cells = (escape(x) if isinstance(x, str) else f"{x:.2f}" for x in row)
        cells = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    body = "\n".join(lines)
    return Html(f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>')


def figure(drawn, caption):
    """Return a matplotlib figure in HTML, as SVG with a caption."""
    buffer = StringIO()
    drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    tag, _, content = text[text.index("<svg") :].partition(">")
    image = f"{tag}>{_FIGURE_STYLE}{content.replace('#000000', 'currentColor')}"
    data, caption = base64.b64encode(image.encode()).decode(), escape(caption)
    return Html(
        f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def code(language, text):
    """Return lines of code in HTML."""
    return Html(f'<pre><code class="{language}">{escape(text)}</code></pre>')


def section(heading, *parts):
    """Return a section in HTML, which is linked at the top of the page."""
    return Html(f"<section>\n<h2>{escape(heading)}</h2>\n{_html(parts)}\n</section>")


def write_page(path, name, values):
    """Write a page from a template in this folder, with $names replaced by values.

    A value is `Html`, another object, which is escaped, or a list of these.
    """
    body = Template(_text(name)).substitute({key: _html(x) for key, x in values.items()})
    links = []

    def with_anchor(match):
        anchor = re.sub(r"\W+", "-", match[1].lower())
        links.append(f'<a href="#{anchor}">{match[1]}</a>')
        return match[0].replace(">", f' id="{anchor}">', 1)

    body = re.sub("<section>\n<h2>(.*?)</h2>", with_anchor, body)
    navigation = "\n".join(['<nav aria-label="Sections">', *links, "</nav></header>"])
    title = re.search("<h1>(.*?)</h1>", body)[1]
    page = {"title": title, "body": body.replace("</header>", navigation, 1)}
    write_text(path, Template(_text("page")).substitute(page))


def _text(name):
    return files("fastmf.cli").joinpath(f"{name}.html").read_text("utf-8")


def _html(part):
    if isinstance(part, list | tuple):
        return "\n".join(map(_html, part))
    return part if isinstance(part, Html) else escape(str(part))
