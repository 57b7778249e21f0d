"""Whole tasks: start of a process, solves, a training epoch, moments."""

import subprocess
import sys
import time

import numpy as np
import scipy.sparse
from kernel_cases import Size
from kernel_cases.machines import data, rbm
from kernel_cases.moments import MomentsCase

import fastmf as mf

SIZES = {"784x100": Size(784, 100, 100), "784x500": Size(784, 500, 100)}


class Start:
    """Wall time of a new process: import and first solve."""

    number, rounds, repeat = 1, 1, (3, 5, 30.0)
    timeout = 300

    SOLVE = "mf.tap(mf.RBM(np.ones((4, 3)), mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3))))"

    def setup(self):
        self.run(self.SOLVE)  # compiles, or loads what was compiled

    def run(self, code):
        subprocess.run(
            [sys.executable, "-c", f"import numpy as np, fastmf as mf; {code}"], check=True
        )

    def time_import(self):
        self.run("")

    def time_first_solve(self):
        self.run(self.SOLVE)


OPTIONS = {"plain": {"acceleration": False}, "accelerated": {}}


class Solve:
    """From many starts to fixed points; the free energy included."""

    params = (list(SIZES), ["float64", "float32"], ["plain", "accelerated"])
    param_names = ("size", "dtype", "options")
    repeat, number, rounds = (3, 10, 20.0), 1, 1

    def setup(self, size, dtype, options):
        self.model = rbm(SIZES[size], dtype)
        self.starts = data(self.model, 10_000)
        mf.tap(self.model, self.starts[:2], max_iter=1)

    def time_hundred_starts(self, size, dtype, options):
        mf.tap(self.model, self.starts[:100], tol=1e-8, **OPTIONS[options])

    def time_ten_thousand_starts(self, size, dtype, options):
        mf.tap(self.model, self.starts, tol=1e-5, **OPTIONS[options])

    def peakmem_ten_thousand_starts(self, size, dtype, options):
        mf.tap(self.model, self.starts, tol=1e-5, **OPTIONS[options])


class Epoch:
    """One training epoch of 10,000 rows, 100 starts and 3 sweeps a step, float32."""

    params = tuple(SIZES)
    param_names = ("size",)
    repeat, number, rounds = (3, 5, 30.0), 1, 1

    def setup(self, size):
        from fastmf.learning.layered.settings import LayeredSettings
        from fastmf.learning.layered.step import train

        model = rbm(SIZES[size], "float32", patterns=0.0, noise=0.1)
        rows = data(model, 10_000)
        settings = LayeredSettings(
            n_starts=100, n_sweeps=3, n_epochs=1, learning_rate=0.005, monitor_rows=1
        )
        self.train = lambda rows: train(model, rows, settings, seed=0)
        self.rows = rows
        self.train(rows[:100])

    def time_epoch(self, size):
        self.train(self.rows)


class SparseRows:
    """Rows of 20,000 binary columns, of which 1% is stored, and 200 hidden units, float32."""

    params = ("sparse", "dense")
    param_names = ("rows",)
    repeat, number, rounds = (3, 10, 20.0), 1, 1

    def setup(self, rows):
        X = scipy.sparse.random(2000, 20_000, 0.01, "csr", random_state=0)
        self.rows = X.astype(bool).astype(np.float32)
        self.as_given = (lambda X: X) if rows == "sparse" else (lambda X: X.toarray())
        options = {"batch_size": 500, "n_starts": 20, "n_sweeps": 1}
        self.rbm = mf.GeneralizedRBM(200, gradient="pcd", n_epochs=1, random_state=0, **options)
        self.rbm.fit(self.as_given(self.rows[:500]))

    def time_transform(self, rows):
        self.rbm.transform(self.as_given(self.rows))

    def time_score(self, rows):
        self.rbm.score_samples(self.as_given(self.rows), log_partition=0.0)

    def time_epoch(self, rows):
        self.rbm.fit(self.as_given(self.rows))


def grid_couplings(n_side):
    """Couplings of 0.2 between neighbours on a square lattice."""
    n, side = n_side**2, np.arange(n_side**2).reshape(n_side, n_side)
    first = np.concatenate([side[:, 1:].ravel(), side[1:].ravel()])
    second = np.concatenate([side[:, :-1].ravel(), side[:-1].ravel()])
    half = scipy.sparse.coo_array((np.full(len(first), 0.2), (first, second)), shape=(n, n))
    return (half + half.T).tocsr()


class Graph:
    """Belief propagation on square lattices, and exact sums of a small one."""

    params = ("sum", "max", "tree_reweighted")
    param_names = ("algorithm",)
    repeat, number, rounds = (3, 10, 20.0), 1, 1

    def setup(self, algorithm):
        rng = np.random.default_rng(0)
        self.large, self.small = (
            mf.BoltzmannMachine(grid_couplings(n), mf.Ising(rng.normal(size=n * n) / 3))
            for n in (1000 if algorithm == "sum" else 300, 12)
        )
        self.time_ten_sweeps(algorithm)
        self.time_auto(algorithm)

    def time_ten_sweeps(self, algorithm):
        solve = {"max": mf.most_probable, "tree_reweighted": mf.tree_reweighted}
        solve.get(algorithm, mf.belief_propagation)(self.large, max_iter=10)

    def time_check(self, algorithm):
        mf.belief_propagation(self.large, max_iter=50).message  # noqa: B018

    def time_auto(self, algorithm):
        mf.belief_propagation(self.small, algorithm="auto")


class SparseGrid:
    """TAP and Gibbs sweeps of an Ising model on a square lattice of a million spins."""

    params = ("float64", "float32")
    param_names = ("dtype",)
    repeat, number, rounds = (3, 10, 20.0), 1, 1

    def setup(self, dtype):
        self.couplings = grid_couplings(1000).astype(dtype)
        field = np.full(1000**2, 0.1, dtype)
        self.model = mf.BoltzmannMachine(self.couplings, mf.Ising(field))
        mf.tap(self.model, max_iter=1, log_partition=False)
        self.x = field.copy()

    def time_ten_sweeps(self, dtype):
        mf.tap(self.model, max_iter=10, tol=0.0, acceleration=False, log_partition=False)

    def time_ten_products(self, dtype):
        for _ in range(10):
            self.couplings @ self.x

    def time_construct(self, dtype):
        mf.BoltzmannMachine(self.couplings, self.model.prior)

    def peakmem_solve(self, dtype):
        mf.tap(self.model)


class Moments:
    """Moments of 78,400 units on one thread, beside the prior's text run by NumPy."""

    # asv knows parameters by their position: new ones go to the end.
    params = (
        ["bernoulli", "ising", "binomial", "ordinal", "gaussian", "truncated_gaussian",
         "gauss_bernoulli", "truncated_gauss_bernoulli", "categorical"],
        ["float64", "float32"],
        ["compiled", "twin"],
    )  # fmt: skip
    param_names = ("prior", "dtype", "which")
    number, repeat, rounds = 1, (3, 10, 10.0), 1
    timer = staticmethod(time.process_time)

    def setup(self, prior, dtype, which):
        self.case = MomentsCase(prior)
        self.case.run(which, self.case.build(Size(20, 1, 2), dtype))
        self.arguments = self.case.build(Size(784, 1, 100), dtype)

    def time_moments(self, prior, dtype, which):
        self.case.run(which, self.arguments)
