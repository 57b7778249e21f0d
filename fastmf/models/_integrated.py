"""Gaussian units integrated out of a layered machine, exactly.

Given all other units h, Gaussian units x with fields f are jointly Gaussian. With the precision
matrix L = diag(p) - (couplings among x) and the couplings C between x and h,

    p(h) ~ prior(h) exp(h' J h / 2 + h' C' L^-1 f) exp(other couplings),     J = C' L^-1 C

is a fully visible machine of the other units, in which mean-field iterations meet no unit of
unbounded variance. The diagonal of J changes the precisions of its units. All moments follow:

    E x = L^-1 (f + C E h),    Cov(x, h) = L^-1 C Cov(h),    Cov x = L^-1 + L^-1 C Cov(h) C' L^-1

and log Z exceeds the one of the other units by f' L^-1 f / 2 - log det(L / 2 pi) / 2. Without other
units everything is exact. Cov(h) has the variances on its diagonal, and elsewhere the derivative of
the approximate log Z by J: J v v', of order 3 also J^2 k k' / 2.
"""

from itertools import pairwise

import numpy as np

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf._threads.workers import computed_once
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors._queries import fields_of, precisions, without_units


class IntegratedMachine:
    """A layered machine without its Gaussian units: see `integrate_gaussians`.

    Parameters
    ----------
    model : RBM or DBM
    clamped : bool array of shape (n_units,), optional
        Units; Gaussian ones among them keep their values. Even layers come before odd ones.
    precision : array of shape (n_units,), optional
        External precisions.

    Attributes
    ----------
    machine : BoltzmannMachine
        The other units of all layers, even layers before odd ones; None if there are none.
    field, precision : array of shape (n_rest,)
        External tilt of the units of `machine`, to be passed to a solver.
    log_partition : float
        Constant to be added to the log-partition of `machine`; inf if the Gaussian units
        have no proper distribution.
    gaussian, rest, clamped : int array
        Numbers of the units that are integrated out, of the units of other kinds, and of the
        Gaussian units that are clamped.
    means : array of shape (n_gaussian, n_rest)
        L^-1 C, the derivatives of means of Gaussian units by means of other units.
    covariance : array of shape (n_gaussian, n_gaussian), or (n_gaussian,)
        L^-1, or its diagonal where it has no other elements.
    half_log_determinant : float
        Half the logarithm of det(L / 2 pi).
    couplings : array of shape (n_rest, n_rest)
        J without its diagonal, and the other couplings.
    exists : bool
        Whether L is positive definite.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.array([[1.0, 0.5], [-0.5, 1.0]])
    >>> units = mf.Gaussian(np.zeros(2), np.full(2, 2.0)), mf.Bernoulli(np.zeros(2))
    >>> model = mf.RBM(weights, *units)
    >>> rest = model.integrate_gaussians()
    >>> result = mf.tap(rest.machine, field=rest.field, precision=rest.precision)
    >>> (visible, hidden), _ = rest.moments(result.mean, result.var)
    >>> np.allclose(visible, mf.exact(model).mean[0], atol=0.01)
    True
    >>> log_partition = result.log_partition + rest.log_partition
    >>> bool(abs(log_partition - mf.exact(model).log_partition) < 0.01)
    True
    """

    def __init__(self, model, clamped=None, precision=None):
        bipartite = model.bipartite()
        self.dtype, self._model, self._layers = model.dtype, model, bipartite.layers
        gaussian = model.gaussian
        free = gaussian if clamped is None else gaussian & ~clamped
        self.gaussian, self.rest = np.flatnonzero(free), np.flatnonzero(~gaussian)
        self.clamped = np.flatnonzero(gaussian & ~free)
        self.fields = np.concatenate([fields_of(layer) for layer in self._layers])
        self.precisions = np.concatenate([precisions(layer) for layer in self._layers])
        self._weights = bipartite.weights.astype(np.float64)
        diagonal = self.precisions[free]
        if precision is not None:
            diagonal = diagonal + precision[free]
        self.exists = bool((diagonal > 0).all())
        # Units of one side are not coupled to each other.
        n_below = np.searchsorted(self.gaussian, len(self._weights))
        on_both_sides = self.gaussian if 0 < n_below < len(self.gaussian) else self.gaussian[:0]
        among = self.between(on_both_sides, on_both_sides)
        if among.any():
            self._invert(np.diag(diagonal) - among)
        elif self.exists:
            self.covariance = 1 / diagonal
            self.half_log_determinant = np.log(diagonal / (2 * np.pi)).sum() / 2
        if not self.exists:
            self.covariance, self.half_log_determinant = np.ones(len(diagonal)), -np.inf
        to_rest = self.between(self.gaussian, self.rest)
        of_units = self.covariance.ndim == 1
        self.means = self.covariance[:, None] * to_rest if of_units else self.covariance @ to_rest
        with np.errstate(over="ignore", invalid="ignore"):  # `machine` raises an error
            couplings = self.between(self.rest, self.rest) + to_rest.T @ self.means
        self.precision = -couplings.diagonal()
        np.fill_diagonal(couplings, 0)
        self.couplings = (couplings + couplings.T) / 2
        field = self.fields[self.gaussian]
        self.field = field @ self.means
        self.log_partition = self.times_covariance(field) @ field / 2 - self.half_log_determinant

    def _invert(self, matrix):
        try:
            factor = cholesky(matrix)
        except LinAlgError:
            self.exists = False
            return
        self.covariance = factor.inverse()
        of_constant = len(matrix) * np.log(2 * np.pi) / 2
        self.half_log_determinant = factor.half_log_determinant - of_constant

    def between(self, rows, columns):
        """Return the couplings between units of the model, given by their numbers."""
        n = len(self._weights)
        below, above = rows < n, columns >= n
        if below.all() and above.all():
            return self._weights[run_of(rows)][:, run_of(columns - n)]
        out = np.zeros((len(rows), len(columns)))
        if below.any() and above.any():
            out[np.ix_(below, above)] = self._weights[np.ix_(rows[below], columns[above] - n)]
        if not (below.all() or above.all()):
            out[np.ix_(~below, ~above)] = self._weights[np.ix_(columns[~above], rows[~below] - n)].T
        return out

    def times_covariance(self, rows):
        """Multiply rows of the Gaussian units by L^-1."""
        return rows * self.covariance if self.covariance.ndim == 1 else rows @ self.covariance

    @computed_once
    def machine(self):
        """The fully visible machine of the other units; None if there are none."""
        if not len(self.rest):
            return None
        with np.errstate(over="ignore"):
            couplings = self.couplings.astype(self.dtype)
        if not np.isfinite(couplings).all():
            raise ValueError(
                "model has weights so large that couplings without its Gaussian units exceed the "
                f"range of {self.dtype}: divide the weights by a number."
            )
        return BoltzmannMachine(couplings, without_units(self._layers, self._model.gaussian))

    def moments(self, mean, var, order=2):
        """Compute means and variances of all units from the results of a solver for `machine`.

        Parameters
        ----------
        mean, var : array of shape (n_rest,) or (n_rows, n_rest)
        order : {1, 2, 3}, default 2
            Order of the solver, at which covariances between the units are taken.

        Returns
        -------
        mean, var : tuple of arrays
            By layer.
        """
        mean, var = (np.asarray(part, np.float64) for part in (mean, var))
        out = np.zeros((2, *mean.shape[:-1], len(self.fields)))
        out[0][..., self.rest], out[1][..., self.rest] = mean, var
        rows = np.atleast_2d(mean), np.atleast_2d(var)
        alone = self.times_covariance(self.fields[self.gaussian])
        out[0][..., self.gaussian] = alone + mean @ self.means.T
        out[1][..., self.gaussian] = self.variances(*rows, order).reshape(*mean.shape[:-1], -1)
        return tuple(tuple(part[..., units] for units in self._model.bounds) for part in out)

    def mean_covariance(self, mean, var, order):
        """Average the covariance of the other units over rows with these means and variances."""
        n_rows, out = len(var), np.zeros(self.couplings.shape)
        if order > 1:
            out += self.couplings * (var.T @ var) / n_rows
        if order == 3:
            third = self.machine.prior.third_cumulant(mean)[0]
            out += self.couplings**2 * (third.T @ third) / (2 * n_rows)
        out[np.diag_indices_from(out)] = var.mean(0)
        return out

    def variances(self, mean, var, order):
        """Variances of the Gaussian units in each row: O(n_gaussian n_rest^2) for a row."""
        alone = self.covariance if self.covariance.ndim == 1 else self.covariance.diagonal()
        out = alone + var @ np.square(self.means).T
        if order == 1 or not self.couplings.any():
            return out
        for row in range(len(var)):
            covariance = self.mean_covariance(mean[row : row + 1], var[row : row + 1], order)
            products = self.means @ covariance
            out[row] = alone + np.einsum("ij,ij->i", products, self.means)
        return np.maximum(out, alone)

    def average_products(self, mean, var, order):
        """Average covariances of coupled layers, and x^2 of each layer, over rows of all units."""
        bounds, n_units = self._model.bounds, mean.shape[1]
        of_rest = self.mean_covariance(mean[:, self.rest], var[:, self.rest], order)
        responses, alone = np.zeros((n_units, len(self.rest))), np.zeros(n_units)
        responses[self.rest, np.arange(len(self.rest))] = 1
        responses[run_of(self.gaussian)] = self.means
        products, covariances = responses @ of_rest, []
        for below, above in pairwise(bounds):
            first, last = np.searchsorted(self.rest, (above.start, above.stop))
            # Units that are not integrated out respond to themselves alone.
            all_of_rest = last - first == above.stop - above.start
            covariances.append(
                products[below, first:last] if all_of_rest else products[below] @ responses[above].T
            )
        if self.covariance.ndim == 1:
            alone[self.gaussian] = self.covariance
        else:
            alone = np.zeros((n_units, n_units))
            alone[np.ix_(self.gaussian, self.gaussian)] = self.covariance
            for covariance, (below, above) in zip(covariances, pairwise(bounds), strict=True):
                covariance += alone[below, above]
            alone = alone.diagonal()
        squares = np.einsum("ij,ij->i", products, responses) + np.square(mean).mean(0) + alone
        return covariances, [squares[units] for units in bounds]


def run_of(numbers):
    """Ascending numbers as an index: a slice, which copies nothing, if they are consecutive."""
    n = len(numbers)
    if n and numbers[-1] - numbers[0] == n - 1:
        return slice(numbers[0], numbers[0] + n)
    return numbers
