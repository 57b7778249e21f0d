"""Descent on the energy of expectation propagation as a function of the moments themselves.

Expectation propagation seeks means m and variances v that the Gaussian, with sites t, and the
units, under cavities c, have in common. For any such moments there is an energy

    G(m, v) = max over t of [-ln Z(t) + t1 m - t2 (m^2 + v) / 2]
            + sum max over c of [c1 m - c2 (m^2 + v) / 2 - ln Zhat(c)] + sum ln(2 pi e v) / 2

whose stationary points are the fixed points, with the value of the energy of the double loop there
(`convergent`; it is the Gibbs free energy of Opper & Winther 2005). With the sites as variables the
moments are those of the Gaussian, and the first maximum needs no search; the second is a search
unit by unit. So one factorisation gives the energy exactly, without an inner loop, and descent is
a matter of good directions:

    by m:   X'X / s2 and a diagonal. All units together, by one more factorisation.
    by v:   with S the covariance, (S * S)^-1 / 2 and a diagonal. Off its diagonal, S * S matters
            for the most correlated units: those are taken together, the others one by one.

This is how Seeger & Nickisch (2011) decouple means from variances, but in Newton's model instead of
in nested loops. Levenberg's term, in units of the marginals' own curvature, keeps steps short where
the model is poor. Units of which the variance follows from the mean (binary ones) have no tilt for
arbitrary m and v: `two_valued` is for them.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dposv

from fastmf.inference.ep.inner_loop import active_units, unit_curvature
from fastmf.inference.ep.sites import per_unit, state_from
from fastmf.inference.gaussian.side import Moments
from fastmf.kernels.sites import match_cavities

# Levenberg's parameter: at the start, and where it is given up.
FIRST, LAST = 1.0, 1e8
LENGTHS = 1.0, 0.3, 0.1
# Smallest curvature, in units of the diagonal, where the model is not convex.
FLATTEST = 0.01
# So many times the estimated rounding of the energy, differences of it tell nothing.
BLIND = 100


class Point(NamedTuple):
    """Sites, the moments of the Gaussian, and cavities that give the units the same moments.

    Parameters
    ----------
    site, gaussian, cavity : array of shape (2, n_units)
    inverse : inverse of the Gaussian side
    log_partition : float
        Of the Gaussian.
    value : float
        The energy.
    noise : float
        What rounding may do to it.
    """

    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    inverse: object
    log_partition: float
    value: float
    noise: float

    @property
    def tilted(self):
        """Moments of the units."""
        return self.gaussian

    def state(self, problem):
        """The state of regular expectation propagation at these sites."""
        return state_from(problem, self.site, Moments(self.gaussian, self.log_partition))

    def step(self, problem, caution):
        """Newton's step from here, with this parameter of Levenberg's."""
        return Step(problem, self, caution)


def first_point(problem, state):
    """The point of a state; None if the units have no tilts with the moments of the Gaussian."""
    return evaluate(problem, state.site, state.cavity)


def evaluate(problem, site, cavity):
    """The point of these sites, cavities sought from those given; None outside the domain."""
    inverse = problem.side.inverse(site[1])
    if inverse is None:
        return None
    moments = inverse.moments(site[0])
    mean, var = moments.marginal
    if not (var > 0).all():
        return None
    cavity, log_partition = cavity.copy(), np.empty(len(mean))
    per_unit(match_cavities, problem, len(mean), problem.own, moments.marginal, None, cavity,
             log_partition)  # fmt: skip
    second = (mean * mean + var) / 2
    terms = np.stack([*(site * [mean, -second]), *(cavity * [mean, -second]), -log_partition,
                      np.log(2 * np.pi * np.e * var) / 2])  # fmt: skip
    value = terms.sum() - moments.log_partition
    if not np.isfinite(value):
        return None
    sizes = abs(terms).sum() + abs(moments.log_partition) + abs(problem.side.constant)
    noise = 1e-15 * sizes
    return Point(site, moments.marginal, cavity, inverse, moments.log_partition, value, noise)


class Step:
    """Newton's step on the energy from a point, with Levenberg's term.

    Parameters
    ----------
    problem : Problem
    point : Point
    caution : float
        Levenberg's parameter.

    Attributes
    ----------
    slope : float
        Derivative of the energy along the step, by the model.
    """

    def __init__(self, problem, point, caution):
        (mean, var), (t1, t2), (c1, c2) = point.gaussian, point.site, point.cavity
        self.problem, self.point, by_mean = problem, point, t1 + c1 - (t2 + c2) * mean
        by_var = (1 / var - c2 - t2) / 2
        first, mixed, second = unit_curvature(problem, point)
        determinant = first * second - mixed * mixed
        if not (determinant > 0).all():
            raise LinAlgError("the curvature of a unit is lost in rounding.")
        # Curvature of the units on their own by m, by m and v, and by v; that of S * S, the share
        # of the Gaussian, is added to the last one unit by unit.
        one = second / determinant - c2 + caution / var
        both = mixed / determinant / 2
        two = first / determinant / 4 + caution / (2 * var * var)
        active = active_units(problem, point)
        others = np.ones(len(mean), bool)
        others[active] = False
        # The others' variances are eliminated.
        share = np.where(others, both / two, 0.0)
        precision = np.maximum(one - share * both, t2)
        right = share * by_var - by_mean
        inverse = problem.side.inverse(precision)
        if inverse is None:
            raise LinAlgError("the Gaussian is not proper.")
        # Then the means, which leaves the active units' variances.
        scale = 1 / np.sqrt(two[active])
        unit = scale / var[active]
        square = _squared(point.inverse.covariance(active), var[active])
        model = unit[:, None] * _inverse(square) * unit / 2
        model += np.diag(1 - unit * unit / 2)
        pull = both[active] * scale
        model -= pull[:, None] * inverse.covariance(active) * pull
        start = inverse.solve(right)
        wanted = -by_var[active] * scale - pull * start[active]
        change = np.zeros(len(mean))
        change[active] = scale * downhill((model + model.T) / 2, wanted)
        right[active] -= both[active] * change[active]
        means = inverse.solve(right)
        rest = -(by_var + both * means) / two
        # Nothing beyond a factor of three at a time: the model knows nothing of it.
        change = np.where(others, np.clip(rest, -2 * var, 2 * var), change)
        self.slope = by_mean @ means + by_var @ change
        self.means = means
        self.fields = right + (t2 - precision) * means
        self.relative = -change / var
        self.relative[active] = _solve(square, self.relative[active])

    def at(self, length):
        """The point at some length along the step; None outside the domain.

        Precisions that fall do so exponentially: that of a unit on its own stays positive.
        """
        (mean, var), (t1, t2) = self.point.gaussian, self.point.site
        relative = length * self.relative
        change = np.where(relative < 0, np.expm1(np.minimum(relative, 0)), relative) / var
        moved = mean + length * self.means
        site = np.stack([t1 + length * self.fields + change * moved, t2 + change])
        return evaluate(self.problem, site, self.point.cavity)


def _squared(covariance, var):
    """Squares of correlations, a little less than perfect."""
    square = covariance * covariance / (var[:, None] * var)
    square.flat[:: len(var) + 1] += 1e-12
    return square


def _solve(matrix, right):
    """Solution with a positive definite matrix."""
    _, solution, failed = dposv(matrix, right, lower=1)
    if failed:
        raise LinAlgError("the matrix is not positive definite.")
    return solution


def _inverse(matrix):
    """Inverse of a positive definite matrix."""
    return _solve(matrix, np.eye(len(matrix)))


def downhill(model, right):
    """Newton's step; with the moduli of the eigenvalues where the model is not convex."""
    try:
        return _solve(model, right)
    except LinAlgError:
        values, vectors = np.linalg.eigh(model)
        return vectors @ (vectors.T @ right / np.maximum(abs(values), FLATTEST))


