"""Docstrings inherited from scikit-learn: their references lead to pages that are not here."""

import re


def plain(app, what, name, obj, options, lines):
    """Replace references by their text, in place."""
    text = "\n".join(lines)
    text = re.sub(r":(?:ref|term):`([^`<]+?)\s*(?:<[^`>]*>)?`", r"\1", text)
    lines[:] = text.split("\n")


def setup(app):
    """Connect with autodoc, before numpydoc."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", plain, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
