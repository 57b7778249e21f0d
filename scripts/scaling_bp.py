"""Time of belief propagation against size, rows and threads.

Writes scaling_bp.csv and scaling_bp.png. Compares the package with NumPy, one row on one thread:
with messages as odds m(1) / m(0), and by the matrix equations of Ping and Ihler (2017), Eqs. 13-18
(neither has a matrix product). Upper bound: the memory traffic of couplings that are read, and
messages that are read and written, twice a sweep.
"""

from contextlib import contextmanager
from functools import partial

import numpy as np
from scaling import Point, Work, over_threads, run, sized
from timing import positive, with_own_blas

import fastmf as mf

OPTIONS = (("--sweeps", dict(type=positive, default=10, metavar="N", help="of a solve [10]")),)


def machine(n_visible, n_hidden, dtype):
    """An RBM of random weights whose beliefs ten sweeps do not saturate."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n_visible, n_hidden)).astype(dtype)
    weights *= 2 / np.sqrt(n_visible + n_hidden)
    visible, hidden = (rng.normal(size=n).astype(dtype) for n in weights.shape)
    return mf.RBM(weights, mf.Bernoulli(visible), mf.Bernoulli(hidden))


def by_odds(model, n_sweeps):
    """Sum-product with ratios of messages in NumPy: one array of messages, in place."""
    e = np.exp(model.weights)
    s, a, b = np.ones_like(e), np.empty_like(e), np.empty_like(e)
    b1, b2 = (prior.field for prior in model.layers)
    odds = np.exp(b2)
    for _ in range(n_sweeps):
        np.multiply(e, odds, out=a)
        a += s
        np.add(s, odds, out=b)
        a /= b
        np.log(a, out=b)
        visible = np.exp(b1 + b.sum(1))[:, None]
        np.multiply(e, visible, out=b)
        b += a
        a += visible
        np.divide(b, a, out=s)
        np.log(s, out=a)
        odds = np.exp(b2 + a.sum(0))
    return visible[:, 0] / (1 + visible[:, 0]), odds / (1 + odds)


def by_the_paper(model, n_sweeps):
    """Sum-product with normalised messages in probability form: Eqs. 13, 14, 16 and 17."""
    e = np.exp(model.weights)
    b1, b2 = (prior.field for prior in model.layers)
    one = model.dtype.type(1)
    m_vh = np.full_like(e, 0.5)  # hidden to visible
    m_hv = np.full(e.shape[::-1], 0.5, e.dtype)  # visible to hidden
    tau_h = 1 / (1 + np.exp(-b2))
    for _ in range(n_sweeps):
        received = m_hv.T
        yes = tau_h * (one - received)
        no = (one - tau_h) * received
        high = e * yes + no
        m_vh = high / (high + yes + no)
        tau_v = 1 / (1 + np.exp(-(b1 + (np.log(m_vh) - np.log(one - m_vh)).sum(1))))
        yes = tau_v[:, None] * (one - m_vh)
        no = (one - tau_v)[:, None] * m_vh
        high = e * yes + no
        m_hv = (high / (high + yes + no)).T
        tau_h = 1 / (1 + np.exp(-(b2 + (np.log(m_hv) - np.log(one - m_hv)).sum(1))))
    return tau_v, tau_h


def points(options):
    """Threads for one row and for many, the other algorithms, sizes, rows."""
    one, many = ((200, 100), (100, 50)) if options.tiny else ((1000, 500), (784, 256))
    rows = (1, 30) if options.quick else (1, 10, 100, 1000)
    more = sized(options, ((50, 20),), ((300, 150),), ((100, 50), (300, 150), (3000, 1000)))
    sizes = sorted((*more, one))
    for dtype in ("float32",) if options.quick else ("float32", "float64"):
        yield from over_threads("many rows", dtype, many, sized(options, 30, 30, 100), options)
        for n in (1, options.threads):
            yield Point("threads", n, "one row", dtype, one, 1, n)
        for size in sizes:
            yield Point("couplings", size[0] * size[1], "sum", dtype, size, 1, 1)
        for algorithm in ("max", "mixed"):
            yield Point("couplings", one[0] * one[1], algorithm, dtype, one, 1, 1)
        for n in rows:
            yield Point("rows", n, "sum", dtype, many, n, options.threads)


@contextmanager
def problem(point, options):
    """The package, and for one row the two implementations in NumPy."""
    model = machine(*point.size, point.dtype)
    rng = np.random.default_rng(1)
    field = None
    if point.n_rows > 1:
        field = rng.normal(size=(point.n_rows, point.size[0])).astype(point.dtype)
    solver = partial(mf.belief_propagation, tol=0, damping=0.0)
    if point.task in ("max", "mixed"):
        solver = partial(mf.most_probable, sum_hidden=point.task == "mixed", search=False)

    def package():
        return solver(model, field=field, max_iter=options.sweeps, n_threads=point.threads)

    solution = package()
    solvers = {"fastmf": package}
    if point.task == "sum" and point.n_rows == 1 and point.threads == 1:
        for name, solve in (("NumPy in odds", by_odds), ("NumPy of the paper", by_the_paper)):
            for x, y in zip(solution.mean, solve(model, options.sweeps), strict=True):
                np.testing.assert_allclose(x, y, atol=1e-3)
            solvers[name] = lambda solve=solve: solve(model, options.sweeps)
    moved = 6 * model.weights.nbytes * options.sweeps * point.n_rows
    yield solvers, lambda: Work(bytes=float(moved))


main = partial(run, "scaling_bp", __doc__, points, problem, OPTIONS)


if __name__ == "__main__":
    with_own_blas(main)
