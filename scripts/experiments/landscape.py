"""The free-energy landscape of a TAP machine during training, and three measures of its quality.

After Tramel et al., Phys. Rev. X 8 (2018) 041006. Writes free-energy, densities (Fig. 5), maps
(Fig. 6), data-map and data-E (Fig. 7) and quality (Fig. 12) as PNG, solutions (Fig. 5) and quality
as CSV into a folder, and the machines of epochs with their solutions. Results: tap_machines.md.
"""

import warnings

import experiment
import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import find_peaks
from scipy.stats import gaussian_kde
from sklearn.manifold import Isomap

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import Solutions, log_likelihood, solutions

# Smallest number of solutions whose free energies have a kernel density.
MIN_OF_DENSITY = 10
# Modes are maxima of the density that have at least this part of the highest one.
LOWEST_MODE = 0.05
# Images on which the pseudo-likelihood is evaluated.
PSEUDO_ROWS = 200
# Largest number of data on the map of data; neighbours of a point on maps.
MAP_ROWS, NEIGHBORS = 3000, 10
MAPS = {"sharex": "row", "sharey": "row", "subplot_kw": {"xticks": [], "yticks": []}}
# Digits on the map of data.
DIGITS = 3, 6, 7


def main(argv=None):
    options = parser().parse_args(argv)
    folder = experiment.folder(options, f"landscape-{options.dataset}")
    train, test = experiment.train_and_test(options.dataset, options)
    X, X_test = train.X, test.X
    epochs = options.follow or range(1, options.epochs + 1)
    models = trained(X, options, sorted({e for e in epochs if e <= options.epochs}), folder)
    early = [followed(*each, X, X_test, options, folder) for each in first_steps(X, options)]
    epochs_followed = [followed(*each, X, X_test, options, folder) for each in models.items()]
    free_energies(early, epochs_followed, folder)
    shown = [each for each in epochs_followed if each[0] in options.maps] or epochs_followed[-1:]
    densities(shown, folder)
    maps(shown, X[: options.starts], train.shape, folder)
    labels = None if train.labels is None else train.labels[: options.starts]
    data_map(shown, X[: options.starts], labels, folder)
    quality(epochs_followed, folder)


def parser():
    return experiment.Parser(
        __doc__, "seed", "threads", "data", "output", "dataset",
        quick={"epochs": 6, "rows": 2000, "starts": 500, "hidden": 30},
        hidden=100, epochs=20, rows=(int, "training images"), starts=(3000, "images to start from"),
        learning_rate=(float, "[0.05, or the paper's]"),
        paper=(False, "the paper's settings: its rates, and no centring"),
        follow=([int], "epochs that are followed [all]"),
        sweeps=(3, "of TAP a step of learning"),
        early=([int], "steps of the first epoch after which it is followed, too [none]"),
        tol=(1e-6, "to which solutions are solved"), steps=(300, "of annealing"),
        maps=([1, 3, 25, 100], "epochs that maps are drawn of, if followed; else the last"),
    )  # fmt: skip


def trained(X, options, epochs, folder):
    """The models after some epochs of training."""
    paths = {epoch: folder / f"machine-{epoch}.npz" for epoch in epochs}

    def save(state):
        if state.epoch in paths:
            state.model.save(paths[state.epoch])

    machine = learner(options, options.epochs).set_params(
        callbacks=[save, mf.evaluation.Checkpoint(folder / "checkpoint.npz")]
    )
    machine.fit(X).save(folder / "rbm.npz")
    return {epoch: mf.load(path) for epoch, path in paths.items()}


def learner(options, n_epochs):
    """A machine that has learned nothing."""
    rate = options.learning_rate or (None if options.paper else 0.05)
    settings = {"learning_rate": rate} if rate else {}
    return experiment.machine(
        options, options.hidden, gradient="tap", centred=not options.paper, n_epochs=n_epochs,
        n_sweeps=options.sweeps, n_threads=options.threads, **settings,
    )  # fmt: skip


def first_steps(X, options):
    """Fractions of the first epoch, and models after these steps, with units fitted to all rows."""
    done, machine = 0, learner(options, 0).fit(X) if options.early else None
    for steps in sorted(options.early or ()):
        end = min(steps * machine.batch_size, len(X))
        for first in range(done, end, machine.batch_size):
            machine.partial_fit(X[first : first + machine.batch_size])
        done = end
        yield done / len(X), machine.model_


