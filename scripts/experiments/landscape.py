#!/usr/bin/env python3
"""The free-energy landscape of a TAP machine during training, and three measures of its quality.

After Figs. 5 to 7 and 12 of Tramel et al., Phys. Rev. X 8 (2018) 041006. Trains one machine on
MNIST or on faces and writes, as PNG and CSV, into a folder:

  free-energy    free energies of the distinct TAP solutions reached from data, by epoch
  map-E          Isomap of the solutions of epoch E, those of all epochs shown embedded together
  data-E         the solutions most data fall to, each followed by some of these data
  quality        log-likelihood of test images per unit by TAP (log-sum-exp, and the paper's mean
                 over solutions), by annealed importance sampling, and the pseudo-likelihood, by
                 epoch (binary images only)

and the machine as rbm.npz.
"""

from pathlib import Path

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import Tracker, isomap, log_likelihood, solutions

EPILOG = """\
examples:
  python scripts/experiments/landscape.py --quick
      a few epochs on 2,000 images: does it run?
  python scripts/experiments/landscape.py --rows 10000 --epochs 20 --learning-rate 0.05
      a good machine in minutes
  python scripts/experiments/landscape.py --dataset faces --starts 2400 --epochs 100

Data are read from the folder --data, or the environment variable FASTMF_DATA.
"""

# Other options than the defaults, for images that are few.
OPTIONS = {"binary": {}, "real": {}, "faces": {"batch_size": 20, "l2": 0.01}}
# Images on which the pseudo-likelihood is evaluated.
PSEUDO_ROWS = 200


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.epochs, options.rows, options.starts, options.hidden = 6, 2000, 500, 30
    folder = options.output or Path("results") / f"landscape-{options.dataset}"
    folder.mkdir(parents=True, exist_ok=True)
    binary = options.dataset == "binary"
    train, test = (
        experiment.images(options.dataset, options.data, split) for split in ("train", "test")
    )
    X, X_test = train.X[: options.rows], test.X[: options.test_rows]
    tracker = trained(X, X_test, options, binary, folder)
    free_energies(tracker, folder)
    maps(tracker, X[: options.starts], train.shape, options.maps, folder)
    if binary:
        quality(tracker, folder)


def parser():
    whole = experiment.parser(__doc__, EPILOG)
    add = whole.add_argument
    add("--dataset", choices=OPTIONS, default="binary",
        help="digits, black and white or grey, or grey faces [binary]")  # fmt: skip
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--epochs", type=int, default=20, metavar="N", help="[20]")
    add("--rows", type=int, metavar="N", help="training images [all 60,000]")
    add("--test-rows", type=int, default=1000, metavar="N", help="test images [1000]")
    add("--learning-rate", type=float, default=0.05, metavar="RATE", help="[0.05]")
    add("--method", default="tap", metavar="NAME", help="gradient: tap, mean_field, cd, pcd [tap]")
    add("--starts", type=int, default=3000, metavar="N", help="images to start from [3000]")
    add("--steps", type=int, default=300, metavar="N", help="of annealed importance sampling [300]")
    add("--maps", type=int, default=3, metavar="N", help="epochs that maps are drawn of [3]")
    add("--seed", type=int, default=0, metavar="N", help="[0]")
    add("--data", metavar="FOLDER", help="where MNIST is [$FASTMF_DATA]")
    add("--output", type=Path, metavar="FOLDER", help="[results/landscape-DATASET]")
    add("--quick", action="store_true", help="30 hidden units, 6 epochs, 2000 images, 500 starts")
    add("--quiet", action="store_true", help="no progress bar")
    return whole


