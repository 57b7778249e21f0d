"""Cases of `gibbs`."""

import numpy as np

import fastmf as mf
from fastmf.kernels.gibbs import GroupLayer, TwoValuedLayer, gibbs_work
from fastmf.kernels.product import pack, product_address
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, groups, rbm


def gibbs_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """Arguments of `gibbs`."""
    model = rbm(size, dtype)
    v = data(model, size.n_rows)[chosen(rows, size.n_rows)]
    matrices = pack(model.transposed), pack(model.weights)
    layers = [
        TwoValuedLayer(units_of(p, dtype), w, *p.support)
        for p, w in zip(model.layers, matrices, strict=True)
    ]
    return (
        *(product_address(dtype), *layers),
        *(np.uint64(7), n_sweeps, v, np.zeros((len(v), size.n_hidden), dtype)),
        gibbs_work(*layers, dtype),
    )


def group_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """The same with groups of states as visible units."""
    rng, model = np.random.default_rng(8), rbm(size, dtype)
    units = groups(size.n_visible, rng)
    model = mf.RBM(model.weights, units, model.hidden)
    v = units.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, rng).astype(dtype)
    v = v[chosen(rows, size.n_rows)]
    starts = np.append(units.starts, size.n_visible).astype(np.int64)
    visible = GroupLayer(units_of(model.visible, dtype), pack(model.transposed), starts)
    hidden = TwoValuedLayer(
        units_of(model.hidden, dtype), pack(model.weights), *model.hidden.support
    )
    return (
        *(product_address(dtype), visible, hidden),
        *(np.uint64(7), n_sweeps, v, np.zeros((len(v), size.n_hidden), dtype)),
        gibbs_work(visible, hidden, dtype),
    )


def _chains(arguments):
    return {"v": arguments[5], "h": arguments[6]}


CASES = [
    Case("gibbs.gibbs", "block", gibbs_arguments, _chains, {"float64": 0, "float32": 0}, large=True,
         any_rows=False),
    Case("gibbs.gibbs", "groups", group_arguments, _chains, {"float64": 0, "float32": 0},
         any_rows=False),
]  # fmt: skip
