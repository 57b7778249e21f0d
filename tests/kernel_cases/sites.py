"""Cases of the site updates of expectation propagation; "rows" are units."""

from functools import partial

import numpy as np

from fastmf.kernels.ep.sites import SiteSettings
from fastmf.priors import GaussBernoulli, TruncatedGaussian
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case, chosen

CLOSE = {"float64": 1e-10}


def table(prior):
    """The table of the prior's units."""
    return units_of(prior, float, ("moments", "log_partition"))


def machine(size, rows):
    """A spike-and-slab prior, sites and a Gaussian for many units, some with negative sites."""
    n = 20 * size.n_visible
    rng, units = np.random.default_rng(6), chosen(rows, n)
    prior = GaussBernoulli(rng.normal(size=n), rng.gamma(2.0, size=n), rng.normal(size=n) - 2)
    gaussian = np.stack([rng.normal(size=n), rng.gamma(2.0, size=n) / 5])
    # Also cavities so weak that the moments of the unit do not exist.
    site = np.stack([rng.normal(size=n), np.where(rng.random(n) < 0.1, -0.2, 1 / gaussian[1] - 1)])
    site[1, 3] = 1 / gaussian[1, 3] + 50
    prior = prior._make(f[units] for f in prior)
    return prior, gaussian[:, units].copy(), site[:, units].copy()


def tilt_arguments(size, dtype, rows=None):
    """Arguments of `tilt_sites`."""
    prior, gaussian, _ = machine(size, rows)
    filled = np.zeros_like(gaussian), gaussian[0] * 0
    return table(prior), 4 * gaussian, np.zeros(1, np.int64), *filled


def match_arguments(size, dtype, rows=None, min_precision=-np.inf):
    """Arguments of `match_sites`."""
    prior, gaussian, site = machine(size, rows)
    return (
        table(prior),
        SiteSettings(0.5 + 0 * site[0], 0.3, min_precision),
        gaussian,
        site,
        np.zeros(1, np.int64),
        *np.zeros((3, *site.shape)),
    )


def cavity_arguments(size, dtype, rows=None):
    """Arguments of `match_cavities`: moments of known tilts, sought from elsewhere."""
    prior, gaussian, site = machine(size, rows)
    tilt = np.stack([gaussian[0] / 2, gaussian[1] * 4])
    wanted = np.stack(prior.moments(*tilt))
    cavity = np.stack([0.5 * tilt[0], tilt[1] * 1.5])
    cavity[1, gaussian[0] < -1] = -100  # the moments do not exist there
    return table(prior), 0.5 + 0 * site[0], wanted, np.zeros(1, np.int64), cavity, 0 * site[0]


def bounded_cavity_arguments(size, dtype, rows=None):
    """The same for units on an interval, of which some should have means outside of it."""
    _, gaussian, _ = machine(size, rows)
    zero = 0 * gaussian[0]
    prior = TruncatedGaussian(zero, zero + 1, zero - 1, zero + 1)
    wanted = np.stack(prior.moments(gaussian[0], 4 * gaussian[1]))
    wanted[0] += np.where(gaussian[0] > 1, 5, 0)
    return table(prior), 1 + zero, wanted, np.zeros(1, np.int64), 0 * gaussian, zero.copy()


def found_cavities(arguments):
    """Cavities, those that do not match set to 0, and log-partitions."""
    cavity, log_partition = arguments[4:]
    return {"cavity": np.where(np.isnan(log_partition), 0, cavity).T,
            "log_partition": log_partition}  # fmt: skip


CASES = [
    Case("ep.sites.tilt_sites", "spike_and_slab", tilt_arguments,
         lambda given: {"tilted": given[3].T, "log_partition": given[4]}, CLOSE, large=True),
    *(
        Case("ep.sites.match_sites", name, build,
             lambda arguments: dict(zip(("cavity", "tilted", "proposal"),
                                        (a.T for a in arguments[-3:]), strict=True)),
             CLOSE, large=name == "free")
        for name, build in (
            ("free", match_arguments), ("bounded", partial(match_arguments, min_precision=0.5))
        )
    ),
    Case("ep.sites.match_cavities", "spike_and_slab", cavity_arguments, found_cavities,
         {"float64": 1e-7}, large=True),
    Case("ep.sites.match_cavities", "bounded_units", bounded_cavity_arguments, found_cavities,
         {"float64": 1e-7}),
]  # fmt: skip
