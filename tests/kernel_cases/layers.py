"""Cases of `anneal_layers`: Gibbs sampling, and annealing of units of several kinds."""

from functools import partial

import numpy as np

import fastmf as mf
from fastmf.kernels.linear.product import TASK_ROWS, pack, product_address
from fastmf.kernels.sampling.annealing import LayersPath, SampledLayer, layers_work
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, groups, rbm, spiked


def binary(size, dtype):
    """A machine of units 0 and 1, and visible states."""
    model = rbm(size, dtype)
    return model, data(model, size.n_rows)


def with_groups(size, dtype):
    """The same with groups of states as visible units."""
    model, rng = rbm(size, dtype), np.random.default_rng(8)
    units = groups(size.n_visible, rng)
    v = units.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, rng).astype(dtype)
    return mf.RBM(model.weights, units, model.hidden), v


def mixed(size, dtype):
    """The same with units of several kinds."""
    rng, model = np.random.default_rng(8), rbm(size, dtype)
    half, n = size.n_visible // 2, size.n_visible - size.n_visible // 2
    units = mf.Concatenated(spiked(half, rng, dtype), mf.Binomial(np.zeros(n, dtype), 3))
    hidden = mf.Gaussian(*np.array([[0.5], [2.0]], dtype) * np.ones(size.n_hidden, dtype))
    v = units.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, rng).astype(dtype)
    return mf.RBM(model.weights, units, hidden), v


def arguments(size, dtype, rows=None, *, kind=binary, betas=(0.0, 0.25, 0.5, 0.75, 1.0)):
    """Arguments of `anneal_layers`."""
    model, v = kind(size, dtype)
    v, rng = v[chosen(rows, size.n_rows)], np.random.default_rng(3)
    matrices = pack(model.weights.T), pack(model.weights)
    layers = [
        SampledLayer(units_of(p, model.dtype, ("draws", "log_partition")), w)
        for p, w in zip(model.layers, matrices, strict=True)
    ]
    bases = (rng.normal(size=n).astype(model.dtype) for n in model.weights.shape)
    path, chains = (
        LayersPath(*bases, np.array(betas)),
        (v, np.zeros((len(v), size.n_hidden), dtype)),
    )
    work = layers_work(*layers, model.dtype, TASK_ROWS)
    return product_address(dtype), *layers, path, np.uint64(7), chains, np.zeros(len(v)), work


def _chains(arguments):
    (v, h), log_weights = arguments[5:7]
    return {"v": v, "h": h, "log_weights": log_weights}


CASES = [
    Case("sampling.annealing.anneal_layers", name, partial(arguments, **options), _chains,
         {"float64": 1e-11, "float32": 1e-4}, large=name in ("gibbs", "mixed"), any_rows=False)
    for name, options in (
        ("gibbs", {"betas": (1.0, 1.0, 1.0, 1.0)}),
        ("binary", {}),
        ("groups", {"kind": with_groups}),
        ("mixed", {"kind": mixed}),
    )
]  # fmt: skip