# Arrays of `Solutions`, all but the results of the solver.
STORED = Solutions._fields[:-1]


def followed(epoch, model, X, X_test, options, folder):
    """The epoch, and solutions and measures of a model, from their file if there is one."""
    path = folder / f"found-{epoch:g}.npz"
    if not path.exists():
        landscape, values = measured(model, X[: options.starts], X_test, options)
        np.savez(path, **{name: getattr(landscape, name) for name in STORED}, **values)
        free_energy, counts = landscape.free_energy, landscape.counts
        print(
            f"epoch {epoch:g}: {len(free_energy)} solutions, "
            f"free energy {free_energy[0]:.1f} to {free_energy[-1]:.1f}, "
            f"largest basin {counts.max() / counts.sum():.0%} of the starts, "
            f"{np.sum(~landscape.converged)} not converged",
            flush=True,
        )
    with np.load(path) as file:
        values = dict(file)
    return epoch, Solutions(*map(values.pop, STORED)), values


def measured(model, starts, X_test, options):
    """Solutions, and sums for likelihoods, of binary images by sampling, too."""
    threads = {"n_threads": options.threads}
    landscape = solutions(model, starts, tol=options.tol, **threads)
    values = {
        "test": log_likelihood(model, X_test, 0.0).mean(),
        "train": log_likelihood(model, starts, 0.0).mean(),
    }
    if options.dataset == "binary":
        annealed = mf.evaluation.annealed_importance_sampling(
            model, n_steps=options.steps, data=starts, rng=options.seed, **threads
        )
        values |= {
            "annealed": annealed.log_partition,
            "reverse": annealed.reverse,
            "error": annealed.error,
            "pseudo": mf.evaluation.pseudo_log_likelihood(model, X_test[:PSEUDO_ROWS]).mean(),
        }
    return landscape, values


def free_energies(early, epochs_followed, folder):
    """How the solutions spread in free energy as the machine learns."""
    epochs, landscapes, _ = zip(*epochs_followed, strict=True)
    experiment.picture(
        plotting.free_energy_by_epoch(epochs, landscapes), folder / "free-energy.png"
    )
    summary = []
    for epoch, each, _ in [*early, *epochs_followed]:
        free_energy = each.free_energy
        share = len(free_energy) / each.counts.sum()
        ends = free_energy.mean(), free_energy.min(), free_energy.max()
        row = (epoch, len(free_energy), each.converged.sum(), share, *ends, modes(free_energy))
        summary.append(row)
    header = "epoch", "solutions", "converged", "share_of_starts", "mean_free_energy", "lowest", \
        "highest", "modes"  # fmt: skip
    experiment.table(folder / "solutions.csv", header, summary)


def density(free_energy):
    """Free energies, and the kernel density of the solutions there."""
    where = np.linspace(free_energy.min(), free_energy.max(), 200)
    return where, gaussian_kde(free_energy)(where)


def modes(free_energy):
    """The number of maxima of the density; of few solutions their number."""
    if len(free_energy) < MIN_OF_DENSITY:
        return len(free_energy)
    _, values = density(free_energy)
    return len(find_peaks(np.pad(values, 1), height=LOWEST_MODE * values.max())[0])


def panels(n_rows, shown, **options):
    """A figure, and axes in a column for each epoch."""
    size = 3.5 * len(shown), 3 * n_rows
    return plt.subplots(
        n_rows, len(shown), figsize=size, squeeze=False, layout="constrained", **options
    )


def densities(shown, folder):
    """Distributions of the free energies of the solutions, each of which counts once."""
    figure, axes = panels(1, shown)
    for ax, (epoch, landscape, _) in zip(axes[0], shown, strict=True):
        free_energy = landscape.free_energy
        ax.hist(free_energy, bins="auto", density=True, color="C0", alpha=0.4)
        if len(free_energy) >= MIN_OF_DENSITY:
            ax.plot(*density(free_energy), color="C0")
        ax.axvline(free_energy.mean(), color="C1", linestyle="--")
        ax.set_title(f"epoch {epoch}: {len(free_energy)} solutions")
        ax.set_xlabel("free energy (nats)")
    experiment.picture(figure, folder / "densities.png")


