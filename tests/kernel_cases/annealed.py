"""Cases of `annealed` and `annealed_units`."""

import numpy as np

import fastmf as mf
from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.sampling.annealed import AnnealedPath, TiltedPath
from fastmf.kernels.sampling.gibbs import SampledLayer, gibbs_work
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, groups, rbm, spiked

BETAS = 0.0, 0.25, 0.5, 0.75, 1.0


def annealed_arguments(size, dtype, rows=None):
    """Arguments of `annealed`."""
    model = rbm(size, dtype)
    v = data(model, size.n_rows)[chosen(rows, size.n_rows)]
    bases = _bases(model)
    shifts = [prior.field - base for prior, base in zip(model.layers, bases, strict=True)]
    path = AnnealedPath(*shifts, *bases, np.array(BETAS), product_address(dtype))
    return (
        *(pack(model.weights), pack(model.transposed), path),
        *(np.uint64(7), v, np.zeros((len(v), size.n_hidden), dtype)),
        *(np.zeros(len(v)), np.zeros(1, np.int64)),
    )


def _bases(model):
    rng = np.random.default_rng(3)
    return [rng.normal(size=n).astype(model.dtype) for n in model.weights.shape]


def group_arguments(size, dtype, rows=None):
    """Arguments of `annealed_units` with groups of states as visible units."""
    model = rbm(size, dtype)
    return _of_units(
        model, groups(size.n_visible, np.random.default_rng(8)), model.hidden, size, rows
    )


def mixed_arguments(size, dtype, rows=None):
    """The same with units of several kinds."""
    rng, model = np.random.default_rng(8), rbm(size, dtype)
    half, n = size.n_visible // 2, size.n_visible - size.n_visible // 2
    units = mf.Concatenated(spiked(half, rng, dtype), mf.Binomial(np.zeros(n, dtype), 3))
    hidden = mf.Gaussian(*np.array([[0.5], [2.0]], dtype) * np.ones(size.n_hidden, dtype))
    return _of_units(model, units, hidden, size, rows)


def _of_units(model, units, hidden, size, rows):
    model, dtype = mf.RBM(model.weights, units, hidden), model.dtype
    v = model.visible.sample(np.zeros((size.n_rows, size.n_visible)), 0.0, 9).astype(dtype)
    v = v[chosen(rows, size.n_rows)]
    matrices = pack(model.transposed), pack(model.weights)
    layers = [
        SampledLayer(units_of(p, dtype, ("draws", "log_partition")), w)
        for p, w in zip(model.layers, matrices, strict=True)
    ]
    chains = v, np.zeros((len(v), size.n_hidden), dtype)
    path = TiltedPath(*_bases(model), np.array(BETAS))
    work = gibbs_work(*layers, dtype)
    return product_address(dtype), *layers, path, np.uint64(7), chains, np.zeros(len(v)), work


def _chains(arguments):
    return {"v": arguments[4], "h": arguments[5], "log_weights": arguments[6]}


def _chains_of_units(arguments):
    (v, h), log_weights = arguments[5:7]
    return {"v": v, "h": h, "log_weights": log_weights}


CASES = [
    Case("sampling.annealed.annealed", "forward", annealed_arguments, _chains,
         {"float64": 1e-12, "float32": 3e-5}, large=True, any_rows=False),
    Case("sampling.annealed.annealed_units", "groups", group_arguments, _chains_of_units,
         {"float64": 1e-12, "float32": 3e-5}, any_rows=False),
    Case("sampling.annealed.annealed_units", "mixed", mixed_arguments, _chains_of_units,
         {"float64": 1e-11, "float32": 1e-4}, large=True, any_rows=False),
]  # fmt: skip