def trained(X, X_test, options, binary, folder):
    """A tracker that has followed a machine through training."""
    starts = X[: options.starts]
    quantities = {"landscape": lambda model: solutions(model, starts, tol=1e-6)}
    if binary:
        quantities |= {
            "annealed": lambda model: mf.annealed_importance_sampling(
                model, n_steps=options.steps, data=starts, rng=options.seed
            ),
            "unnormalised": lambda model: log_likelihood(model, X_test, 0.0).mean(),
            "pseudo": lambda model: mf.pseudo_log_likelihood(model, X_test[:PSEUDO_ROWS]).mean(),
        }
    tracker = Tracker(**quantities)
    machine = mf.GeneralizedRBM(
        options.hidden,
        visible=experiment.VISIBLE[options.dataset],
        gradient=options.method,
        learning_rate=options.learning_rate,
        n_epochs=options.epochs,
        callbacks=[tracker],
        random_state=options.seed,
        verbose=int(not options.quiet),
        **OPTIONS[options.dataset],
    )
    machine.fit(X)
    machine.save(folder / "rbm.npz")
    return tracker


def free_energies(tracker, folder):
    """How the solutions spread in free energy as the machine learns."""
    landscapes = tracker.values["landscape"]
    experiment.picture(
        plotting.free_energy_by_epoch(tracker.epoch, landscapes), folder / "free-energy.png"
    )
    rows = [
        (epoch, f, n)
        for epoch, found in zip(tracker.epoch, landscapes, strict=True)
        for f, n in zip(found.free_energy, found.counts, strict=True)
    ]
    experiment.table(folder / "free-energy.csv", ("epoch", "free_energy", "starts"), rows)
    for epoch, found in zip(tracker.epoch, landscapes, strict=True):
        print(
            f"epoch {epoch}: {len(found.free_energy)} solutions, "
            f"free energy {found.free_energy[0]:.1f} to {found.free_energy[-1]:.1f}, "
            f"largest basin {found.counts.max() / found.counts.sum():.0%} of the starts, "
            f"{np.sum(~found.converged)} not converged"
        )


def maps(tracker, starts, shape, n_maps, folder):
    """Maps of some epochs, in one embedding, and the data that fall to each solution."""
    landscapes = tracker.values["landscape"]
    last = len(landscapes) - 1
    chosen = sorted({round(k) for k in np.geomspace(1, last + 1, n_maps)})
    found = [landscapes[k - 1] for k in chosen]
    together = np.concatenate([each.visible for each in found])
    points = isomap(together) if len(together) > 2 else np.zeros((len(together), 2))
    ends = np.cumsum([len(each.visible) for each in found])[:-1]
    rows = []
    for k, each, where in zip(chosen, found, np.split(points, ends), strict=True):
        epoch = tracker.epoch[k - 1]
        experiment.picture(
            plotting.solution_map(where, each, shape=shape), folder / f"map-{epoch}.png"
        )
        experiment.picture(
            plotting.solutions_and_data(each, starts, shape), folder / f"data-{epoch}.png"
        )
        rows += [(epoch, *xy, f) for xy, f in zip(where, each.free_energy, strict=True)]
    experiment.table(folder / "map.csv", ("epoch", "x", "y", "free_energy"), rows)


def quality(tracker, folder):
    """Likelihoods by TAP and by annealing, and the pseudo-likelihood, nats per unit."""
    values = tracker.values
    n_units = sum(
        each.shape[1] for each in (values["landscape"][0].visible, values["landscape"][0].hidden)
    )
    numerator = np.array(values["unnormalised"])
    annealed = values["annealed"]
    curves = {
        "TAP, log-sum-exp": [
            np.logaddexp.reduce(found.log_partition) for found in values["landscape"]
        ],
        "TAP, mean": [found.log_partition.mean() for found in values["landscape"]],
        "AIS": [found.log_partition for found in annealed],
        "reverse AIS": [found.reverse for found in annealed],
    }
    curves = {name: (numerator - z) / n_units for name, z in curves.items()}
    curves["pseudo-likelihood"] = np.array(values["pseudo"]) / n_units
    errors = {"AIS": [found.error / n_units for found in annealed]}
    experiment.picture(
        plotting.curves_by_epoch(tracker.epoch, curves, errors=errors), folder / "quality.png"
    )
    rows = zip(tracker.epoch, *curves.values(), strict=True)
    experiment.table(folder / "quality.csv", ("epoch", *curves), rows)
    for name, curve in curves.items():
        print(f"{name:18}" + "".join(f"{value * n_units:9.2f}" for value in curve))


if __name__ == "__main__":
    experiment.run(main)
