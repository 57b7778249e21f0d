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


CASES = [
    Case("training.statistics.conditional_moments", "hidden", conditional_arguments,
         ("b", "mean", "var"), {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
