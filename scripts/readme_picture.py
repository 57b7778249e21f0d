#!/usr/bin/env python3
"""The picture of the README: a TAP machine trained on scikit-learn's digits.

Trains the binary machine of `fastmf demo` on 1400 digits of 8 x 8 pixels and draws its receptive
fields, and test digits: clean, after a binary symmetric channel, and restored. Takes a minute.
"""

import argparse
from pathlib import Path

import numpy as np
from timing import ROOT, positive

import fastmf as mf
from fastmf.cli.demo import BINARY, DENOISING, N_TRAIN

PICTURE = ROOT / "scripts" / "curves" / "digits.png"
FLIP_PROBABILITY = 0.1
N_SHOWN = 8


def machine_and_rows(n_epochs):
    """The trained machine, and rows of test images by name."""
    X = mf.datasets.load_digits(binary=True).X[np.random.default_rng(0).permutation(1797)]
    train, test = X[:N_TRAIN], X[N_TRAIN : N_TRAIN + N_SHOWN]
    rbm = mf.GeneralizedRBM(**BINARY | {"n_epochs": n_epochs}, random_state=0).fit(train)
    noisy = mf.evaluation.flip(test, FLIP_PROBABILITY, rng=0)
    restored = rbm.denoise(noisy, flip_probability=FLIP_PROBABILITY, **DENOISING, candidates=train)
    return rbm, {"clean": test, "10% flipped": noisy, "TAP means": restored}


def draw(rbm, rows):
    """Receptive fields beside rows of images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    mf.plotting.receptive_fields(rbm.weights_, (8, 8), columns=8, ax=left)
    left.set_title("weights of the hidden units", fontsize="medium")
    mf.plotting.image_rows(rows, (8, 8), ax=right)
    right.set_title("test digits", fontsize="medium")
    return figure


def main(arguments=None):
    """Train, draw and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=positive, default=BINARY["n_epochs"], metavar="N")
    parser.add_argument("--output", type=Path, default=PICTURE, metavar="FILE")
    options = parser.parse_args(arguments)
    draw(*machine_and_rows(options.epochs)).savefig(options.output, dpi=100)


if __name__ == "__main__":
    main()
