"""Tilted moments, for the clock only: inside the package they are part of other kernels."""

from typing import NamedTuple

import numpy as np

from fastmf import priors
from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import kernel
from fastmf.priors._compiled import tilted_moments, units_of
from fastmf.priors._protocol import n_units
from fastmf.reference import units as reference_units


@kernel(name=None)
def moments_of_rows(units, b, a, mean, var, queue):
    """Means and variances of rows of tilted units, computed as `tap` computes them."""
    while True:
        row = fetch_and_increment(queue)
        if row >= b.shape[0]:
            break
        tilted_moments(units, 0, b[row], a[row], mean[row], var[row])


def moments_arguments(prior, n_rows, dtype="float64", bounded=True):
    """Arguments of `moments_of_rows`: tilts of every kind, if units are bounded."""
    rng = np.random.default_rng(4)
    shape = n_rows, n_units(prior)
    b, a = rng.normal(size=shape) * 10, rng.normal(size=shape) * 10
    b, a = b.astype(dtype), (a if bounded else abs(a)).astype(dtype)
    return units_of(prior, dtype), b, a, np.zeros_like(b), np.zeros_like(b), np.zeros(1, np.int64)


def _fields(n):
    """Fields, precisions, log-odds and bounds of so many units."""
    rng = np.random.default_rng(6)
    return rng.normal(size=n), 1 + rng.random(n), rng.normal(size=n), np.zeros(n), np.ones(n)


# Priors of so many units, by their names.
PRIORS = {
    "bernoulli": lambda n: priors.Bernoulli(_fields(n)[0]),
    "ising": lambda n: priors.Ising(_fields(n)[0]),
    "binomial": lambda n: priors.Binomial(_fields(n)[0], np.full(n, 4)),
    "ordinal": lambda n: priors.Ordinal(np.random.default_rng(7).normal(size=(n, 5))),
    "gaussian": lambda n: priors.Gaussian(*_fields(n)[:2]),
    "truncated_gaussian": lambda n: priors.TruncatedGaussian(*_fields(n)[:2], *_fields(n)[3:]),
    "gauss_bernoulli": lambda n: priors.GaussBernoulli(*_fields(n)[:3]),
    "truncated_gauss_bernoulli": lambda n: priors.TruncatedGaussBernoulli(*_fields(n)),
    "categorical": lambda n: priors.Categorical(
        np.random.default_rng(7).normal(size=(n // 4, 4)).tolist()
    ),
}


class MomentsCase(NamedTuple):
    """Moments of one prior's units, beside the prior's own text run by NumPy."""

    name: str
    dtypes: tuple = ("float64", "float32")

    def prior(self, n, dtype):
        """So many units, with parameters of a type."""
        prior = PRIORS[self.name](n)
        as_dtype = getattr(prior, "as_dtype", None)
        if as_dtype:
            return as_dtype(dtype)
        return prior._replace(**{
            name: value.astype(dtype)
            for name, value in prior._asdict().items()
            if np.asarray(value).dtype.kind == "f"
        })  # fmt: skip

    def build(self, size, dtype):
        """Tilts of as many units as a layer of that size has, for each row."""
        prior = self.prior(4 * (size.n_visible // 4), dtype)
        bounded = self.name not in ("gaussian", "gauss_bernoulli")
        return prior, *moments_arguments(prior, size.n_rows, dtype, bounded)

    def run(self, which, arguments, n_workers=1):
        """Fill in mean and variance."""
        prior, units, b, a, mean, var, queue = arguments
        if which == "twin":
            # `prior.moments` would call kernels for so many units.
            mean[:], var[:] = reference_units.moments(prior, b, a)
        else:
            moments_of_rows(units, b, a, mean, var, queue)

    def __str__(self):
        return f"priors.{self.name}.moments"


MOMENTS = [MomentsCase(name) for name in PRIORS]