def maps(shown, starts, shape, folder):
    """Solutions by free energy on the Isomap of the last epoch, and data that fall to each."""
    figure, axes = panels(2, shown, **MAPS)
    for layer, row in zip(("visible", "hidden"), axes, strict=True):
        place = embedding(getattr(shown[-1][1], layer))
        for ax, (epoch, each, _) in zip(row, shown, strict=True):
            points = place(getattr(each, layer))
            drawn = ax.scatter(*points.T, s=6, c=each.free_energy, cmap="viridis")
            figure.colorbar(drawn, ax=ax)
            ax.set_title(f"epoch {epoch}: {layer} means")
            if layer == "visible":
                pictures = plotting.image_rows(basins(each, starts), shape)
                experiment.picture(pictures, folder / f"data-{epoch}.png")
    experiment.picture(figure, folder / "maps.png")


def basins(landscape, starts, n_data=12):
    """Rows of images: the solutions most starts lead to, each followed by data that lead to it."""
    rows = {}
    for k in np.argsort(-landscape.counts, kind="stable")[:10]:
        blank = np.full((n_data, starts.shape[1]), np.nan)
        images = [landscape.visible[k], starts[landscape.members == k][:n_data], blank]
        rows[f"{k + 1}: {landscape.counts[k]} of {len(starts)}"] = np.vstack(images)[: n_data + 1]
    return rows


def embedding(points):
    """A function that places rows on the Isomap of some points."""
    if len(points) < 4:
        return lambda rows: np.zeros((len(rows), 2))
    isomap = Isomap(n_neighbors=min(NEIGHBORS, len(points) - 1))
    with warnings.catch_warnings():
        # Components of the graph of neighbours are connected where they are closest.
        warnings.simplefilter("ignore")
        isomap.fit(points)
    return isomap.transform


def data_map(shown, starts, labels, folder):
    """Fig. 7: the solutions to which data lead on the Isomap of the data."""
    chosen = np.ones(len(starts), bool) if labels is None else np.isin(labels, DIGITS)
    chosen = np.flatnonzero(chosen)[:MAP_ROWS]
    names = np.full(len(chosen), "data") if labels is None else labels[chosen].astype(str)
    place, (figure, axes) = embedding(starts[chosen]), panels(1, shown, **MAPS)
    points = place(starts[chosen])
    for ax, (epoch, landscape, _) in zip(axes[0], shown, strict=True):
        for name in np.unique(names):
            ax.scatter(*points[names == name].T, s=4, alpha=0.4, label=name)
        reached = np.unique(landscape.members[chosen])
        at = place(landscape.visible[reached])
        ax.scatter(*at.T, s=14, color="black", marker="x", linewidths=0.8, label="solutions")
        ax.set_title(f"epoch {epoch}: {len(reached)} solutions")
    axes[0, 0].legend(fontsize=8)
    experiment.picture(figure, folder / "data-map.png")


def quality(epochs_followed, folder):
    """Likelihoods by TAP and by annealing, and the pseudo-likelihood, nats per unit."""
    epochs, landscapes, measures = zip(*epochs_followed, strict=True)
    n_units = landscapes[0].visible.shape[1] + landscapes[0].hidden.shape[1]
    columns = {name: np.array([each[name] for each in measures]) for name in measures[0]}
    sums = np.array([np.logaddexp.reduce(each.log_partition) for each in landscapes])
    means = np.array([each.log_partition.mean() for each in landscapes])
    test, train, errors = columns["test"], columns["train"], None
    curves = {
        "TAP, log-sum-exp": test - sums,
        "TAP, mean": test - means,
        "training, log-sum-exp": train - sums,
        "training, mean": train - means,
    }
    if "annealed" in columns:
        curves |= {
            "AIS": test - columns["annealed"],
            "reverse AIS": test - columns["reverse"],
            "pseudo-likelihood": columns["pseudo"],
        }
        errors = {"AIS": columns["error"] / n_units}
    curves = {name: curve / n_units for name, curve in curves.items()}
    drawn = plotting.curves_by_epoch(epochs, curves, errors=errors)
    experiment.picture(drawn, folder / "quality.png")
    rows = zip(epochs, *curves.values(), strict=True)
    experiment.table(folder / "quality.csv", ("epoch", *curves), rows)
    for name, curve in curves.items():
        print(f"{name:22}" + "".join(f"{value * n_units:9.2f}" for value in curve))


if __name__ == "__main__":
    experiment.run(main)
