"""Common parts of the experiments: command line, images, tables, figures, handling of errors."""

import argparse
import csv
import sys

import numpy as np
from scipy.sparse import csr_array

from fastmf.datasets import load_cbcl_faces, load_mnist

# Units of the pixels of each set of images, all of values from 0 to 1: Table 1 of Tramel et al.
VISIBLE = {
    "binary": "bernoulli",
    "real": "truncated_gauss_bernoulli",
    "faces": "truncated_gaussian",
}
# The settings of Tramel et al. (2018), section VI and Table 1, of machines on these images; faces
# have 256 hidden units there, and 500 epochs in Fig. 7. Written out, as defaults may be others.
TABLE_1 = {
    "binary": dict(learning_rate=0.005, batch_size=100, l2=0.001, weight_scale=0.001),
    "real": dict(learning_rate=(1e-2, 1e-5), batch_size=100, l2=0.001, weight_scale=0.001),
    "faces": dict(learning_rate=0.005, batch_size=20, l2=0.01, weight_scale=0.001),
}
# The deviation in units of which the package learns grey pixels, in the median over them: couplings
# that are so many times as large there take steps as long as the paper's at another rate.
UNIT = {"binary": 1.0, "real": 0.6, "faces": 0.2}


def paper(name):
    """Table 1 for couplings of pixels as they are, in the units in which they are learned."""
    settings, unit = dict(TABLE_1[name]), UNIT[name]
    rate = np.multiply(settings["learning_rate"], unit**2)
    settings["learning_rate"] = tuple(rate.tolist()) if rate.ndim else float(rate)
    settings["l2"] /= unit**2
    settings["weight_scale"] *= unit
    return settings


def uncentred(X, name):
    """Rows that are not learned as differences from their mean: of faces, sparse ones."""
    return csr_array(X) if name == "faces" else X


def parser(text, epilog=None):
    """A parser of the command line that keeps the line breaks of its texts."""
    return argparse.ArgumentParser(
        description=text, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def images(name, folder, split):
    """MNIST, black and white ("binary") or grey ("real"), or the grey faces of CBCL."""
    if name == "faces":
        return load_cbcl_faces(folder, split=split)
    return load_mnist(folder, split=split, binary=name == "binary")


def table(path, header, rows):
    """Write rows below a header, as CSV."""
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def picture(drawing, path):
    """Write a figure, or the figure of axes, as PNG."""
    getattr(drawing, "figure", drawing).savefig(path, dpi=150)


def run(main, interrupted="interrupted"):
    """Call `main`; errors in data and options, and interruption, end with a message."""
    try:
        main()
    except (FileNotFoundError, ValueError, ImportError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(interrupted)
