"""Cases of the product of rows with packed couplings."""

import numpy as np

from fastmf.kernels.linear.product import pack, product_address
from kernel_cases.case import Case, chosen
from kernel_cases.machines import rbm


def multiply_arguments(size, dtype, rows=None):
    """Arguments of `multiply`: the units of the first layer come after some others."""
    weights, rng = rbm(size, dtype).weights, np.random.default_rng(9)
    n_others, n_rows = 3, 8 * size.n_rows  # several tasks
    states = rng.normal(size=(n_rows, n_others + size.n_visible)).astype(dtype)
    states, packed = states[chosen(rows, n_rows)], pack(weights)
    out = np.zeros((len(states), packed.shape[0] * packed.shape[2]), dtype)
    address, queue = product_address(dtype), np.zeros(1, np.int64)
    return address, states, n_others, packed, size.n_hidden, queue, out


def _products(arguments):
    return {"out": arguments[-1][:, : arguments[4]]}


CASES = [
    Case("linear.product.multiply", "rbm", multiply_arguments, _products,
         {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
