"""Time and memory of belief propagation against size, rows and threads.

Writes scaling_bp.csv. Every point is the median of repeats that take turns: package, NumPy in the
same odds form, NumPy by the matrix equations of Ping and Ihler (2017), Eqs. 13-18. NumPy here does
one row at a time, on one thread (none of it is a matrix product). Compilation is not on the clock;
on a busy machine compare ratios, not milliseconds.
"""

import argparse
import csv
import resource
from pathlib import Path

import numpy as np
from timing import interleaved, median

import fastmf as mf

FIELDS = ("axis", "algorithm", "dtype", "n_visible", "n_hidden", "n_rows", "threads", "sweeps",
          "package_s", "odds_numpy_s", "paper_numpy_s", "peak_memory_mib")  # fmt: skip


def machine(n_visible, n_hidden, dtype):
    """Random weights of which ten sweeps do not saturate the beliefs."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n_visible, n_hidden)).astype(dtype)
    weights *= 2 / np.sqrt(n_visible + n_hidden)
    visible, hidden = (rng.normal(size=n).astype(dtype) for n in weights.shape)
    return mf.RBM(weights, mf.Bernoulli(visible), mf.Bernoulli(hidden))


def by_odds(model, n_sweeps):
    """Sum-product in odds form, as good as NumPy does it: one message buffer, in place."""
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
        other = m_hv.T
        yes = tau_h * (one - other)
        no = (one - tau_h) * other
        high = e * yes + no
        m_vh = high / (high + yes + no)
        tau_v = 1 / (1 + np.exp(-(b1 + (np.log(m_vh) - np.log(one - m_vh)).sum(1))))
        yes = tau_v[:, None] * (one - m_vh)
        no = (one - tau_v)[:, None] * m_vh
        high = e * yes + no
        m_hv = (high / (high + yes + no)).T
        tau_h = 1 / (1 + np.exp(-(b2 + (np.log(m_hv) - np.log(one - m_hv)).sum(1))))
    return tau_v, tau_h


def points(arguments):
    """(axis, algorithm, dtype, size, rows, threads) to measure."""
    threads = range(1, arguments.threads + 1)
    for dtype in ("float32", "float64"):
        for n in threads:
            yield "threads", "sum", dtype, (1000, 500), 1, n
            yield "threads", "sum", dtype, (784, 256), 20 if arguments.quick else 100, n
        for algorithm in ("max", "mixed"):
            yield "algorithm", algorithm, dtype, (1000, 500), 1, 1
    sizes = [(100, 50), (300, 150)]
    if not arguments.quick:
        sizes += [(3000, 1000), (10_000, 2000)]
    for size in sizes:
        yield "size", "sum", "float32", size, 1, arguments.threads
    for n in (1, 10) if arguments.quick else (1, 10, 100, 1000):
        yield "rows", "sum", "float32", (784, 256), n, arguments.threads


def measure(axis, algorithm, dtype, size, n_rows, threads, arguments):
    """One row of the table."""
    model = machine(*size, dtype)
    rng = np.random.default_rng(1)
    field = rng.normal(size=(n_rows, size[0])).astype(dtype) if n_rows > 1 else None
    options = {"algorithm": algorithm, "max_iter": arguments.sweeps, "tol": 0, "damping": 0.0}

    def package():
        return mf.belief_propagation(model, field=field, n_threads=threads, **options)

    found = package()
    contestants = {"package": package}
    if algorithm == "sum" and n_rows == 1:
        contestants["odds"] = lambda: by_odds(model, arguments.sweeps)
        contestants["paper"] = lambda: by_the_paper(model, arguments.sweeps)
        for solve in (by_odds, by_the_paper):
            for x, y in zip(found.mean, solve(model, arguments.sweeps), strict=True):
                np.testing.assert_allclose(x, y, atol=1e-3)
    times = interleaved(contestants, arguments.repeats)
    seconds = [
        median(times[name]) if name in times else "" for name in ("package", "odds", "paper")
    ]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = axis, algorithm, dtype, *size, n_rows, threads, arguments.sweeps, *seconds, memory
    return dict(zip(FIELDS, values, strict=True))


def main():
    """Measure and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sizes and repeats: half a minute")
    parser.add_argument("--sweeps", type=int, default=10, help="sweeps of a solve (default 10)")
    parser.add_argument("--threads", type=int, default=2, help="at most so many (default 2)")
    parser.add_argument("--repeats", type=int, help="rounds (default 7; 3 with --quick)")
    parser.add_argument("--output", type=Path, default=Path("."), metavar="FOLDER")
    arguments = parser.parse_args()
    arguments.repeats = arguments.repeats or (3 if arguments.quick else 7)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with open(arguments.output / "scaling_bp.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for point in points(arguments):
            row = measure(*point, arguments)
            writer.writerow(row)
            file.flush()
            print(" ".join(f"{row[name]!s:>10.10}" for name in FIELDS), flush=True)


if __name__ == "__main__":
    main()
