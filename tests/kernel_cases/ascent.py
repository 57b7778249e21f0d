"""Cases of the step of gradient ascent."""

import numpy as np

from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.training.ascent import AscentStep
from kernel_cases.case import Case, chosen
from kernel_cases.machines import rbm


def ascent_arguments(size, dtype, rows=None):
    """Arguments of `ascend`; "rows" are visible units."""
    model, rng = rbm(size, dtype), np.random.default_rng(7)
    units, shape = chosen(rows, size.n_visible), (size.n_visible, size.n_hidden)
    gradient, velocity = (rng.normal(size=shape).astype(dtype)[units] for _ in range(2))
    below, above = (rng.normal(size=(2, n)).astype(dtype) for n in shape)
    weights = np.array(model.weights[units])
    weights[:, 0] = 0  # no sign
    width = panel_width(dtype)
    products = np.zeros((-(-len(units) // width), size.n_hidden), dtype)
    return (
        *(weights, gradient, velocity, AscentStep(rate=0.1, momentum=0.5, l2=0.2, l1=0.3)),
        *((np.ascontiguousarray(below[:, units]), above), width),
        *(np.zeros(1, np.int64), (np.zeros((2, len(units)), dtype), products)),
    )


def _found(arguments):
    weights, gradient, velocity, *_, ((gradient_dots, squared_norms), _) = arguments
    return {"gradient": gradient, "velocity": velocity, "weights": weights,
            "gradient_dots": gradient_dots, "squared_norms": squared_norms}  # fmt: skip


CASES = [
    Case("training.ascent.ascend", "decayed_and_centred", ascent_arguments,
         _found,
         {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
