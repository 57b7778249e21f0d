"""Conditional restricted Boltzmann machine: binary layers whose fields are linear in features."""

from dataclasses import dataclass, fields

import numpy as np

from fastmf._common.arguments import real_array, refusing_overflow
from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models._io import Model
from fastmf.models.layered import RBM
from fastmf.priors import Bernoulli


def _parameter(name, value, dtype):
    """Check a parameter, and return it as a read-only array; a CRBM may lack hidden units."""
    array = real_array(name, value)
    if array.ndim != (1 if name.endswith("bias") else 2):
        raise ValueError(f"{name} has the wrong number of axes: got shape {array.shape}.")
    with np.errstate(over="ignore"):  # overflow is checked below
        # Read-only arrays that own their data, as in learning, need no copy.
        frozen = array is value and array.flags.owndata and not array.flags.writeable
        array = np.array(array, dtype=dtype, order="C", copy=None if frozen else True)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity in {array.dtype}.")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, repr=False)
class CRBM(Model):
    """Binary RBM conditioned on features: p(v, h | x) proportional to exp(v'Wh + v'b(x) + h'c(x)).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        W. Without hidden units (n_hidden = 0) the model is a logistic regression for each label.
    visible_weights : array of shape (n_visible, n_features)
        Weights of b(x) = visible_bias + visible_weights x.
    hidden_weights : array of shape (n_hidden, n_features)
        Weights of c(x) = hidden_bias + hidden_weights x.
    visible_bias : array of shape (n_visible,)
    hidden_bias : array of shape (n_hidden,)

    Attributes
    ----------
    n_visible, n_hidden, n_features : int
    dtype : numpy dtype
        float32 if the weights are float32, float64 otherwise.

    Raises
    ------
    ValueError, TypeError
        If a parameter is not finite, not real, or its shape does not fit the others.

    Notes
    -----
    Ping & Ihler (2017), Eqs. 2-4. Units have the values 0 and 1.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.zeros((3, 2)), np.ones((3, 4)), np.zeros((2, 4))
    >>> model = mf.CRBM(*weights, np.zeros(3), np.zeros(2))
    >>> model.given(np.array([1.0, 0.0, 1.0, 0.0])).visible.field  # an RBM
    array([2., 2., 2.])
    """

    weights: np.ndarray
    visible_weights: np.ndarray
    hidden_weights: np.ndarray
    visible_bias: np.ndarray
    hidden_bias: np.ndarray

    def __post_init__(self):
        dtype = np.float32 if np.asarray(self.weights).dtype == np.float32 else np.float64
        for field in fields(self):
            value = _parameter(field.name, getattr(self, field.name), dtype)
            object.__setattr__(self, field.name, value)
        n, m, f = self.n_visible, self.n_hidden, self.n_features
        if n == 0:
            raise ValueError("weights must have at least one row, one for each visible unit.")
        expected = (n, m), (n, f), (m, f), (n,), (m,)
        for field, shape in zip(fields(self), expected, strict=True):
            given = getattr(self, field.name).shape
            if given != shape:
                raise ValueError(f"{field.name} must have shape {shape}, got {given}.")

    def moved(self, parameters):
        """Return a model with copies of other parameters, by name, which are not checked."""
        model = object.__new__(type(self))
        for name, value in parameters.items():
            value = np.array(value, self.dtype, order="C")
            value.flags.writeable = False
            object.__setattr__(model, name, value)
        if "joint" in self.__dict__:
            model.__dict__["joint"] = self.joint.moved((model.weights,), self.joint.layers)
        return model

    @computed_once
    def joint(self):
        """The RBM of the visible and hidden units, with zero fields."""
        return RBM(self.weights, *(Bernoulli(np.zeros(n, self.dtype)) for n in self.weights.shape))

    @property
    def n_visible(self):
        """Number of visible units (labels)."""
        return self.weights.shape[0]

    @property
    def n_hidden(self):
        """Number of hidden units."""
        return self.weights.shape[1]

    @property
    def n_features(self):
        """Number of features."""
        return self.visible_weights.shape[1]

    @property
    def dtype(self):
        """Floating type of all parameters."""
        return self.weights.dtype

    def __repr__(self):
        return (
            f"CRBM({self.n_visible} visible x {self.n_hidden} hidden, "
            f"{self.n_features} features, {self.dtype})"
        )

    def fields(self, X):
        """Compute the fields of the visible and of the hidden units.

        Parameters
        ----------
        X : array or SciPy sparse matrix of shape (n_rows, n_features)

        Returns
        -------
        tuple of arrays of shape (n_rows, n_visible) and (n_rows, n_hidden)

        Raises
        ------
        ValueError, TypeError
            For features that are not numbers, too large, or of another number.
        """
        if not hasattr(X, "toarray"):
            X = _checks.states("X", X, self.n_features)
        elif X.shape[-1] != self.n_features:
            raise ValueError(f"X must have shape (..., {self.n_features}), got {X.shape}.")
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            visible = np.asarray(X @ self.visible_weights.T) + self.visible_bias
            hidden = np.asarray(X @ self.hidden_weights.T) + self.hidden_bias
            result = visible.astype(self.dtype, copy=False), hidden.astype(self.dtype, copy=False)
        if not all(np.isfinite(part).all() for part in result):
            raise ValueError(f"X must give finite fields, got NaN or infinity in {self.dtype}.")
        return result

    def given(self, x):
        """Return the RBM conditioned on one row of features, for `exact`, `tap` and other solvers.

        Parameters
        ----------
        x : array of shape (n_features,)

        Returns
        -------
        RBM
        """
        x = _checks.states("x", x, self.n_features)
        if x.ndim != 1:
            raise ValueError(f"x must have shape ({self.n_features},), got {x.shape}.")
        visible, hidden = self.fields(x[None])
        return RBM(self.weights, Bernoulli(visible[0]), Bernoulli(hidden[0]))

    @refusing_overflow
    def energy(self, visible, hidden, X):
        """Compute the energy -v'Wh - v'b(x) - h'c(x).

        Parameters
        ----------
        visible : array of shape (n_rows, n_visible)
        hidden : array of shape (n_rows, n_hidden)
        X : array or sparse matrix of shape (n_rows, n_features)

        Returns
        -------
        array of shape (n_rows,)

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For arrays of wrong shapes or types, and overflow.
        """
        visible = _checks.states("visible", visible, self.n_visible)
        hidden = _checks.states("hidden", hidden, self.n_hidden)
        b, c = self.fields(X)
        return -(((visible @ self.weights + c) * hidden).sum(-1) + (visible * b).sum(-1))

    @refusing_overflow
    def free_energy(self, visible, X):
        """Compute -log of the sum over hidden states of exp(-energy) (Ping & Ihler, Eq. 4).

        Parameters
        ----------
        visible : array of shape (n_rows, n_visible)
        X : array or sparse matrix of shape (n_rows, n_features)

        Returns
        -------
        array of shape (n_rows,)

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For arrays of wrong shapes or types, and overflow.
        """
        visible = _checks.states("visible", visible, self.n_visible)
        b, c = self.fields(X)
        hidden = np.logaddexp(0, visible @ self.weights + c)
        return -((visible * b).sum(-1, dtype=float) + hidden.sum(-1, dtype=float))
