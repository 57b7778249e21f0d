#!/usr/bin/env python3
"""The free-energy landscape of a TAP machine during training, and three measures of its quality.

After Figs. 5 to 7 and 12 of Tramel et al., Phys. Rev. X 8 (2018) 041006. Trains one machine on
MNIST or on faces and writes, as PNG and CSV, into a folder:

  free-energy    free energies of the distinct TAP solutions reached from data, by epoch
  solutions      number of solutions by epoch, those that have converged, and mean and extent of
                 their free energies (CSV)
  densities      histograms of the free energies, with kernel densities, of some epochs, those of
                 `map-E`; the mean over solutions is marked (PNG)
  map-E          Isomap of the solutions of epoch E, those of all epochs shown embedded together
  data-E         the solutions most data fall to, each followed by some of these data
  quality        log-likelihood of test images per unit by TAP (log-sum-exp, and the paper's mean
                 over solutions), by annealed importance sampling, and the pseudo-likelihood, by
                 epoch (binary images only)

and the machine as rbm.npz, that of each epoch which is followed as machine-E.npz, and what was
found of it as found-E.npz. A run that was stopped resumes if it is started again with the same
options and the same folder.
"""

from pathlib import Path
from typing import NamedTuple

import experiment
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import gaussian_kde

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import Solutions, isomap, log_likelihood, solutions

EPILOG = """\
examples:
  python scripts/experiments/landscape.py --quick
      a few epochs on 2,000 images: does it run?
  python scripts/experiments/landscape.py --rows 10000 --epochs 20 --learning-rate 0.05
      a good machine in minutes
  python scripts/experiments/landscape.py --dataset faces --starts 2400 --epochs 100
  python scripts/experiments/landscape.py --paper --epochs 100 --starts 10000 --steps 14500 \\
      --follow 1 2 3 5 7 10 15 20 30 40 50 70 100
      the paper's settings, and its numbers of starts and of intermediate distributions

Data are read from the folder --data, or the environment variable FASTMF_DATA.
"""

# Other options than the defaults, for images that are few.
OPTIONS = {"binary": {}, "real": {}, "faces": {"batch_size": 20, "l2": 0.01}}
# Smallest number of solutions whose free energies have a kernel density.
MIN_OF_DENSITY = 10
# Images on which the pseudo-likelihood is evaluated.
PSEUDO_ROWS = 200


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.epochs, options.rows, options.starts, options.hidden = 6, 2000, 500, 30
    folder = options.output or Path("results") / f"landscape-{options.dataset}"
    folder.mkdir(parents=True, exist_ok=True)
    train, test = (
        experiment.images(options.dataset, options.data, split) for split in ("train", "test")
    )
    X, X_test = train.X[: options.rows], test.X[: options.test_rows]
    epochs = options.follow or range(1, options.epochs + 1)
    models = trained(X, options, sorted({e for e in epochs if e <= options.epochs}), folder)
    found = [followed(*each, X, X_test, options, folder) for each in models.items()]
    free_energies(found, folder)
    chosen = sorted({round(k) for k in np.geomspace(1, len(found), options.maps)})
    shown = [found[k - 1] for k in chosen]
    densities(shown, folder)
    maps(shown, X[: options.starts], train.shape, folder)
    if options.dataset == "binary":
        quality(found, folder)


