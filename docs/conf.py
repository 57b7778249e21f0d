"""Configuration of Sphinx: `make docs`."""

import os
import sys
from pathlib import Path

os.environ["FASTMF_QUIET"] = "1"  # messages about compilation are no part of an example's output
# A display is not needed, and one thread of BLAS in each process is enough.
os.environ.setdefault("MPLBACKEND", "Agg")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent))

import fastmf  # noqa: E402

project = "fastmf"
author = "the fastmf developers"
copyright = author
version = release = fastmf.__version__

extensions = [
    "docstrings",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_ext", "examples", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
nitpicky = False
# `name` in a docstring is a link where it names something public, and code elsewhere.
default_role = "py:obj"
# numpydoc links attributes by their names alone, which several classes may have (ref.python).
suppress_warnings = ["config.cache", "ref.python"]

# --- text -----------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# --- reference ------------------------------------------------------------------------------------

autosummary_generate = True
# Of tuples, and scikit-learn's own, which its documentation explains.
autosummary_context = {
    "hidden_methods": [
        "count",
        "index",
        "get_metadata_routing",
        "get_params",
        "set_fit_request",
        "set_output",
        "set_params",
        "set_predict_request",
        "set_score_request",
    ]
}
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # types and shapes are in the docstrings
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- gallery --------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "api/generated/examples",
    "doc_module": ("fastmf",),
    "filename_pattern": "/plot_",
    "within_subsection_order": "gallery_order.ByRank",
    "abort_on_example_error": True,
    "image_scrapers": ("gallery_order.figures",),
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1,
}

# --- pages ----------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "fastmf"
html_static_path = ["_static"]
html_css_files = ["fastmf.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "fastmf"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["about"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {"index": [], "install": [], "quickstart": []}
