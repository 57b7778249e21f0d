"""Bayesian linear regression with a unit prior on every coefficient."""

from dataclasses import dataclass

import numpy as np

from fastmf._common.arguments import number
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
        Design matrix. float32 and float64 are kept as they are, without a copy (the model sees
        later changes of the array); anything else becomes float64. All computing is in float64.
    y : array of shape (n_samples,)
    noise_variance : float
        Variance of the Gaussian noise, positive.
    prior : unit prior
        Of the coefficients, n_features units: `GaussBernoulli` is the spike and slab. With
        n_features + n_samples units, those after the coefficients are a latent variable u of each
        row, and y = X w - u + noise.

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

    def __post_init__(self):
        X = _checks.shared_matrix("X", self.X)
        y = np.atleast_2d(_checks.matrix("y", np.atleast_2d(self.y)).astype(np.float64))
        if y.shape != (1, len(X)):
            raise ValueError(f"y must have shape ({len(X)},), got {np.shape(self.y)}.")
        value = self.noise_variance
        if np.ndim(value) == 0 and isinstance(value, np.ndarray):
            value = value[()]
        variance = number("noise_variance", value, -np.inf, np.inf)
        if not 0 < variance < np.inf:
            raise ValueError(f"noise_variance must be positive and finite, got {variance:g}.")
        y = y[0]
        y.flags.writeable = False
        refuse_groups("SparseLinearModel", (self.prior,), "its coefficients are numbers.")
        n = X.shape[1]
        if is_unit_prior(self.prior) and n_units(self.prior) == sum(X.shape):
            n += len(X)
        prior = _checks.unit_prior("prior", self.prior, n, np.dtype(np.float64))
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "noise_variance", float(variance))
        object.__setattr__(self, "prior", prior)

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
    def has_latent(self):
        """Whether rows have latent variables."""
        return self.n_units > self.n_features

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

    def energy(self, w):
        """Energy, minus the log of the joint density of y and w (prior not normalised).

        Parameters
        ----------
        w : array of shape (..., n_units)

        Returns
        -------
        array of shape (...)
            +inf outside the support.
        """
        w = _checks.states("w", w, self.n_units)
        error = self.y - self.prediction(w.astype(np.float64))
        squares = (error * error).sum(-1) / self.noise_variance
        constant = self.n_samples * np.log(2 * np.pi * self.noise_variance)
        return (squares + constant) / 2 - _checks.log_prob("prior", self.prior, w)

    def prediction(self, w):
        """What y is but for the noise, X w or X w - u.

        Parameters
        ----------
        w : array of shape (..., n_units)

        Returns
        -------
        array of shape (..., n_samples)
        """
        of_features = w[..., : self.n_features] @ self.X.T
        return of_features - w[..., self.n_features :] if self.has_latent else of_features