def descend(problem, point, trace):
    """Minimise the energy from a point: the last state, and whether it converged."""
    caution, best = FIRST, None
    for _ in range(problem.max_iter):
        best = point.state(problem)
        trace.add(best.residual(), lambda value=point.value: float(value))
        if trace.residuals[-1] <= problem.tol:
            return best, True
        new = None
        while new is None and caution < LAST:
            new, caution = _advance(problem, point, caution, trace.residuals[-1])
        if new is None:
            break
        point = new
    return best, False


def _advance(problem, point, caution, residual):
    """The next point, None if there is none yet, and Levenberg's parameter from there on."""
    try:
        step = point.step(problem, caution)
        point = step.point  # which it may know better
    except (LinAlgError, ValueError):
        return None, max(10 * caution, 1e-6)
    for length, factor in zip(LENGTHS, (0.3, 2, 5), strict=True):
        new = step.at(length)
        if new is None:
            continue
        enough = point.value + 1e-4 * length * min(step.slope, 0.0) + point.noise
        # At the end rounding hides by how much the energy falls.
        blind = abs(step.slope) + abs(new.value - point.value) < BLIND * point.noise
        if new.value <= enough or (blind and new.state(problem).residual() < 0.9 * residual):
            # The parameter should vanish as fast as what is left.
            return new, max(min(factor * caution, abs(step.slope)), 1e-12)
    return None, max(10 * caution, 1e-6)
