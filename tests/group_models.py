"""Small models with groups of states, and the matrix form of their mean-field equations."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.models.layered import Layered
from fastmf.priors._groups import groups

RNG = np.random.default_rng(0)


def units(*sizes):
    return mf.Categorical([RNG.normal(size=size) for size in sizes])


def fully_visible(prior, n, scale):
    couplings = np.triu(RNG.normal(size=(n, n)), 1) * scale
    for group in groups(prior):
        couplings[group, group] = 0
    return mf.BoltzmannMachine(couplings + couplings.T, prior)


def normal(*shape):
    return RNG.normal(size=shape)


FOUR = units(3, 4, 2, 5)
MODELS = {
    "bernoulli": mf.RBM(0.4 * normal(14, 6), FOUR, mf.Bernoulli(normal(6))),
    "ising": mf.RBM(0.2 * normal(14, 6), FOUR, mf.Ising(normal(6))),
    "gaussian": mf.RBM(0.2 * normal(14, 6), FOUR, mf.Gaussian(normal(6), 2.0)),
    "hidden": mf.RBM(0.4 * normal(6, 14), mf.Bernoulli(normal(6)), FOUR),
    "both": mf.RBM(0.4 * normal(14, 7), FOUR, units(3, 4)),
    "mixed": mf.RBM(
        0.4 * normal(17, 9),
        mf.Concatenated(mf.Ising([0.1]), FOUR, mf.Bernoulli([0.2, 0.3])),
        mf.Concatenated(units(3, 4), mf.Bernoulli([0.0, 0.2])),
    ),
    "deep": mf.DBM(
        (0.3 * normal(14, 6), 0.5 * normal(6, 5), 0.5 * normal(5, 3)),
        (FOUR, mf.Bernoulli(np.zeros(6)), units(2, 3), mf.Ising(np.zeros(3))),
    ),
    "fully_visible": fully_visible(FOUR, 14, 0.4),
    "fully_visible_mixed": fully_visible(
        mf.Concatenated(mf.Ising([0.1, 0.3]), FOUR, mf.Bernoulli([0.2, 0.3])), 18, 0.2
    ),
}
ORDERS = [(name, order) for name in MODELS for order in (1, 2)]
every_order = pytest.mark.parametrize(("name", "order"), ORDERS)


class MatrixForm:
    """The equations with one matrix of couplings of all units and a matrix of Onsager terms.

    A = -(J C J) within each group or unit, with C the covariance of independent groups;
    b = J m + A m, a = diag(A), and the free energy has the terms m'J m / 2 + tr(C J C J) / 4. The
    third order is a sum over all states of pairs of positions; b has its derivatives by the means.
    """

    def __init__(self, model):
        sizes = [len(layer.moments(0.0, 0.0)[0]) for layer in model.layers]
        ends = np.cumsum(sizes)
        self.layers = list(zip(model.layers, map(slice, ends - sizes, ends), strict=True))
        self.couplings = np.zeros((ends[-1], ends[-1]))
        if isinstance(model, Layered):
            for w, (_, low), (_, high) in zip(
                model.couplings, self.layers, self.layers[1:], strict=False
            ):
                self.couplings[low, high], self.couplings[high, low] = w, w.T
        else:
            self.couplings = model.couplings
        self.groups = [
            slice(g.start + at.start, g.stop + at.start)
            for layer, at in self.layers
            for g in groups(layer)
        ]
        self.within = np.eye(ends[-1], dtype=bool)
        for group in self.groups:
            self.within[group, group] = True

    def covariance(self, mean, var):
        covariance = np.diag(var)
        for group in self.groups:
            covariance[group, group] = np.diag(mean[group]) - np.outer(mean[group], mean[group])
        return covariance

    def tilts(self, mean, var, order, field, precision):
        matrix = -(self.couplings @ self.covariance(mean, var) @ self.couplings) * self.within
        matrix *= order > 1
        return self.couplings @ mean + matrix @ mean + field, matrix.diagonal() + precision

    def moments(self, b, a):
        parts = [layer.moments(b[at], a[at]) for layer, at in self.layers]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def log_partition(self, mean, var, order, field=0.0, precision=0.0):
        b, a = self.tilts(mean, var, order, field, precision)
        second = mean**2 + var
        for group in self.groups:
            second[group] = mean[group]
        chain = self.covariance(mean, var) @ self.couplings
        units_alone = sum(layer.log_partition(b[at], a[at]).sum() for layer, at in self.layers)
        return (
            units_alone - (b - field) @ mean + (a - precision) @ second / 2
            + mean @ self.couplings @ mean / 2 + (order > 1) * np.trace(chain @ chain) / 4
        )  # fmt: skip


def joined(parts):
    return np.concatenate(parts) if isinstance(parts, tuple) else parts
