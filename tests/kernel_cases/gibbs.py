"""Cases of `gibbs`."""

import numpy as np

import fastmf as mf
from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.sampling.gibbs import SampledLayer, gibbs_work
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, groups, rbm, spiked


def gibbs_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """Arguments of `gibbs` for binary units."""
    model = rbm(size, dtype)
    return _arguments(model, data(model, size.n_rows)[chosen(rows, size.n_rows)], n_sweeps)


def _arguments(model, v, n_sweeps):
    matrices, dtype = (pack(model.transposed), pack(model.weights)), model.dtype
    layers = [
        SampledLayer(units_of(p, dtype, ("draws",)), w)
        for p, w in zip(model.layers, matrices, strict=True)
    ]
    return (
        *(product_address(dtype), *layers),
        *(np.uint64(7), n_sweeps, v, np.zeros((len(v), model.n_hidden), dtype)),
        gibbs_work(*layers, dtype),
    )


def group_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """The same with groups of states as visible units."""
    rng, model = np.random.default_rng(8), rbm(size, dtype)
    units = groups(size.n_visible, rng)
    model = mf.RBM(model.weights, units, model.hidden)
    v = units.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, rng).astype(dtype)
    return _arguments(model, v[chosen(rows, size.n_rows)], n_sweeps)


def mixed_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """The same with units of several kinds."""
    rng, model = np.random.default_rng(8), rbm(size, dtype)
    half, n = size.n_visible // 2, size.n_visible - size.n_visible // 2
    units = mf.Concatenated(spiked(half, rng, dtype), mf.Binomial(np.zeros(n, dtype), 3))
    hidden = mf.Gaussian(*np.array([[0.5], [2.0]], dtype) * np.ones(size.n_hidden, dtype))
    model = mf.RBM(model.weights, units, hidden)
    v = units.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, rng).astype(dtype)
    return _arguments(model, v[chosen(rows, size.n_rows)], n_sweeps)


def _chains(arguments):
    return {"v": arguments[5], "h": arguments[6]}


CASES = [
    Case(
        "sampling.gibbs.gibbs",
        "block",
        gibbs_arguments,
        _chains,
        {"float64": 0, "float32": 0},
        large=True,
        any_rows=False,
    ),
    Case(
        "sampling.gibbs.gibbs",
        "groups",
        group_arguments,
        _chains,
        {"float64": 0, "float32": 0},
        any_rows=False,
    ),
    Case(
        "sampling.gibbs.gibbs",
        "mixed",
        mixed_arguments,
        _chains,
        {"float64": 1e-12, "float32": 1e-5},
        any_rows=False,
    ),
]
