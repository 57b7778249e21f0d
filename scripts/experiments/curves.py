#!/usr/bin/env python3
"""Draw the curves of the papers' figures again, from their tables in scripts/curves.

Reads each CSV file of the folder --tables and writes its picture, as PNG, into the folder --output.
The tables are the results of the other scripts, which the pages beside them describe: nothing is
computed here.
"""

import csv
from functools import partial
from pathlib import Path

import adaptive_tap
import crbm_structured
import experiment
import fvbm_bslm
import networks
import sequences

from fastmf import plotting

TABLES = Path(__file__).parents[1] / "curves"


def main(argv=None):
    options = parser().parse_args(argv)
    for name in options.names:
        if name not in PICTURES:
            raise ValueError(f"no picture {name!r}, there are: {', '.join(PICTURES)}.")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.names or PICTURES:
        table, draw = PICTURES[name]
        draw(read(options.tables / f"{table}.csv"), options.output / f"{name}.png")
        print(options.output / f"{name}.png")


def parser():
    made = experiment.parser(__doc__)
    add = made.add_argument
    add("names", nargs="*", metavar="NAME", help=f"{', '.join(PICTURES)} [all]")
    add("--tables", type=Path, default=TABLES, metavar="FOLDER", help="[scripts/curves]")
    add("--output", type=Path, default=TABLES, metavar="FOLDER", help="[scripts/curves]")
    return made


def read(path):
    """The rows of a table, as dictionaries of numbers and names."""
    with path.open(newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text):
    try:
        return float(text)
    except ValueError:
        return text


def grouped(rows, column):
    """The rows of each value of a column, as columns."""
    groups = {}
    for row in rows:
        for key, value in row.items():
            groups.setdefault(row[column], {}).setdefault(key, []).append(value)
    return groups


def learning_curves(rows, path, column, what):
    """Log-likelihood by epoch of several machines: Figs. 3 and 11 of Tramel et al."""
    histories = {
        f"{name:.0f}" if isinstance(name, float) else name: {
            "epoch": columns["epoch"],
            "log_likelihood": columns["log_likelihood_per_unit"],
            "validation_log_likelihood": columns["validation"],
        }
        for name, columns in grouped(rows, column).items()
    }
    experiment.likelihoods(histories, path, f" {what}")


def by_solutions(rows, path):
    """Likelihood of training images by Eq. 39 and by log-sum-exp: Fig. 3 of Tramel et al."""
    axes = None
    for n, columns in grouped(rows, "hidden_units").items():
        for measure, label in (("mean", "mean, Eq. 39"), ("log_sum_exp", "log-sum-exp")):
            axes = plotting.curves_by_epoch(
                columns["epoch"], {f"{n:.0f}, {label}": columns[measure]}, ax=axes
            )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    experiment.picture(axes, path)


def denoising(rows, path):
    """Correlation with the clean image by noise: Fig. 8 of Tramel et al."""
    methods = grouped(rows, "method")
    scores = {name: columns["matthews_correlation"] for name, columns in methods.items()}
    levels = next(iter(methods.values()))["flip_probability"]
    experiment.picture(plotting.denoising_accuracy(levels, scores), path)


def by_epoch(rows, path, label="nats per unit", columns=None, scale="linear"):
    """Columns of a table by its epochs: Figs. 5 and 12 of Tramel et al."""
    curves = {key: [row[key] for row in rows] for key in columns or list(rows[0])[1:]}
    axes = plotting.curves_by_epoch([row["epoch"] for row in rows], curves, label=label)
    axes.set_yscale(scale)
    experiment.picture(axes, path)


def adaptive(rows, path):
    """Pseudo-likelihood by epoch of TAP and adaptive TAP: Fig. 10 of Tramel et al."""
    experiment.picture(adaptive_tap.draw([tuple(row.values()) for row in rows]), path)


def contacts(rows, path):
    """Precision of contacts predicted from sequences."""
    sequences.draw([tuple(row.values()) for row in rows], path)


def calibration(rows, path):
    """Calibration of intervals and of probabilities of edges in networks."""
    networks.draw([tuple(row.values()) for row in rows], path)


def occlusion(rows, path, methods=("LR", "MLE-MF", "MLE-BP")):
    """Error by size of the patch, of the methods run at all sizes: Fig. 3 of Ping & Ihler."""
    errors, start = {}, "mnist-occluded-"
    for row in rows:
        if row["task"].startswith(start) and row["method"] in methods:
            side = int(row["task"].removeprefix(start))
            errors.setdefault(row["method"], {})[side] = row["changed"]
    crbm_structured.draw_occlusion(errors, path)


def sequences_of_values(rows, path):
    """Log-pseudo-likelihood and increments by sweep: Fig. 1 of Nguyen & Wood."""
    fvbm_bslm.draw_sequences([tuple(row.values()) for row in rows], path)


def convergence(rows, path):
    """Fraction of rows whose inference converges, by epoch: Fig. 4 of Ping & Ihler."""
    tasks = grouped(rows, "task").items()
    fractions = {task: (row["epoch"], row["fraction converged"]) for task, row in tasks}
    crbm_structured.draw_convergence(fractions, path)


_HIDDEN = partial(learning_curves, column="hidden_units", what="hidden units")
_SOLUTIONS = partial(
    by_epoch, label="distinct solutions", columns=["solutions", "converged"], scale="log"
)
# For each picture its table, and what draws it.
PICTURES = {
    "tap_likelihood": ("tap_likelihood", _HIDDEN),
    "tap_likelihood_faces": ("tap_likelihood_faces", _HIDDEN),
    "tap_deep": ("tap_deep", partial(learning_curves, column="layers", what="hidden units")),
    "tap_solutions": ("tap_solutions", by_solutions),
    "tap_solutions_grey": ("tap_solutions_grey", by_solutions),
    "tap_denoising": ("tap_denoising", denoising),
    "tap_denoising_starts": ("tap_denoising_starts", denoising),
    "tap_adaptive": ("tap_adaptive", adaptive),
    "landscape_quality": ("landscape_quality", by_epoch),
    "landscape_quality_500": ("landscape_quality_500", by_epoch),
    "landscape_solutions": ("landscape_solutions", _SOLUTIONS),
    "sequences": ("sequences_contacts", contacts),
    "networks_calibration": ("networks", calibration),
    "crbm_occlusion": ("crbm", occlusion),
    "crbm_sides": ("crbm_sides", partial(occlusion, methods=("LR", "CD-10", "MLE-BP"))),
    "crbm_sides_paper": ("crbm_sides_paper", partial(occlusion, methods=("LR", "CD-10", "MLE-BP"))),
    "crbm_convergence": ("crbm_convergence", convergence),
    "fvbm_sequences": ("fvbm_sequences", sequences_of_values),
}


if __name__ == "__main__":
    experiment.run(main)
