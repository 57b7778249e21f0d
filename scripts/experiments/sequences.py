"""Machines of categorical units on alignments of sequences: contacts, likelihoods, solutions, time.

Four models of each family are fitted; the family "chain" is drawn from a known chain of positions.
Writes contacts.csv, models.csv and precision.png into the folder --output.
"""

from typing import NamedTuple

import experiment
import numpy as np

import fastmf as mf
from fastmf.datasets import load_alignment, sequence_weights
from fastmf.evaluation import (
    annealed_importance_sampling,
    contact_precision,
    effective_couplings,
    log_likelihood,
)


class Family(NamedTuple):
    """An alignment, and the distances of its columns if the structure is known."""

    file: str
    alphabet: str
    focus: str | None = None
    distances: str | None = None


FAMILIES = {
    "PF00014": Family("PF00014.fasta", "protein", distances="PF00014_distances.txt"),
    "DHFR": Family("DHFR.a2m", "protein", "DYR_ECOLI", "DHFR_distances.txt"),
    "RF00162": Family("RF00162.fasta", "rna"),
    "RF00379": Family("RF00379.fasta", "rna"),
}
METHODS = "mean-field inversion", "pseudo-likelihood", "RBM, TAP", "RBM, PCD"
RBM = {
    "visible": "categorical", "batch_size": 100, "weight_scale": 0.01,
    "learning_rate": (0.05, 0.0025), "l2": 0.001,
}  # fmt: skip
OF_METHOD = {
    "RBM, TAP": {"gradient": "tap", "n_sweeps": 3},
    "RBM, PCD": {"gradient": "pcd", "n_sweeps": 5, "n_starts": 300, "momentum": 0.0},
}
CHAIN_POSITIONS, CHAIN_STATES, CHAIN_ROWS = 40, 4, 3000
CONTACT, SEPARATION = 8.0, 5
# By the best pairs: a half of the number of positions, this number, and twice.
PRECISIONS = "ppv_half", "ppv", "ppv_double"
COLUMNS = (
    *("family", "method", "rows", "effective_rows", "seconds", *PRECISIONS),
    *("test_log_likelihood", "annealing_error", "annealing_gap"),
    "solutions",
)


class Data(NamedTuple):
    """Sequences to learn from, others to test, and the distances of columns or None."""

    X: np.ndarray
    weights: np.ndarray
    test: np.ndarray
    test_weights: np.ndarray
    distances: np.ndarray | None
    separation: int