def parser():
    whole = experiment.parser(__doc__, EPILOG)
    add = whole.add_argument
    add("--dataset", choices=OPTIONS, default="binary",
        help="digits, black and white or grey, or grey faces [binary]")  # fmt: skip
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--epochs", type=int, default=20, metavar="N", help="[20]")
    add("--rows", type=int, metavar="N", help="training images [all 60,000]")
    add("--test-rows", type=int, default=1000, metavar="N", help="test images [1000]")
    add("--learning-rate", type=float, metavar="RATE", help="[0.05, or the paper's]")
    add("--paper", action="store_true",
        help="the paper's settings: its rates and weight decay, and no centring")  # fmt: skip
    add("--follow", type=int, nargs="+", metavar="EPOCH", help="epochs that are followed [all]")
    add("--method", default="tap", metavar="NAME", help="gradient: tap, mean_field, cd, pcd [tap]")
    add("--starts", type=int, default=3000, metavar="N", help="images to start from [3000]")
    add("--steps", type=int, default=300, metavar="N", help="of annealed importance sampling [300]")
    add("--maps", type=int, default=3, metavar="N", help="epochs that maps are drawn of [3]")
    add("--threads", type=int, metavar="N", help="[all]")
    add("--seed", type=int, default=0, metavar="N", help="[0]")
    add("--data", metavar="FOLDER", help="where MNIST is [$FASTMF_DATA]")
    add("--output", type=Path, metavar="FOLDER", help="[results/landscape-DATASET]")
    add("--quick", action="store_true", help="30 hidden units, 6 epochs, 2000 images, 500 starts")
    add("--quiet", action="store_true", help="no progress bar")
    return whole


class Found(NamedTuple):
    """What is known of the machine of an epoch; the measures of binary images only."""

    epoch: int
    landscape: Solutions
    annealed: float = np.nan
    reverse: float = np.nan
    error: float = np.nan
    unnormalised: float = np.nan
    pseudo: float = np.nan


def trained(X, options, epochs, folder):
    """The models after some epochs of training."""
    paths = {epoch: folder / f"machine-{epoch}.npz" for epoch in epochs}

    def save(state):
        if state.epoch in paths:
            state.model.save(paths[state.epoch])

    of_images = experiment.PAPER if options.paper else OPTIONS
    settings = {"learning_rate": 0.05} | of_images[options.dataset]
    if options.learning_rate:
        settings["learning_rate"] = options.learning_rate
    machine = mf.GeneralizedRBM(
        options.hidden,
        visible=experiment.VISIBLE[options.dataset],
        gradient=options.method,
        centred=not options.paper,
        n_epochs=options.epochs,
        callbacks=[save],
        checkpoint=folder / "checkpoint.npz",
        n_threads=options.threads,
        random_state=options.seed,
        verbose=int(not options.quiet),
        **settings,
    )
    machine.fit(X).save(folder / "rbm.npz")
    return {epoch: mf.load(path) for epoch, path in paths.items()}


def followed(epoch, model, X, X_test, options, folder):
    """Solutions and measures of a model, from their file if there is one."""
    path = folder / f"found-{epoch}.npz"
    if path.exists():
        with np.load(path) as file:
            values = dict(file)
        landscape = Solutions(*(values.pop(name) for name in Solutions._fields))
        return Found(epoch, landscape, **{name: float(value) for name, value in values.items()})
    starts, threads = X[: options.starts], {"n_threads": options.threads}
    landscape = solutions(model, starts, tol=1e-6, **threads)
    values = {}
    if options.dataset == "binary":
        annealed = mf.annealed_importance_sampling(
            model, n_steps=options.steps, data=starts, rng=options.seed, **threads
        )
        values = {
            "annealed": annealed.log_partition,
            "reverse": annealed.reverse,
            "error": annealed.error,
            "unnormalised": log_likelihood(model, X_test, 0.0).mean(),
            "pseudo": mf.pseudo_log_likelihood(model, X_test[:PSEUDO_ROWS]).mean(),
        }
    np.savez(path, **landscape._asdict(), **values)
    free_energy, counts = landscape.free_energy, landscape.counts
    print(
        f"epoch {epoch}: {len(free_energy)} solutions, "
        f"free energy {free_energy[0]:.1f} to {free_energy[-1]:.1f}, "
        f"largest basin {counts.max() / counts.sum():.0%} of the starts, "
        f"{np.sum(~landscape.converged)} not converged",
        flush=True,
    )
    return Found(epoch, landscape, **values)


