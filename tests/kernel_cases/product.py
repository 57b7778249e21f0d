"""Cases of `fill_panels`."""

import numpy as np

from fastmf.kernels.product import panel_width
from kernel_cases.case import Case, with_options
from kernel_cases.machines import rbm


def fill_panels_arguments(size, dtype, rows=None, *, power=1, fortran=False):
    """Arguments of `fill_panels`; "rows" are panels of couplings, and there is no queue."""
    matrix = rbm(size, dtype).weights
    matrix = np.asfortranarray(matrix) if fortran else matrix
    width = panel_width(matrix.dtype)
    n_panels = -(-size.n_hidden // width)
    return matrix, power, np.zeros((n_panels, size.n_visible, width), dtype)


def _panels(arguments):
    return {"panels": arguments[-1]}


CASES = [
    *(
        Case("product.fill_panels", name, with_options(fill_panels_arguments, **options), _panels,
             {"float64": 1e-15, "float32": 1e-6}, large=options["power"] == 2, any_rows=False)
        for name, options in {
            "couplings": {"power": 1},
            "transposed": {"power": 1, "fortran": True},
            "squares": {"power": 2},
            "cubes": {"power": 3},
        }.items()
    ),
]  # fmt: skip
