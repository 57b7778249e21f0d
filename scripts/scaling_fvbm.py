"""Time of maximum pseudo-likelihood against units and rows: sweeps, gradients, whole fits.

Writes scaling_fvbm.csv and scaling_fvbm.png. Every point is the median of runs that take turns, so
that whatever else the machine does meets all contestants:

  sweep      one BSLM sweep on raw and on distinct rows, compiled and NumPy (few units only)
  gradient   one gradient, and the two matrix products in it alone, with as many BLAS threads
  fit        the estimator from raw rows, with standard errors up to 40 units

Memory is printed as the peak of the process so far.
"""

import argparse
import csv
import resource
import time
from pathlib import Path

import numpy as np
from timing import blas_threads, interleaved, median, ratio

import fastmf as mf
from fastmf.learning.pseudo_likelihood import PseudoLikelihood
from fastmf.learning.rows import Rows, merged

from kernel_cases import case  # isort: skip  (found through timing)

FIELDS = ("what", "n_units", "n_rows", "distinct_rows", "seconds", "other", "other_seconds",
          "times_faster", "peak_mib", "note")  # fmt: skip


def chain(n_units, n_rows, agreement=0.75, seed=0):
    """Rows of a Markov chain along the units: a fully visible machine that is drawn at once."""
    rng = np.random.default_rng(seed)
    same = rng.random((n_rows, n_units)) < agreement
    same[:, 0] = rng.random(n_rows) < 0.6
    return np.cumprod(np.where(same, 1.0, -1.0), axis=1)


def paper_rows(n_units, n_rows):
    """Rows of the paper's own design: strong couplings, so that few rows are distinct."""
    from fastmf.learning.spins import sample

    rng = np.random.default_rng(4)
    J = np.triu(np.sqrt(0.5) * rng.normal(size=(n_units, n_units)), 1)
    model = mf.BoltzmannMachine(J + J.T, mf.Ising(np.sqrt(0.5) * rng.normal(size=n_units)))
    return sample(model, n_rows, rng)


def row(what, objective, seconds, other="", of_other=None, faster="", note=""):
    n_rows = round(objective.total)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = (
        *(what, objective.n_units, n_rows, len(objective.weights), seconds, other),
        *("" if of_other is None else of_other, faster, round(peak), note),
    )
    return dict(zip(FIELDS, values, strict=True))


def sweeps(objective, options, note=""):
    """A row for the sweep, compiled and NumPy, on the objective's rows."""
    d, n = objective.n_units, 3

    def contestant(bslm):
        def run():
            arguments = (
                np.ascontiguousarray(objective.rows.states.T), objective.weights, objective.mean,
                objective.second, 1.0, 0.0, 0.0, 1.0, -np.inf, n, np.zeros(1, np.int64),
                np.zeros((1, d, d)), np.zeros((1, d)), np.zeros((1, n + 1)), np.zeros(1, np.int64),
            )  # fmt: skip
            start = time.perf_counter()
            bslm(*arguments)
            return (time.perf_counter() - start) / n

        return run

    both = case("pseudo_likelihood.bslm-plain")
    contestant(both.compiled)()
    times = interleaved({"kernel": contestant(both.compiled), "NumPy": contestant(both.twin)},
                        options.repeats)  # fmt: skip
    return row("sweep", objective, median(times["kernel"]), "NumPy twin", median(times["NumPy"]),
               round(ratio(times["NumPy"], times["kernel"]), 1), note)  # fmt: skip


def gradients(objective, options):
    """A row for the gradient beside its two matrix products alone."""
    states, d = objective.rows.states, objective.n_units
    parameters = np.random.default_rng(0).normal(size=objective.n_parameters) / d
    couplings = objective.unpacked(parameters)[0]

    def gradient():
        parameters[:] *= 1 + 1e-12  # at the same point it would hand out what it has
        objective.value_and_gradient(parameters)

    gradient()
    times = interleaved(
        {
            "gradient": gradient,
            "products": lambda: (states.T @ (states @ couplings)) is None or None,
        },
        options.repeats,
    )
    share = ratio(times["products"], times["gradient"])
    return row("gradient", objective, median(times["gradient"]), "its products alone",
               median(times["products"]), round(share, 2))  # fmt: skip


def fits(X, options):
    """A row for the whole fit, and with standard errors where they are feasible at once."""
    objective = PseudoLikelihood(merged(X))
    start = time.perf_counter()
    machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    once = time.perf_counter() - start
    again = [once]
    if once < 5:
        again = interleaved({"fit": lambda: mf.FullyVisibleBoltzmannMachine().fit(X) and None},
                            options.repeats)["fit"]  # fmt: skip
    note = f"{machine.n_iter_} iterations, exists: {machine.existence_.exists}"
    with_errors = None
    if X.shape[1] <= 40 and machine.existence_.exists:
        times = interleaved(
            {"errors": lambda: mf.FullyVisibleBoltzmannMachine().fit(X).standard_errors() is None},
            options.repeats,
        )
        with_errors = median(times["errors"])
    other = "with standard errors" if with_errors else ""
    return row("fit", objective, median(again), other, with_errors, "", note)


def plot(table, path):
    """Time against units, a line for each thing measured and number of rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for what, colour in (("sweep", "C0"), ("gradient", "C1"), ("fit", "C2")):
        rows = sorted((r["n_units"], r["seconds"] * 1e3) for r in table if r["what"] == what)
        axes.loglog(*zip(*rows, strict=True), "o", color=colour, label=what)
    axes.set(xlabel="units", ylabel="ms")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, dpi=150)


def main():
    """Measure, write the table, draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="up to 40 units: a minute")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of BLAS and kernels (default 1)")
    parser.add_argument("--output", type=Path, default=Path("."), metavar="FOLDER")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    sizes = [(20, 16_000), (40, 16_000)]
    if not options.quick:
        sizes += [(100, 100_000), (200, 100_000), (1000, 10_000)]
    table = []
    with (
        open(options.output / "scaling_fvbm.csv", "w", newline="") as file,
        blas_threads(options.threads),
    ):
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()

        def add(found):
            table.append(found)
            writer.writerow(found)
            file.flush()
            print(" ".join(f"{name}={found[name]}" for name in FIELDS if found[name] != ""))

        for d in (5, 10, 20):
            X = paper_rows(d, 16_000)
            add(sweeps(PseudoLikelihood(merged(X)), options, "the paper's design, distinct rows"))
            if d == 20:
                raw = Rows(X, np.ones(len(X)))
                add(sweeps(PseudoLikelihood(raw), options, "the paper's design, raw rows"))
        for d, n in sizes:
            X = chain(d, n)
            objective = PseudoLikelihood(merged(X), n_threads=options.threads)
            add(gradients(objective, options))
            add(fits(X, options))
    plot(table, options.output / "scaling_fvbm.png")


if __name__ == "__main__":
    main()
