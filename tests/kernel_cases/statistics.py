"""Cases of the statistics of learning."""

import numpy as np

from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.training.statistics import Pairs, pairs_work, work_of
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, rbm


def conditional_arguments(size, dtype, rows=None):
    """Arguments of `conditional_moments`."""
    model = rbm(size, dtype)
    states = data(model, size.n_rows)[chosen(rows, size.n_rows)]
    filled, packed = np.zeros((3, len(states), size.n_hidden), dtype), pack(model.weights)
    return (
        *(units_of(model.hidden, dtype), product_address(dtype), packed, states),
        *(work_of(packed), *filled),
    )


def pairs_of(size, dtype, rows=None):
    """Products of units, of both orders, and a gradient to add; "rows" are visible units."""
    rng, units, n_rows = np.random.default_rng(5), chosen(rows, size.n_visible), 4 * size.n_rows - 3
    lefts = rng.normal(size=(n_rows, size.n_visible)).astype(dtype)[:, units]
    rights = rng.normal(size=(n_rows, size.n_hidden)).astype(dtype)
    added = rng.normal(size=(size.n_visible, size.n_hidden)).astype(dtype)[units]
    packed = pack(rights / rights.dtype.type(size.n_rows))
    return Pairs(size.n_rows, np.ascontiguousarray(lefts), packed, added)


def pair_arguments(size, dtype, rows=None):
    """Arguments of `sum_of_pairs`; "rows" are visible units."""
    weights = np.array(rbm(size, dtype).weights[chosen(rows, size.n_visible)])
    weights.flags.writeable = False  # like a model's
    work = pairs_work(weights.shape, weights.dtype)
    pairs = pairs_of(size, dtype, rows)
    return product_address(dtype), pairs, weights, work, np.zeros_like(weights)


CASES = [
    Case("training.statistics.conditional_moments", "hidden", conditional_arguments,
         lambda arguments: dict(zip(("b", "mean", "var"), arguments[-3:], strict=True)),
         {"float64": 1e-12, "float32": 1e-4}, large=True),
    Case("training.statistics.sum_of_pairs", "both_orders", pair_arguments,
         lambda arguments: {"out": arguments[-1]}, {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
