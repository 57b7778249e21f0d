"""Calibration of networks: cover of intervals, and of probabilities of edges.

Tables are drawn exactly from machines whose states are enumerated, and each is fitted anew. Tables
without a maximum are left out, and counted.
"""

import os
import warnings
from functools import cache
from itertools import product

import experiment
import numpy as np
from matplotlib.figure import Figure
from scipy.special import logsumexp, ndtr, ndtri

import fastmf as mf

# Estimator, categories of an item, scale of couplings, smaller where scores spread more, and
# numbers of items of the tables of edges.
KINDS = {
    "binary": (mf.FullyVisibleBoltzmannMachine, 2, 1.0, (6, 10, 20)),
    "ordinal": (mf.OrdinalMachine, 3, 0.5, (5, 10)),
}
BINS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0 + 1e-9)
LEVEL = 0.95


# --- the truth ----------------------------------------------------------------------------------


def ring(rng, d):
    """Neighbours on a ring are coupled alike."""
    J = np.diag(np.full(d - 1, 0.8), 1)
    J[0, -1] = 0.8
    return J


def sparse(rng, d):
    """A third of the pairs are coupled."""
    return np.where(rng.random((d, d)) < 1 / 3, rng.normal(size=(d, d)), 0.0)


# Couplings above the diagonal, items (binary, ordinal), rows, and the mean of the thresholds.
DESIGNS = {
    "ring": (ring, (8, 5), 500, -0.5),
    "weak, both signs": (lambda rng, d: rng.normal(size=(d, d)) / 2, (6, 5), 500, 0.0),
    "sparse": (sparse, (9, 5), 1000, 0.0),
    # All pairs are coupled as by one common cause.
    "one factor": (lambda rng, d: np.outer(*[np.linspace(0.3, 0.9, d)] * 2), (6, 5), 800, -1.0),
    "rare": (sparse, (6, 5), 2000, -1.5),
}


def symmetric(J):
    """Couplings from their upper triangle."""
    return np.triu(J, 1) + np.triu(J, 1).T


@cache
def states_of(d, n_categories):
    """All states of some items, (n_categories^d, d), the last one fastest."""
    if d == 0:
        return np.zeros((1, 0))
    before = states_of(d - 1, n_categories)
    last = np.tile(np.arange(float(n_categories)), len(before))
    return np.column_stack([np.repeat(before, n_categories, axis=0), last])


class Truth:
    """A machine in {0, 1, ...} coding, with the probabilities of all its states.

    Couplings are of scores less the middle of their range, which changes thresholds alone: no
    category becomes rare because couplings are strong.
    """

    def __init__(self, couplings, thresholds):
        d, n_categories = thresholds.shape
        self.couplings, self.n_categories = couplings, n_categories
        self.states, middle, logs = states_of(d, n_categories), (n_categories - 1) / 2, np.zeros(1)
        for k in range(d):
            field = (states_of(k, n_categories) - middle) @ couplings[:k, k]
            of_last = thresholds[k] + np.multiply.outer(field, np.arange(n_categories) - middle)
            logs = (logs[:, None] + of_last).ravel()
        self.probabilities = np.exp(logs - logsumexp(logs))

    def fitted(self, rng, n_rows):
        """A machine that was fitted to a table; None if there is no maximum."""
        counts = rng.multinomial(n_rows, self.probabilities)
        rows, counts = self.states[counts > 0].astype(int), counts[counts > 0]
        if any(len(np.unique(column)) < self.n_categories for column in rows.T):
            return None
        kind = "binary" if self.n_categories == 2 else "ordinal"
        machine = KINDS[kind][0]().fit(rows, sample_weight=counts)
        return machine if machine.existence_.exists else None


def thresholds_of(rng, kind, d, mean):
    """Thresholds about a mean, zero of the category 0."""
    values = mean + rng.normal(size=(d, KINDS[kind][1])) / 2
    values[:, 0] = 0.0
    return values


# --- cover of intervals -------------------------------------------------------------------------


def covered(truth, machine):
    """How many couplings are in their intervals: by the sandwich, and by the curvature alone."""
    pairs, width = np.triu_indices(len(truth.couplings), 1), ndtri((1 + LEVEL) / 2)
    counts = []
    for errors in ("sandwich", "naive"):
        estimates = machine._edge_estimates(errors)
        distance = abs(estimates.values - truth.couplings[pairs])
        counts.append(int((distance < width * np.sqrt(estimates.covariance.diagonal())).sum()))
    return (len(pairs[0]), *counts)


def cover_of_table(kind, design, seed, k):
    """One line: couplings, and how many are covered; zeros if there is no maximum."""
    make, sizes, n_rows, mean = DESIGNS[design]
    rng = np.random.default_rng([seed, 1, list(DESIGNS).index(design)])
    d = sizes[kind == "ordinal"]
    couplings = symmetric(KINDS[kind][2] * make(rng, d))
    truth = Truth(couplings, thresholds_of(rng, kind, d, mean))
    machine = truth.fitted(np.random.default_rng([seed, 2, k]), n_rows)
    return (0, 0, 0) if machine is None else covered(truth, machine)


# --- probabilities of edges ---------------------------------------------------------------------


