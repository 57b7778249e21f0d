"""Cases of the statistics of learning."""

import numpy as np

from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.training.statistics import work_of
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


def pair_arguments(size, dtype, rows=None):
    """Arguments of `pair_averages`; "rows" are visible units. The coefficients differ in rows."""
    model, rng = rbm(size, dtype), np.random.default_rng(5)
    units, n_rows = chosen(rows, size.n_visible), 4 * size.n_rows - 3
    lefts = rng.normal(size=(n_rows, size.n_visible)).astype(dtype)[:, units]
    rights = rng.normal(size=(n_rows, size.n_hidden)).astype(dtype)
    weights = np.array(model.weights[units])
    weights.flags.writeable = False  # like a model's
    packed = pack(rights / rights.dtype.type(size.n_rows))
    return (
        *(product_address(dtype), size.n_rows, np.ascontiguousarray(lefts), packed, weights),
        *(work_of(packed), np.zeros_like(weights)),
    )


CASES = [
    Case("training.statistics.conditional_moments", "hidden", conditional_arguments,
         lambda arguments: dict(zip(("b", "mean", "var"), arguments[-3:], strict=True)),
         {"float64": 1e-12, "float32": 1e-4}, large=True),
    Case("training.statistics.pair_averages", "both_orders", pair_arguments,
         lambda arguments: {"out": arguments[-1]}, {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
