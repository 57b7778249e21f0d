"""Bayesian linear regression with a unit prior on every coefficient."""

from dataclasses import dataclass, fields

import numpy as np

from fastmf._common.arguments import number, positive, refusing_overflow
from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import StoredColumns
from fastmf.models import _checks
from fastmf.models._io import Model
from fastmf.priors._groups import refuse_groups
from fastmf.priors._protocol import is_unit_prior, n_units


@dataclass(frozen=True, eq=False, repr=False)
class SparseLinearModel(Model):
    """y = X w + noise, with a unit prior on every coefficient: the posterior of w.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Design matrix. float32 and float64 arrays are not copied (the model sees later changes of
        the array); other types become float64. All computations are in float64.
    y : array of shape (n_samples,)
    noise_variance : float
        Variance of the Gaussian noise, positive.
    prior : unit prior
        Prior of the coefficients, n_features units; `GaussBernoulli` is the spike and slab. With
        n_features + n_samples units, the units after the coefficients are latent variables u, one
        for each row, and y = X w - u + noise.
    total_rows : float, optional
        Number of rows of the data, if X and y are fewer rows with equal moments. None: rows of X.
    absent_square : float, default 0
        Sum of squares of a part of the data that is orthogonal to all features, and not in `y`.
    row_weights : float or array of shape (n_samples,), default 1
        Multiplicity of each row and its latent variable, which need not be an integer. Rows of X
        and y are multiplied by its root. Only for models with latent variables and the parallel
        schedule.

    Attributes
    ----------
    n_samples, n_features, n_units : int
    has_latent : bool
        Whether rows have latent variables.
    layers : tuple
        (prior,).
    dtype : numpy dtype
        float64, the type of all results.

    Raises
    ------
    ValueError
        If shapes disagree, a value is not finite or the noise variance is not positive.
    TypeError
        If the prior lacks the methods of a unit prior, or an array is not of real numbers.

    Notes
    -----
    Hernández-Lobato & Hernández-Lobato (2011), Eq. 1. As for all models the prior is not
    normalised (see `fastmf.priors`), while the Gaussian density of y is.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.GaussBernoulli(np.zeros(2), np.ones(2), np.zeros(2))
    >>> y = np.array([3.0, 0.0])
    >>> model = mf.SparseLinearModel(np.eye(2), y, noise_variance=0.1, prior=prior)
    >>> mf.expectation_propagation(model).mean.round(2)
    array([2.73, 0.  ])
    """

    X: np.ndarray
    y: np.ndarray
    noise_variance: float
    prior: tuple
    total_rows: float | None = None
    absent_square: float = 0.0
    row_weights: float | np.ndarray = 1.0

    # X'X of models that share their X: see `with_gram`.
    _gram = None

    def __post_init__(self):
        X = self.X
        if not isinstance(X, StoredColumns):
            X = _checks.shared_matrix("X", X)
        y = np.atleast_2d(_checks.matrix("y", np.atleast_2d(self.y)).astype(np.float64))
        if y.shape != (1, len(X)):
            raise ValueError(f"y must have shape ({len(X)},), got {np.shape(self.y)}.")
        variance = positive("noise_variance", self.noise_variance)
        rows = len(X) if self.total_rows is None else self.total_rows
        rows = number("total_rows", rows, -np.inf, np.inf)
        square = number("absent_square", self.absent_square, -np.inf, np.inf)
        if not (np.isfinite(rows) and 0 <= square < np.inf):
            raise ValueError(
                f"total_rows and absent_square must be finite, and absent_square not negative, got "
                f"{rows:g} and {square:g}."
            )
        latent = is_unit_prior(self.prior) and n_units(self.prior) == sum(X.shape)
        if latent and rows != len(X):
            raise ValueError(
                "total_rows must be the number of rows of X for models with latent variables."
            )
        weights = _row_weights(self.row_weights, len(X))
        if not latent and np.any(weights != 1):
            raise ValueError(
                "row_weights must be 1 for rows without latent variables: multiply X and y by the "
                "roots of the weights, and give their sum as total_rows."
            )
        y = y[0]
        y.flags.writeable = False
        refuse_groups("SparseLinearModel", (self.prior,), "its coefficients are numbers.")
        n = X.shape[1] + latent * len(X)
        prior = _checks.unit_prior("prior", self.prior, n, np.dtype(np.float64))
        checked = X, y, float(variance), prior, rows, square, weights
        for field, value in zip(fields(self), checked, strict=True):
            object.__setattr__(self, field.name, value)

    @property
    def n_samples(self):
        """Number of rows."""
        return self.X.shape[0]

    @property
    def n_features(self):
        """Number of coefficients."""
        return self.X.shape[1]

    @property
    def n_units(self):
        """Number of coefficients, and of latent variables."""
        return n_units(self.prior)

    @property
    def log_absent(self):
        """Log-density of the part of the data that is not in X and y."""
        variance, absent = self.noise_variance, self.total_rows - self.n_samples
        return -(absent * np.log(2 * np.pi * variance) + self.absent_square / variance) / 2

    @property
    def has_latent(self):
        """Whether rows have latent variables."""
        return self.n_units > self.n_features

    @property
    def has_weights(self):
        """Whether any row has a weight other than 1."""
        return np.ndim(self.row_weights) > 0

    def unit_weights(self):
        """Return the multiplicities of units; None if all are 1."""
        if not self.has_weights:
            return None
        weights = np.ones(self.n_units)
        weights[self.n_features :] = self.row_weights
        return weights

    @property
    def layers(self):
        """The priors, (prior,)."""
        return (self.prior,)

    @property
    def dtype(self):
        """Floating type of all results."""
        return np.dtype(np.float64)

    def __repr__(self):
        prior = type(self.prior).__name__
        return f"SparseLinearModel({self.n_samples} x {self.n_features} {prior}, {self.X.dtype})"

    @refusing_overflow
    def energy(self, w):
        """Compute the energy, minus the log of the joint density of y and w (unnormalised prior).

        Parameters
        ----------
        w : array of shape (..., n_units)

        Returns
        -------
        array of shape (...)
            +inf outside the support.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For arrays of wrong shapes or types, weighted rows, and overflow.
        """
        if self.has_weights:
            raise ValueError("energy needs rows of weight 1: repeat the rows instead.")
        w = _checks.states("w", w, self.n_units)
        error = self.y - self.prediction(w.astype(np.float64))
        squares = (error * error).sum(-1) / self.noise_variance
        constant = self.n_samples * np.log(2 * np.pi * self.noise_variance) - 2 * self.log_absent
        return (squares + constant) / 2 - _checks.log_prob("prior", self.prior, w)

    def prediction(self, w):
        """Predict y without noise, as X w or X w - u.

        Parameters
        ----------
        w : array of shape (..., n_units)

        Returns
        -------
        array of shape (..., n_samples)
        """
        w = np.asarray(w)
        if w.shape[-1:] != (self.n_units,) or w.dtype.kind not in "fiub":
            raise ValueError(
                f"w must hold real numbers, {self.n_units} in the last axis, got {w.dtype} of "
                f"shape {w.shape}."
            )
        of_features = w[..., : self.n_features] @ self.X.T
        return of_features - w[..., self.n_features :] if self.has_latent else of_features


def with_gram(model, gram):
    """Let the model take X'X from a `Gram` of its X."""
    object.__setattr__(model, "_gram", gram)
    return model


def gram_of(model):
    """Return X'X in double precision."""
    return (Gram(model.X) if model._gram is None else model._gram).matrix()


def _row_weights(value, n_rows):
    """Check the weights of rows, a number or positive numbers."""
    weights = np.asarray(value)
    fits = weights.dtype.kind in "fiu" and weights.shape in ((), (n_rows,))
    if not (fits and np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(
            f"row_weights must be positive and finite, a number or of shape ({n_rows},), got "
            f"{value!r:.60}: leave rows of weight 0 out."
        )
    if (weights == 1).all():
        return 1.0
    weights = np.full(n_rows, weights, np.float64)
    weights.flags.writeable = False
    return weights
