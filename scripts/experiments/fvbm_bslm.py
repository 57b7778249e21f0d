"""Fully visible Boltzmann machines: the simulation of Nguyen & Wood (2016), and the Senate.

Writes sequences.csv and .png (Fig. 1: log-pseudo-likelihoods of BSLM by sweep), simulation.csv
(errors of each machine) and existence.csv (by size) into a folder; with --data it prints couplings
of the Senate.
"""

from operator import itemgetter
from pathlib import Path

import experiment
import numpy as np
from matplotlib.figure import Figure

import fastmf as mf
from fastmf.inference.sampling.discrete import sample
from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood, bslm
from fastmf.learning.pseudo_likelihood.existence import decided
from fastmf.learning.pseudo_likelihood.fit import TOLERANCE_ROWS, newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.rows import distinct

PAPER = {5: 2.09e-6, 10: 5.96e-7, 15: 4.64e-7, 20: 2.89e-7}


def one_draw(d, options, rng):
    """Fit one random machine from several starts; a row of the table, and the fits' histories."""
    J = np.triu(np.sqrt(0.5) * rng.normal(size=(d, d)), 1)
    model = mf.BoltzmannMachine(J + J.T, mf.Ising(np.sqrt(0.5) * rng.normal(size=d)))
    states = sample(model, options.rows, rng).astype(np.int8)
    objective = PseudoLikelihood(*distinct(states, np.ones(len(states)))[:2])
    truth = objective.packed(model.couplings, model.prior.field)
    # The paper's starts: normal like the machine itself.
    starts = list(np.sqrt(0.5) * rng.normal(size=(options.starts, len(truth))))
    # The paper's tau of 1e-5 is about all rows.
    tol = 1e-5 * TOLERANCE_ROWS / objective.total
    fits = bslm(objective, starts, tol=tol, max_iter=options.max_iter)
    best = newton(objective, objective.independent())
    exists = decided(objective, best.parameters).exists
    errors = [((fit.parameters - truth) ** 2).mean() for fit in fits]
    row = {
        "d": d, "exists": exists, "distinct_rows": len(objective.weights),
        "bslm_mse": np.mean(errors), "bslm_sweeps": np.mean([len(fit.history) for fit in fits]),
        "bslm_stopped": np.mean([fit.stopped for fit in fits]),
        "bslm_short_of_maximum": best.history[-1] - np.mean([fit.history[-1] for fit in fits]),
        "newton_mse": np.nan, "asymptotic_variance": np.nan, "distance_to_maximum": np.nan,
    }  # fmt: skip
    if exists:
        distances = [((fit.parameters - best.parameters) ** 2).mean() for fit in fits]
        row["distance_to_maximum"] = np.mean(distances)
        row["newton_mse"] = ((best.parameters - truth) ** 2).mean()
        covariance = Godambe(objective, best.parameters).covariance()
        row["asymptotic_variance"] = covariance.diagonal().mean()
    return row, [np.array(fit.history) for fit in fits]


# Columns whose mean and median the table by size has, of all machines or where a maximum exists.
OF_ALL = "bslm_mse", "bslm_sweeps", "bslm_short_of_maximum", "distinct_rows"
OF_GOOD = "bslm_mse", "newton_mse", "distance_to_maximum", "asymptotic_variance", \
    "bslm_sweeps", "bslm_short_of_maximum"  # fmt: skip


def simulation(options, folder):
    table, first = [], {}
    for d in options.units:
        rng = np.random.default_rng([options.seed, d])
        for _ in range(options.draws):
            row, histories = one_draw(d, options, rng)
            table.append(row)
            first.setdefault(d, histories)
        # After each size: the large ones take long.
        experiment.table_of(folder / "simulation.csv", table)
    sequences(first, folder)
    summary = []
    for d in options.units:
        rows = [row for row in table if row["d"] == d]
        good = [row for row in rows if row["exists"]]
        line = {"d": d, "draws": len(rows), "maximum_exists": len(good)}
        line |= {"paper_mse": PAPER.get(d, ""), "floor_1/n": 1 / options.rows}
        for names, chosen, suffix in ((OF_ALL, rows, ""), (OF_GOOD, good, "_where_exists")):
            for name in names:
                values = [row[name] for row in chosen] or [np.nan]
                line[f"{name}_mean{suffix}"] = float(np.mean(values))
                line[f"{name}_median{suffix}"] = float(np.median(values))
        summary.append(line)
    experiment.table_of(folder / "existence.csv", summary)
    for name in summary[0]:
        print(f"{name:40}", *(f"{row[name] or 0:>12.6g}" for row in summary))


