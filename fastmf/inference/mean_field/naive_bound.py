"""The variational bound of naive mean field, in double precision, at any tilts of the units.

A product of units q_i ~ prior_i(x) exp(b_i x - p_i x^2 / 2) with means m has

    L = sum_i [log Z_i(b_i, p_i) - (b_i - f_i) m_i] + sum_(i,j) J_ij m_i m_j  <=  log Z

for external fields f and precisions p, whether or not b is a solution. A clamped unit has
log prior(x) + f x - p x^2 / 2 in the place of its bracket.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

from fastmf._common import arguments as check
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.models._layered import Layered
from fastmf.priors._groups import column_sizes
from fastmf.priors._protocol import as_dtype, sample

# Sweeps of naive mean field from each start of a bound.
N_BOUND_SWEEPS = 200


class Sides(NamedTuple):
    """A machine in double precision as one or two sets of units without couplings inside.

    Parameters
    ----------
    priors : tuple
        Priors of the units of each side, in the order of the layout: of an RBM visible and hidden
        ones, of a DBM even and odd layers, and of a fully visible machine all units, coupled to
        themselves.
    couplings : float64 array of shape (n_first, n_last), or csr_array
    """

    priors: tuple
    couplings: np.ndarray

    @property
    def slices(self):
        """Where the units of each side are among all units."""
        n, total = self.couplings.shape[0], sum(self.couplings.shape)
        return (slice(0, n), slice(n, total))[: len(self.priors)]


def sides_of(model):
    """The `Sides` of an RBM, DBM or BoltzmannMachine."""
    if isinstance(model, Layered):
        model = model.bipartite()
        priors, couplings = model.layers, model.weights
    else:
        priors, couplings = (model.prior,), model.couplings
    priors = tuple(as_dtype(prior, np.float64) for prior in priors)
    return Sides(priors, couplings.astype(np.float64))


def layout_of_checks(model):
    """A layout whose units are in the order of `sides_of`."""
    schedule = "sequential" if issparse(getattr(model, "couplings", None)) else "blocked"
    return layout_of(model, 1, schedule)


def naive_bound(sides, b, tilt, values=None):
    """Return the bounds of rows of tilts b, -inf if not finite, and sizes of their terms."""
    b = b.astype(np.float64)
    means, total, size = [], 0.0, 1.0
    for prior, units in zip(sides.priors, sides.slices, strict=True):
        field, precision, clamped = (
            np.broadcast_to(part[:, units], b[:, units].shape) for part in tilt
        )
        x = None
        if clamped.any():
            x = np.broadcast_to(values[:, units], clamped.shape).astype(np.float64)
        tilts = b[:, units], field.astype(np.float64), precision.astype(np.float64)
        mean, own = terms_of_units(prior, *tilts, clamped, x)
        means.append(mean)
        total = total + own.sum(1)
        size = size + abs(own).sum(1)
    first, last = means[0], means[-1]
    products = (first @ sides.couplings) * last / (3 - len(means))
    with np.errstate(invalid="ignore"):
        total, size = total + products.sum(1), size + abs(products).sum(1)
    finite = np.isfinite(total)
    return np.where(finite, total, -np.inf), np.where(finite, size, 0.0)


def terms_of_units(prior, b, field, precision, clamped, values=None):
    """Means of the units, and the terms of the bound that sum to those of the units.

    With b = field these are the log-partitions of the units.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = prior.moments(b, precision)[0]
        # One for each group of states.
        alone = prior.log_partition(b, precision)
        own = (field - b) * mean
    if values is not None and clamped.any():
        sizes = column_sizes(prior)
        alone = np.where(clamped[:, np.cumsum(sizes) - sizes], 0, alone)
        x = mean = np.where(clamped, values, mean)
        own = np.where(clamped, prior.log_prob(x) + field * x - precision * x * x / 2, own)
    return mean, np.hstack([alone, own])


def random_starts(model, n_starts, rng):
    """Random values of the first layer, and in a last row the means of its uncoupled units."""
    first, dtype = model.layers[0], model.dtype
    zero = dtype.type(0)
    mean = first.moments(zero, zero)[0]
    rng = check.generator(rng)
    zeros = np.zeros((n_starts, len(mean)), dtype)
    return np.vstack([sample(first, zeros, zeros, rng).astype(dtype), mean])


def naive_solutions(solve, model, layout, init, tilt, values, max_iter=1000):
    """Solve naive mean field from means of the first or of all layers; tilts are as in a layout."""
    # Blocks of a dense machine are coupled, colours of a sparse one are not.
    dense = not isinstance(model, Layered) and not issparse(model.couplings)
    options = {"schedule": "sequential" if dense else "blocked", "max_iter": max_iter}
    clamp = np.where(tilt.clamped, values, np.nan)
    for name, part, used in (
        ("field", tilt.field, tilt.field.any()),
        ("precision", tilt.precision, tilt.precision.any()),
        ("clamp", clamp, tilt.clamped.any()),
    ):
        if used:
            rows = part[0] if len(part) == 1 else part
            options[name] = layout.split(rows.astype(model.dtype))
    means = tuple(x.astype(model.dtype) for x in (init if isinstance(init, tuple) else (init,)))
    starts = means, tuple(np.zeros_like(part) for part in means)
    if len(means) == 1:  # of the first layer
        starts = tuple(parts[0] for parts in starts)
    return solve(model, starts, order=1, log_partition=False, **options)
