"""Time of sparse graphs, regressions from summaries and ordinal items against size and threads.

Writes scaling_systems.csv and scaling_systems.png:

  graph      ten sweeps of belief propagation on a square lattice of Ising spins; its
             ceiling is that of reading and writing all messages
  moments    SpikeSlabRegressor.fit_moments, hyper-parameters learned, from X'X of features whose
             correlations fall off by 0.9 from one to the next
  items      OrdinalMachine.fit of items of five categories with a common cause
"""

from contextlib import contextmanager
from functools import partial

import numpy as np
from scaling import Point, Work, over_threads, run, sized
from scipy.sparse import csr_array
from timing import with_own_blas

import fastmf as mf

N_SWEEPS = 10


def lattice(n):
    """Spins of an n x n square lattice."""
    numbers = np.arange(n * n).reshape(n, n)
    ends = (numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])
    first, second = (np.concatenate([pair[k].ravel() for pair in ends]) for k in (0, 1))
    upper = csr_array((np.full(len(first), 0.3), (first, second)), shape=(n * n, n * n))
    return mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.full(n * n, 0.1)))


def moments(n_features, n_rows=1000):
    """X'X, X'y, y'y and the number of rows, where ten features tell, or fewer."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    for j in range(1, n_features):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1 - 0.9**2) * X[:, j]
    y = X[:, :: max(n_features // 10, 20)].sum(1) + rng.normal(size=n_rows)
    return X.T @ X, X.T @ y, float(y @ y), n_rows


def items(n_items, n_rows):
    """Answers from 0 to 4 to questions with a common cause."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n_rows, 1)) + 2 * rng.normal(size=(n_rows, n_items))
    return np.digitize(scores, (-2, -0.7, 0.7, 2))


def points(options):
    """Sites, features, items and rows, and threads for the first and the last."""
    sides = sized(options, (10, 20), (100, 300), (100, 300, 1000))
    features = sized(options, (20, 30), (100, 200), (500, 1000, 2000, 5000))
    rows = sized(options, (300, 600), (1000, 4000), (1000, 10_000, 100_000))
    n_items, several = (5, 100) if options.tiny else (20, 100 * 100)
    for n in sides:
        yield Point("sites", n * n, "graph", "float64", (n * n,), 1, options.threads)
    for d in features:
        yield Point("features", d, "moments", "float64", (d,), 1000, options.threads)
    for d in sized(options, (4, 5), (10, 20), (10, 20, 50, 100)):
        yield Point("items", d, "items", "float64", (d,), rows[0], options.threads)
    for n in rows:
        yield Point("rows", n, "items", "float64", (n_items,), n, options.threads)
    yield from over_threads("items", "float64", (n_items,), rows[-1], options)
    yield from over_threads("graphs, one a row", "float64", (several,), 8, options)


@contextmanager
def problem(point, options):
    """What the task takes."""
    if point.task.startswith("graph"):
        model, field = lattice(round(point.size[0] ** 0.5)), None
        if point.n_rows > 1:
            field = np.random.default_rng(0).normal(size=(point.n_rows, *point.size))
        options = dict(max_iter=N_SWEEPS, tol=0)
        solve = partial(
            mf.belief_propagation, model, field=field, n_threads=point.threads, **options
        )
        n_messages = 4.0 * point.size[0] * point.n_rows
        work = Work(bytes=2 * 8 * N_SWEEPS * n_messages)
    elif point.task == "moments":
        solve = partial(mf.SpikeSlabRegressor(n_threads=point.threads).fit_moments,
                        *moments(*point.size))  # fmt: skip
        work = Work()
    else:
        learner = mf.OrdinalMachine(n_threads=point.threads)
        solve, work = partial(learner.fit, items(*point.size, point.n_rows)), Work()
    solve()  # compiles
    yield {"fastmf": solve}, lambda: work


def main(argv=None):
    """Measure, write the table, draw it."""
    run("scaling_systems", __doc__, points, problem, argv=argv)


if __name__ == "__main__":
    with_own_blas(main)
