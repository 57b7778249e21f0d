"""Cases of `fill_panels`."""

import numpy as np

from fastmf.kernels.product import panel_width
from kernel_cases.case import Case, with_options
from kernel_cases.machines import rbm


def fill_panels_arguments(size, dtype, rows=None, *, fortran=False):
    """Arguments of `fill_panels`; "rows" are panels of couplings, and there is no queue."""
    matrix = rbm(size, dtype).weights
    matrix = np.asfortranarray(matrix) if fortran else matrix
    width = panel_width(matrix.dtype)
    n_panels = -(-size.n_hidden // width)
    return matrix, np.zeros((n_panels, size.n_visible, width), dtype)


def _panels(arguments):
    return {"panels": arguments[-1]}


CASES = [
    Case("product.fill_panels", "couplings", fill_panels_arguments, _panels,
         {"float64": 0, "float32": 0}, large=True, any_rows=False),
    Case("product.fill_panels", "transposed", with_options(fill_panels_arguments, fortran=True),
         _panels, {"float64": 0, "float32": 0}, any_rows=False),
]  # fmt: skip
