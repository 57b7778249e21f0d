"""Equations as MathML, which browsers draw themselves: pages need no script and no network."""

from docutils.utils.math.latex2mathml import tex2mathml


def inline(writer, node):
    """An equation within a line."""
    writer.body.append(_mathml(node.astext()))
    raise _skip()


def block(writer, node):
    """An equation, or several under each other, on lines of its own."""
    tex = node.astext()
    if r"\\" in tex and r"\begin{" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    writer.body.append(f'<div class="equation">{_mathml(tex, as_block=True)}</div>\n')
    raise _skip()


def _mathml(tex, **options):
    """MathML with a space between a function's name and its argument, as TeX has it."""
    space = '<mspace width="0.17em"></mspace>'
    text = tex2mathml(tex, **options).replace("<mo>&ApplyFunction;</mo>", space)
    return text.replace('class="ams-align"', 'class="ams-align" displaystyle="true"')


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
