"""Cases of pseudo-likelihood maximisation; "rows" of `bslm` are its starts."""

from functools import partial

import numpy as np

from fastmf.kernels.linear.product import pack
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels
from kernel_cases.case import Case, chosen
from kernel_cases.machines import boltzmann_machine, data


def residual_arguments(size, dtype, rows=None):
    """Arguments of `residuals`; the last row saturates every unit."""
    machine = boltzmann_machine(size, dtype)
    wanted = chosen(rows, size.n_rows)
    states = data(machine, size.n_rows)
    products = states @ machine.couplings
    products[-1] *= 500
    weights = np.random.default_rng(2).random(size.n_rows).astype(dtype)
    return (
        *(machine.prior.field, states[wanted], weights[wanted], np.zeros(1, np.int64)),
        *(products[wanted], np.zeros_like(weights[wanted])),
    )


def bslm_arguments(size, dtype, rows=None, *, n_units=None, l1=0.0, l2=0.0, n_iter=6, strength=1.0):
    """Arguments of `bslm`: `size.n_rows` starts on 40 times as many rows of data."""
    n_units = n_units or min(size.n_visible, 12)
    rng = np.random.default_rng(3)
    n_data = 40 * size.n_rows
    hidden = rng.normal(size=(n_data, 1))
    states = np.where(rng.normal(size=(n_data, n_units)) + 0.7 * hidden > 0.3, 1.0, -1.0)
    weights = rng.random(n_data)
    weights /= weights.sum()
    starts = chosen(rows, size.n_rows)
    upper = np.triu(rng.normal(size=(size.n_rows, n_units, n_units)), 1)[starts]
    upper *= strength / 2
    field = strength * rng.normal(size=(size.n_rows, n_units))[starts]
    mean, second = weights @ states, states.T @ (weights[:, None] * states)
    packed, spins = pack(states.T), np.ascontiguousarray(states.T.astype(np.int8))
    return (
        pl_kernels.BSLMData(packed, spins, weights, mean, second, float(n_data)),
        pl_kernels.BSLMSettings(l1, l2, 1e-3, n_iter, *pl_kernels.bslm_addresses()),
        pl_kernels.bslm_workspaces(8, packed),
        np.zeros(2, np.int64),
        *(upper + upper.transpose(0, 2, 1), field, np.zeros((len(starts), n_iter + 1))),
        np.zeros(len(starts), np.int64),
    )


def _bslm(name, large=False, **options):
    build, results = partial(bslm_arguments, **options), ("couplings", "field", "history", "n_iter")
    kernel = "pseudo_likelihood.binary.bslm"
    return Case(kernel, name, build, results, {"float64": 1e-9}, ("n_iter",), large)


# Parameters are estimates with errors far above float32's, but their sums over rows are not: what
# is computed from binary data is computed in double precision.
CASES = [
    Case("pseudo_likelihood.binary.residuals", "plain", residual_arguments, ("out", "value"),
         {"float64": 1e-12, "float32": 1e-4}, large=True),
    _bslm("plain", large=True),
    _bslm("penalised", l1=0.03, l2=0.02, n_iter=25),
    # Units saturated, the second time to where their odds overflow.
    _bslm("strong", strength=20.0),
    _bslm("overflowing", strength=200.0),
]  # fmt: skip
