"""The order of the gallery's examples, and which figures it shows."""

from pathlib import Path

ORDER = (
    "plot_digits",
    "plot_denoising",
    "plot_grey_digits",
    "plot_real_table",
    "plot_deep",
    "plot_landscape",
    "plot_log_partition",
    "plot_spin_glass",
    "plot_own_prior",
    "plot_belief_propagation",
    "plot_crbm_images",
    "plot_multilabel",
    "plot_votes",
    "plot_symptoms",
    "plot_two_groups",
    "plot_contacts",
    "plot_sparse_regression",
    "plot_classifier",
    "plot_fine_mapping",
    "plot_gallery",
)


class ByRank:
    """Sort key of sphinx-gallery: the place in `ORDER`."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, file):
        """The rank of a file."""
        return ORDER.index(Path(file).stem)


def figures(block, block_vars, gallery_conf):
    """Save pyplot's figures, and those that `fastmf.plotting` returns, which pyplot does not know.

    A figure is shown below the block that assigns it to a name, or an axes of it.
    """
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    names = block_vars["example_globals"]
    shown = names.setdefault("__shown__", [])
    found = [plt.figure(number) for number in plt.get_fignums()]
    for value in names.values():
        figure = value.figure if isinstance(value, Axes) else value
        if isinstance(figure, Figure):
            found.append(figure)
    paths = []
    for figure in found:
        if not any(figure is other for other in shown):
            shown.append(figure)
            paths.append(next(block_vars["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=110)
    plt.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])
