"""What spike-and-slab regression and classification have in common."""

import warnings
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from fastmf._common.arguments import count, iteration, one_of
from fastmf.inference.ep.expectation_propagation import SCHEDULES
from fastmf.learning.evidence import maximise_evidence, robust_solution

# Of the fixed points on the way to the best hyper-parameters: the evidence is flat there.
ROUGH = 1e-4


class SpikeSlabEstimator(BaseEstimator):
    """Parameters of both, standardised features, and learning."""

    def __init__(
        self,
        *,
        slab_variance=None,
        inclusion_probability=None,
        groups=None,
        fit_intercept=True,
        standardize=True,
        solver="auto",
        damping=None,
        tol=1e-6,
        max_iter=1000,
        max_evidence_iter=50,
        n_threads=None,
    ):
        self.slab_variance = slab_variance
        self.inclusion_probability = inclusion_probability
        self.groups = groups
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.solver = solver
        self.damping = damping
        self.tol = tol
        self.max_iter = max_iter
        self.max_evidence_iter = max_evidence_iter
        self.n_threads = n_threads

    def _standardised(self, X):
        """Centred and scaled features, in their own precision; remembers by what."""
        self._offset, spread = mean_and_spread(X, self.fit_intercept)
        self._scale = np.ones(X.shape[1])
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        if self.standardize:
            self._scale = np.where(spread == 0, 1.0, spread)
            X = np.where(spread == 0, 0, X - self._offset) / self._scale
        else:
            X = X - self._offset
        return X.astype(dtype, copy=False)

    def _rescaled(self, X):
        """Other rows in the same way."""
        return (X - self._offset) / self._scale

    def _solution(self, task, start, fixed):
        """Hyper-parameters, the model that they make, and its fixed point."""
        best, nearby = maximise_evidence(
            task, start, fixed, tol=max(self.tol, ROUGH), max_iter=self.max_evidence_iter,
            n_threads=self.n_threads,
        )  # fmt: skip
        model = task.model(best)
        result = robust_solution(
            model, nearby, schedule=self.solver, damping=self.damping, tol=self.tol,
            max_iter=self.max_iter, n_threads=self.n_threads,
        )  # fmt: skip
        if not result.converged:
            warnings.warn(
                f"Expectation propagation has {result.message} (residual {result.residual:.2g}).",
                ConvergenceWarning,
                stacklevel=4,
            )
        return best, model, result

    def _check(self, limits):
        """Raise unless each of these is None or between 0 and its limit, and the others fit."""
        for name, high in limits.items():
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{name} must be a number or None, got {value!r:.40}.")
            if not 0 < value < high:
                raise ValueError(f"{name} must be positive and below {high:g}, got {value:g}.")
        for name in ("fit_intercept", "standardize"):
            one_of(name, getattr(self, name), (True, False))
        one_of("solver", self.solver, tuple(SCHEDULES))
        count("max_evidence_iter", self.max_evidence_iter)
        iteration(self.damping, self.tol, self.max_iter, self.n_threads)

    def _groups(self, n_features):
        """The number of every feature's group, and how many there are."""
        if self.groups is None:
            return np.zeros(n_features, np.int64), 1
        try:
            labels, groups = np.unique(np.asarray(self.groups), return_inverse=True)
        except TypeError as error:
            raise TypeError(f"groups must be labels of one kind: {error}.") from error
        if (labels != labels).any():
            raise ValueError("groups must name the group of every feature, got NaN.")
        if groups.shape != (n_features,):
            raise ValueError(f"groups must have shape ({n_features},), got {groups.shape}.")
        return groups, len(labels)

    def _share(self, shape):
        """The inclusion probability that learning starts from."""
        n, d = shape
        share = self.inclusion_probability
        return min(0.5, max(1.0, n / 10) / d) if share is None else share


def mean_and_spread(columns, centred):
    """Mean and standard deviation of columns, or of one; around 0 if not centred.

    Rounding makes constant columns look like noise: its spread is 0, and means are taken from the
    first row on, or those of many rows would be off by more than rounding of a value.

    Raises
    ------
    ValueError
        If squares of the values overflow.
    """
    mean = np.zeros(columns.shape[1:])
    if centred:
        mean = columns[0] + np.subtract(columns, columns[0], dtype=np.float64).mean(0)
    with np.errstate(over="ignore"):  # told below
        spread = np.sqrt(((columns - mean) ** 2).mean(0, dtype=np.float64))
    if not np.isfinite(spread).all():
        raise ValueError("X and y must have values whose squares are finite: divide by a constant.")
    return mean, np.where(spread <= 10 * np.finfo(columns.dtype).eps * abs(mean), 0.0, spread)