def free_energies(found, folder):
    """How the solutions spread in free energy as the machine learns."""
    epochs, landscapes = [each.epoch for each in found], [each.landscape for each in found]
    experiment.picture(
        plotting.free_energy_by_epoch(epochs, landscapes), folder / "free-energy.png"
    )
    rows, summary = [], []
    for epoch, each in zip(epochs, landscapes, strict=True):
        free_energy = each.free_energy
        rows += [(epoch, f, n) for f, n in zip(free_energy, each.counts, strict=True)]
        ends = free_energy.mean(), free_energy.min(), free_energy.max()
        summary.append((epoch, len(free_energy), each.converged.sum(), *ends))
    experiment.table(folder / "free-energy.csv", ("epoch", "free_energy", "starts"), rows)
    header = "epoch", "solutions", "converged", "mean_free_energy", "lowest", "highest"
    experiment.table(folder / "solutions.csv", header, summary)


def densities(found, folder):
    """Distributions of the free energies of the solutions, each of which counts once."""
    figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 3), squeeze=False)
    for ax, each in zip(axes[0], found, strict=True):
        free_energy = each.landscape.free_energy
        ax.hist(free_energy, bins="auto", density=True, color="C0", alpha=0.4)
        if len(free_energy) >= MIN_OF_DENSITY:
            where = np.linspace(free_energy.min(), free_energy.max(), 200)
            ax.plot(where, gaussian_kde(free_energy)(where), color="C0")
        ax.axvline(free_energy.mean(), color="C1", linestyle="--")
        ax.set_title(f"epoch {each.epoch}: {len(free_energy)} solutions")
        ax.set_xlabel("free energy (nats)")
    figure.tight_layout()
    experiment.picture(figure, folder / "densities.png")
    plt.close(figure)


def maps(shown, starts, shape, folder):
    """Maps of some epochs, in one embedding, and the data that fall to each solution."""
    found = [each.landscape for each in shown]
    together = np.concatenate([each.visible for each in found])
    points = isomap(together) if len(together) > 2 else np.zeros((len(together), 2))
    ends = np.cumsum([len(each.visible) for each in found])[:-1]
    rows = []
    for (epoch, each, *_), where in zip(shown, np.split(points, ends), strict=True):
        experiment.picture(
            plotting.solution_map(where, each, shape=shape), folder / f"map-{epoch}.png"
        )
        experiment.picture(
            plotting.solutions_and_data(each, starts, shape), folder / f"data-{epoch}.png"
        )
        rows += [(epoch, *xy, f) for xy, f in zip(where, each.free_energy, strict=True)]
    experiment.table(folder / "map.csv", ("epoch", "x", "y", "free_energy"), rows)


def quality(found, folder):
    """Likelihoods by TAP and by annealing, and the pseudo-likelihood, nats per unit."""
    landscapes, epochs = [each.landscape for each in found], [each.epoch for each in found]
    n_units = landscapes[0].visible.shape[1] + landscapes[0].hidden.shape[1]
    log_partitions = {
        "TAP, log-sum-exp": [np.logaddexp.reduce(each.log_partition) for each in landscapes],
        "TAP, mean": [each.log_partition.mean() for each in landscapes],
        "AIS": [each.annealed for each in found],
        "reverse AIS": [each.reverse for each in found],
    }
    numerator = np.array([each.unnormalised for each in found])
    curves = {name: (numerator - z) / n_units for name, z in log_partitions.items()}
    curves["pseudo-likelihood"] = np.array([each.pseudo for each in found]) / n_units
    errors = {"AIS": [each.error / n_units for each in found]}
    experiment.picture(
        plotting.curves_by_epoch(epochs, curves, errors=errors), folder / "quality.png"
    )
    rows = zip(epochs, *curves.values(), strict=True)
    experiment.table(folder / "quality.csv", ("epoch", *curves), rows)
    for name, curve in curves.items():
        print(f"{name:18}" + "".join(f"{value * n_units:9.2f}" for value in curve))


if __name__ == "__main__":
    experiment.run(main, "interrupted; the same command resumes after the last epoch")
