import numpy as np
import pytest

from fastmf._jit.argument_types import type_of
from fastmf._jit.kernel import address_of, call, kernel
from fastmf.kernels.bp import messages as bp_kernels

N_PADDED, N_UNITS = bp_kernels.PADDING_MULTIPLE["sum"], bp_kernels.TILE_UNITS
MAX_LOG_PRODUCT = 690


@kernel(name=None)
def called(address, e, s, hidden, tile, n_factors, normalisers):
    call(address, (e, s, hidden, tile, n_factors, normalisers))


def run(weights, messages, hidden, visible, n_factors, normalisers):
    """Logarithms by the compiled kernel; exponentials, messages and beliefs as they are."""
    line, wide = np.zeros(0, weights.dtype), np.zeros(0)
    types = map(type_of, (line, line, line, wide, 0, True))
    tile = np.full((5, bp_kernels.TILE_UNITS), np.nan)  # what is not of a unit must not show
    tile[[bp_kernels.P, bp_kernels.Q], : len(weights)] = visible
    arguments = weights.ravel(), messages.ravel(), hidden.ravel(), tile.ravel()
    called(address_of(bp_kernels.pair_logs, *types), *arguments, n_factors, normalisers)
    assert np.isnan(tile[bp_kernels.LOGS, len(weights) :]).all()
    return tile[bp_kernels.LOGS, : len(weights)]


def exact(weights, messages, hidden, visible, normalisers):
    """The same in extended precision, from the same numbers."""
    e, s, (p, q, _), (high, low) = (
        x.astype(np.longdouble) for x in (weights, messages, hidden, visible)
    )
    r = (s * q + e * p) / (s * q + p)
    if normalisers:
        r = low[:, None] + high[:, None] / r
    return np.log(r).sum(1).astype(float)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("normalisers", [False, True])
@pytest.mark.parametrize("n_units", [1, N_UNITS - 1, N_UNITS])
@pytest.mark.parametrize("n_hidden", [N_PADDED, 13 * N_PADDED])
@pytest.mark.parametrize("scale", [0.01, 1.0, 38.0])
def test_logs_of_products_are_exact_to_rounding(scale, n_hidden, n_units, normalisers, dtype):
    rng = np.random.default_rng(0)
    # The largest product of a chunk: all weights of one sign, and the units' beliefs saturated.
    signs = np.where(np.arange(n_units) % 3 == 0, 1, rng.choice([-1, 1], (n_hidden, n_units))).T
    weights = scale * signs * rng.uniform(0.9, 1, (n_units, n_hidden))
    messages = np.exp(weights * rng.random(weights.shape)).astype(dtype)
    p = 1 / (1 + np.exp(-20 * rng.normal(size=n_hidden)))
    hidden = np.stack([p, 1 - p, np.full(n_hidden, np.nan)]).astype(dtype)
    high = rng.random(n_units).astype(dtype)
    visible = np.stack([high, 1 - high])
    weights = np.exp(weights).astype(dtype)
    n_factors = max(1, int(MAX_LOG_PRODUCT / scale))
    found = run(weights, messages, hidden, visible, n_factors, normalisers)
    expected = exact(weights, messages, hidden, visible, normalisers)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=4 * eps, atol=4 * eps * n_hidden**0.5)