def sequences(first, folder):
    """Fig. 1, increments on the right: all early sweeps, then 25 for each factor of ten."""
    rows = []
    for d, histories in first.items():
        for start, values in enumerate(histories):
            increments, n = np.diff(values), len(values)
            for k in np.unique(np.geomspace(2, n, 25 * len(str(n))).astype(int)):
                rows.append((d, start, k, values[k - 1], increments[k - 2]))
    header = "d", "start", "sweep", "log_pseudo_likelihood", "increment"
    experiment.table(folder / "sequences.csv", header, rows)
    rows = np.array(rows, float)
    sizes = np.unique(rows[:, 0])
    figure = Figure(figsize=(9, 2.4 * len(sizes)), layout="constrained")
    axes = figure.subplots(len(sizes), 2, squeeze=False)
    for d, (value_axes, increment_axes) in zip(sizes, axes, strict=True):
        for start in np.unique(rows[rows[:, 0] == d, 1]):
            _, _, sweeps, values, increments = rows[(rows[:, :2] == (d, start)).all(1)].T
            value_axes.semilogx(sweeps, values)
            increment_axes.loglog(sweeps, np.where(increments > 0, increments, np.nan))
        value_axes.set(ylabel=f"log-pseudo-likelihood, {d:.0f} units", xlabel="sweep")
        increment_axes.set(ylabel="increment", xlabel="sweep")
    experiment.picture(figure, folder / "sequences.png")


# --- the Senate -------------------------------------------------------------------------------


def nearest_neighbour(votes):
    """Missing votes (zeros) from the row that agrees most often where both voted."""
    filled = votes.copy()
    for i in range(len(votes)):
        for j in np.flatnonzero(votes[i] == 0):
            both = (votes != 0) & (votes[i] != 0)
            agreement = ((votes == votes[i]) & both).sum(1) / np.maximum(both.sum(1), 1)
            agreement[(votes[:, j] == 0) | (np.arange(len(votes)) == i)] = -1
            filled[i, j] = votes[np.argmax(agreement), j]
    return filled


def senate(options):
    path = Path(options.data or ".") / "senate_au45_votes.csv"
    if not path.exists():
        print(f"no {path.name} in the folder --data: the Senate is left out")
        return
    with open(path) as file:
        parties = file.readline().strip().split(",")
    votes = np.loadtxt(path, delimiter=",", skiprows=1)
    chosen = [i for i, party in enumerate(parties) if party != "Govt"]
    X, names = nearest_neighbour(votes)[:, chosen], [parties[i] for i in chosen]
    machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    if machine.existence_.exists is False:
        machine = mf.FullyVisibleBoltzmannMachine(solver="firth").fit(X)
        print("the Senate: Firth's penalty")
    tests = machine.test_couplings("holm")
    print(f"{'pair':16}{'coupling':>10}{'s.e.':>8}{'z':>8}{'p (Holm)':>10}")
    by_p = sorted(zip(*tests, strict=True), key=itemgetter(5))
    for j, k, coupling, error, z, _, adjusted in by_p:
        pair = f"{names[j]}-{names[k]}"
        print(f"{pair:16}{coupling:10.3f}{error:8.3f}{z:8.2f}{adjusted:10.2g}")


def main(argv=None):
    options = experiment.Parser(
        __doc__, "seed", "data", "output", quick={"units": [5, 10], "draws": 5},
        units=[5, 10, 15, 20], draws=(30, "random machines of each size"),
        rows=(16_000, "of data"), starts=5, max_iter=(50_000, "sweeps"),
    ).parse_args(argv)  # fmt: skip
    folder = experiment.folder(options, "fvbm-bslm")
    simulation(options, folder)
    senate(options)


if __name__ == "__main__":
    experiment.run(main)
