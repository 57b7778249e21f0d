"""Cases of `effective_couplings`; "rows" are the groups, all of which are there."""

import itertools

import numpy as np

from fastmf.kernels.linear.product import new_work
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case
from kernel_cases.machines import rbm


def arguments(size, dtype, rows=None):
    """Groups of three states and a last one of what is left; sixty states at most."""
    size = size._replace(n_visible=min(size.n_visible, 60))
    model, rng = rbm(size, dtype), np.random.default_rng(6)
    starts = np.append(np.arange(0, size.n_visible - 3, 3), size.n_visible)
    states = np.stack([rng.integers(a, b, size.n_rows) for a, b in itertools.pairwise(starts)], 1)
    fields = model.weights[states].sum(1)
    return (
        *(units_of(model.hidden, dtype, ("log_partition",)), model.weights, starts, fields),
        *(states, new_work(np.zeros((8, 5, model.n_hidden), dtype))),
        np.zeros((size.n_visible, size.n_visible)),
    )


CASES = [
    Case("sampling.effective_couplings.effective_couplings", "three_states", arguments,
         ("out",), {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