def edges_of_table(kind, items, seed, k):
    """Lines (probability, with naive errors, whether the edge is there, ranks) of one table.

    It is drawn from the prior. A rank is the posterior probability of couplings below the true one,
    and a random part of the weight of 0 if that is the truth: uniform, if calibrated.
    """
    rng, d, scale = np.random.default_rng([seed, 3, k]), int(items), KINDS[kind][2]
    present = np.triu(rng.random((d, d)) < 0.5, 1)
    couplings = np.where(present, scale * rng.normal(size=(d, d)), 0.0)
    truth = Truth(symmetric(couplings), thresholds_of(rng, kind, d, -0.5))
    machine = truth.fitted(rng, 400 if d < 10 else 1000)
    if machine is None:
        return []
    pairs, part = np.triu_indices(d, 1), rng.random(d * (d - 1) // 2)
    columns = []
    for errors in ("sandwich", "naive"):
        posterior = machine.edge_inclusion(0.5, scale, errors=errors)
        p, mean, std = (getattr(posterior, name)[pairs] for name in ("probability", "mean", "std"))
        # Of couplings that are not zero.
        mean, var = mean / p, np.maximum((std**2 + mean**2) / p - (mean / p) ** 2, 1e-12)
        below = p * ndtr((couplings[pairs] - mean) / np.sqrt(var))
        at_zero = np.where(present[pairs], couplings[pairs] > 0, part)
        columns.append((p, below + (1 - p) * at_zero))
    (p, rank), (naive, naive_rank) = columns
    return list(zip(p, naive, present[pairs].astype(int), rank, naive_rank, strict=True))


# --- tables ----------------------------------------------------------------------------------


def cover(tables):
    """The table of the designs."""
    names = "items", "design", "tables", "without maximum", "cover, sandwich", "naive"
    print(experiment.head(*names))
    rows = []
    for kind, design in product(KINDS, DESIGNS):
        counts = np.array(tables(cover_of_table, kind, design))
        without, total = int((counts[:, 0] == 0).sum()), counts.sum(0)
        rows.append((kind, design, total[1] / total[0], total[2] / total[0]))
        shown = (f"{value:.3f}" for value in rows[-1][2:])
        print(experiment.line(kind, design, len(counts), without, *shown), flush=True)
    return rows


def edges(tables):
    """The bins of probabilities, and ranks, for both kinds of items and both kinds of errors."""
    rows = []
    for kind, items in [(name, n) for name, (*_, sizes) in KINDS.items() for n in sizes]:
        lines_by_table = tables(edges_of_table, kind, str(items))
        without = sum(not lines for lines in lines_by_table)
        values = np.array([line for lines in lines_by_table for line in lines])
        for column, name in enumerate(("sandwich", "naive")):
            bins, error = experiment.calibration(values[:, column], values[:, 2], BINS)
            rows += [(f"{kind}, {items}", name, *row[:2]) for row in bins]
            tenths = np.histogram(values[:, 3 + column], 10, (0, 1))[0] / len(values)
            print(
                f"{kind}, {items} items, {name}: error {error:.4f} of {len(values)} pairs, "
                f"{without} tables without a maximum; {experiment.bins_of(bins)}; tenths of ranks "
                f"{' '.join(f'{share:.3f}' for share in tenths)}",
                flush=True,
            )
    return rows


def draw(covers, points, path):
    """Cover of each design, and fractions of edges by probability."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    cover_axes, edge_axes = figure.subplots(1, 2)
    for k, label in ((2, "sandwich"), (3, "naive")):
        cover_axes.plot([row[k] for row in covers], np.arange(len(covers)), "o", label=label)
    names = [f"{kind}, {design}" for kind, design, *_ in covers]
    cover_axes.set_yticks(np.arange(len(covers)), names, fontsize=7)
    cover_axes.axvspan(0.93, 0.97, alpha=0.15)
    cover_axes.set_xlabel(f"cover of {LEVEL:.0%} intervals")
    for names in dict.fromkeys(row[:2] for row in points):
        curve = zip(*(row[2:] for row in points if row[:2] == names), strict=True)
        edge_axes.plot(*curve, "s:" if "naive" in names else "o-", ms=4, label=", ".join(names))
    edge_axes.plot([0, 1], [0, 1], "k", lw=0.5)
    edge_axes.set(xlabel="probability of an edge", ylabel="fraction of edges that are there")
    for axes in (cover_axes, edge_axes):
        axes.legend(fontsize=7)
    experiment.picture(figure, path)


def main(argv=None):
    """Draw tables, and print what is covered."""
    options = experiment.Parser(
        __doc__, "seed", "output", quick={"tables": 20}, tables=(1000, "of a design")
    ).parse_args(argv)
    options.output = experiment.folder(options, "networks")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    results = experiment.Results(options.output / "tables.jsonl")

    def tables(measure, *names):
        part = measure.__name__.partition("_")[0]
        name, seed = "/".join((part, *names)), options.seed
        return [
            results.get(f"{name}/{seed}/{k}", measure, *names, seed, k)
            for k in range(options.tables)
        ]

    parts = {"cover": cover(tables), "edges": edges(tables)}
    rows = [
        (part, kind, name, f"{x:.4f}", f"{y:.4f}")
        for part, lines in parts.items()
        for kind, name, x, y in lines
    ]
    experiment.table(options.output / "networks.csv", ("part", "items", "name", "x", "y"), rows)
    path = options.output / "networks_calibration.png"
    draw(*parts.values(), path)


if __name__ == "__main__":
    experiment.run(main)
