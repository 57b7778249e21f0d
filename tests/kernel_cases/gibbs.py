"""Cases of `gibbs`."""

import numpy as np

from fastmf.kernels.product import pack
from kernel_cases.case import Case, chosen
from kernel_cases.machines import data, rbm


def gibbs_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """Arguments of `gibbs`."""
    model = rbm(size, dtype)
    v = data(model, size.n_rows)[chosen(rows, size.n_rows)]
    values = model.visible.support, model.hidden.support
    return (
        *(pack(model.weights), pack(model.transposed), *model.layers, *values),
        *(np.uint64(7), n_sweeps, v, np.zeros((len(v), size.n_hidden), dtype)),
        np.zeros(1, np.int64),
    )


def _chains(arguments):
    return {"v": arguments[8], "h": arguments[9]}


CASES = [
    Case("gibbs.gibbs", "block", gibbs_arguments, _chains, {"float64": 0, "float32": 0}, large=True,
         any_rows=False),
]  # fmt: skip
