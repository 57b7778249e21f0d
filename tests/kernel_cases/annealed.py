"""Cases of `annealed`."""

import numpy as np

import fastmf as mf
from fastmf.kernels.annealed import AnnealedPath, GroupPath
from fastmf.kernels.product import pack, product_address
from kernel_cases.case import Case, chosen, with_options
from kernel_cases.machines import data, groups, rbm


def annealed_arguments(size, dtype, rows=None, *, betas=(0, 0.25, 0.5, 0.75, 1), categorical=False):
    """Arguments of `annealed`."""
    model = rbm(size, dtype)
    v = data(model, size.n_rows)
    if categorical:
        units = groups(size.n_visible, np.random.default_rng(8))
        model = mf.RBM(model.weights, units, model.hidden)
        v = units.sample(np.zeros(v.shape), 0.0, 9).astype(dtype)
    v = v[chosen(rows, size.n_rows)]
    rng = np.random.default_rng(3)
    bases = [rng.normal(size=n).astype(dtype) for n in model.weights.shape]
    shifts = [prior.field - base for prior, base in zip(model.layers, bases, strict=True)]
    path = AnnealedPath(*shifts, *bases, np.array(betas, float), product_address(dtype))
    if categorical:
        starts = np.append(model.visible.starts, size.n_visible)
        path = GroupPath(*path, starts.astype(np.int64))
    return (
        *(pack(model.weights), pack(model.transposed), path),
        *(np.uint64(7), v, np.zeros((len(v), size.n_hidden), dtype)),
        *(np.zeros(len(v)), np.zeros(1, np.int64)),
    )


def _chains(arguments):
    return {"v": arguments[4], "h": arguments[5], "log_weights": arguments[6]}


CASES = [
    Case("annealed.annealed", "forward", annealed_arguments, _chains,
         {"float64": 1e-12, "float32": 3e-5}, large=True, any_rows=False),
    Case("annealed.annealed", "groups", with_options(annealed_arguments, categorical=True), _chains,
         {"float64": 1e-12, "float32": 3e-5}, any_rows=False),
]  # fmt: skip