def main(argv=None):
    made = experiment.Parser(
        __doc__, "seed", "data", "output", quick={"families": ["chain"], "epochs": 3, "hidden": 10},
        hidden=100, epochs=200,
    )  # fmt: skip
    made.add_argument("families", nargs="*", help=f"chain, {', '.join(FAMILIES)} [all]")
    options = made.parse_args(argv)
    folder = experiment.folder(options, "sequences")
    models, curves = [], []
    for family in options.families or ["chain", *FAMILIES]:
        data = chain() if family == "chain" else load(FAMILIES[family], options.data)
        for method in METHODS:
            model, scores, seconds = fitted(family, method, data, folder, options)
            row = dict.fromkeys(COLUMNS, "")
            row |= {"family": family, "method": method, "rows": len(data.X)}
            row |= {"effective_rows": round(float(data.weights.sum()), 1)}
            row |= {"seconds": round(seconds, 1)}
            if data.distances is not None:
                n = len(scores)
                tops = np.unique(np.geomspace(1, 3 * n, 40).astype(int))
                shares = contact_precision(
                    scores, data.distances, [n // 2, n, 2 * n, *tops],
                    separation=data.separation, cutoff=CONTACT,
                ).tolist()  # fmt: skip
                row |= zip(PRECISIONS, (round(share, 3) for share in shares[:3]), strict=True)
                points = zip(tops, (round(share, 4) for share in shares[3:]), strict=True)
                curves += [(family, method, *point) for point in points]
            if method in OF_METHOD:
                row |= likelihood(model, data, options.quick)
                solutions = model.solutions(data.X.astype(np.float32), merge_tol=0.05)
                row["solutions"] = len(solutions.log_partition)
            models.append(row)
            print(*(f"{name} {value}" for name, value in row.items()), sep="  ", flush=True)
    experiment.table_of(folder / "models.csv", models)
    experiment.table(folder / "contacts.csv", ("family", "method", "n", "precision"), curves)
    draw(curves, folder / "precision.png")


def load(family, folder):
    """The alignment of a family, a tenth of it set aside."""
    path = experiment.in_folder(folder, f"sequences/{family.file}")
    X = load_alignment(path, family.alphabet, family.focus).X
    distances = None if family.distances is None else np.loadtxt(path.parent / family.distances)
    return divided(X, distances, SEPARATION)


def chain():
    """Rows of a chain: each position's state depends on that of the one before."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, CHAIN_STATES, (CHAIN_ROWS, CHAIN_POSITIONS))
    for position in range(1, CHAIN_POSITIONS):
        linked = rng.random(CHAIN_ROWS) < 0.5
        X[linked, position] = (X[linked, position - 1] + position) % CHAIN_STATES
    positions = np.arange(CHAIN_POSITIONS)
    # Neighbours are in contact, all others are far apart.
    distances = np.where(abs(positions[:, None] - positions) <= 1, 1.0, 100.0)
    return divided(X.astype(np.int8), distances, 1)


def divided(X, distances, separation):
    """Nine tenths to learn from, weighted, and a tenth to test."""
    order = np.random.default_rng(0).permutation(len(X))
    test, train = X[order[: len(X) // 10]], X[order[len(X) // 10 :]]
    weights = sequence_weights(train), sequence_weights(test)
    return Data(train, weights[0], test, weights[1], distances, separation)


def fitted(family, method, data, folder, options):
    """A model and its contact scores, from a file if there is one, and the seconds of the fit."""
    path = folder / f"{family}-{method}.npz".replace(", ", "-").replace(" ", "-")
    X = data.X.astype(np.float32) if method in OF_METHOD else data.X
    estimator, seconds = experiment.from_file(
        path,
        mf.GeneralizedRBM if method in OF_METHOD else mf.PottsMachine,
        lambda: unfitted(method, data, options).fit(X, sample_weight=data.weights),
    )
    if method not in OF_METHOD:
        return estimator, estimator.contact_scores(), seconds
    couplings = effective_couplings(estimator.model_, data.X, sample_weight=data.weights)
    return estimator, mf.evaluation.contact_scores(couplings), seconds


def unfitted(method, data, options):
    """The estimator of a method."""
    n_states = int(data.X.max()) + 1
    if method == "mean-field inversion":
        return mf.PottsMachine(solver="naive_mean_field", n_states=n_states)
    if method == "pseudo-likelihood":
        # plmc's usual penalty: 0.2 for each other position and state.
        n_others = (data.X.shape[1] - 1) * (n_states - 1)
        l2 = 2 * 0.01 * n_others / data.weights.sum()
        return mf.PottsMachine(n_states=n_states, l2=l2, l2_field=l2, tol=1.0)
    return mf.GeneralizedRBM(
        options.hidden, n_epochs=options.epochs, random_state=options.seed,
        **RBM | OF_METHOD[method],
    )  # fmt: skip


def likelihood(estimator, data, quick):
    """Weighted log-likelihood of the test sequences, by annealing, in nats a sequence."""
    n_steps, most = (100, 100) if quick else (1000, 8000)
    annealed = annealed_importance_sampling(
        estimator.model_, n_chains=200, n_steps=n_steps, max_steps=most, rng=0
    )
    values = log_likelihood(estimator.model_, data.test, annealed.log_partition)
    mean = float(np.average(values, weights=data.test_weights))
    return {
        "test_log_likelihood": round(mean, 3),
        "annealing_error": round(annealed.error, 3),
        "annealing_gap": round(annealed.reverse - annealed.log_partition, 3),
    }


def draw(curves, path):
    """Precision against the number of pairs, one panel a family."""
    from matplotlib.figure import Figure

    families = list(dict.fromkeys(row[0] for row in curves))
    if not families:
        return
    figure = Figure(figsize=(4 * len(families), 3.2), layout="constrained")
    panels = figure.subplots(1, len(families), squeeze=False)[0]
    for axes, family in zip(panels, families, strict=True):
        for method in METHODS:
            points = [row[2:] for row in curves if row[:2] == (family, method)]
            axes.plot(*zip(*points, strict=True), label=method)
        axes.set(title=family, xscale="log", xlabel="pairs", ylim=(0, 1.02))
    panels[0].set_ylabel("precision")
    panels[-1].legend(fontsize="small")
    experiment.picture(figure, path)


if __name__ == "__main__":
    experiment.run(main)
