"""RBMs of binary units for tests of belief propagation, and its solvers by name."""

from functools import partial

import numpy as np

import fastmf as mf
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.beliefs import beliefs_of
from fastmf.inference.bp.rbm import BinaryUnits, checked_fields, propagated

SOLVERS = {
    "sum": mf.belief_propagation,
    "max": mf.most_probable,
    "mixed": partial(mf.most_probable, sum_hidden=True),
    "tree_reweighted": mf.tree_reweighted,
}


def propagation(model, algorithm, field=None, **options):
    """Beliefs of an RBM of binary units by the messages alone, with options that are not public."""
    fields, n_rows = checked_fields(model, field)
    options, units = BPOptions(algorithm=algorithm, **options), BinaryUnits(model, fields)
    ends = propagated(options, units, n_rows or 1)
    return beliefs_of(options, units, ends, n_rows is None)


def tree(n, m, rng, scale=2.0, forest=False):
    """Weights of a random tree (or forest) over both layers."""
    weights, inside, outside = np.zeros((n, m)), [(0, 0)], []
    outside = [(0, i) for i in range(1, n)] + [(1, j) for j in range(m)]
    rng.shuffle(outside)
    outside = [tuple(map(int, x)) for x in outside]
    while outside:
        k = next(k for k, x in enumerate(outside) if any(y[0] != x[0] for y in inside))
        x = outside.pop(k)
        others = [y for y in inside if y[0] != x[0]]
        y = others[rng.integers(len(others))]
        i, j = (x[1], y[1]) if x[0] == 0 else (y[1], x[1])
        if not (forest and rng.random() < 0.3):
            weights[i, j] = scale * rng.normal()
        inside.append(x)
    return weights


def binary_rbm(weights, rng, prior=mf.Bernoulli, dtype=float, scale=1.0):
    n, m = weights.shape
    fields = scale * rng.normal(size=n), scale * rng.normal(size=m)
    return mf.RBM(weights.astype(dtype), *(prior(f.astype(dtype)) for f in fields))


def loopy(n=9, m=7, scale=0.7, seed=0, **options):
    rng = np.random.default_rng(seed)
    return binary_rbm(scale * rng.normal(size=(n, m)), rng, **options)
