"""Potts machines of few rows and many states, in the memory of the rows.

Gradients of the objective by couplings are sums of products of one-hot rows X (n, n_states) with
residuals, so that the maximum with a penalty, and all that leads to it, is

    J = A'X + X'A

off the blocks of a position with itself, for some A (n, n_states). The local fields are linear in
A,

    X J = E(A) = M_A X + K A - own blocks,   K = XX', M_A = X A'

and <J_A, J_B> = <A, E(B)> (over pairs of positions once), so that with residuals R and ridge N l2
the gradient by A is E(N l2 A - R). Coordinates are B with A = K^-1/2 B, whose norm equals the norm
of X'A, over the square root of their curvature at independent positions, and centred fields
(`fastmf.learning.pseudo_likelihood.potts.objective`). Along one of B, of an eigenvector of K and of
a state a, the fields of rows in that state change by K^1/2, so that with the mean v of its weighted
variances over all eigenvectors the curvature is N f_a (1 - f_a) v + N l2. With the curvatures of
each eigenvector a fit of weak penalties takes up to three times the iterations.
"""

import numpy as np

from fastmf._common.linalg import MIN_EIGENVALUE
from fastmf.learning.pseudo_likelihood.potts.couplings import fields_of_few_rows, one_hot
from fastmf.learning.pseudo_likelihood.potts.objective import field_scales
from fastmf.models._gauge import PositionStates


class FewRows:
    """Minus the penalised log-pseudo-likelihood as a function of B and fields."""

    def __init__(self, data, l2, l2_field):
        self.data, self.sizes = data, data.sizes
        self.positions = PositionStates(self.sizes)
        self.ridge, self.field_ridge = data.total * l2, data.total * l2_field
        self.X = one_hot(data.labels, self.sizes)
        self.present = data.labels[:, self.positions.position] >= 0
        self.K = (self.X @ self.X.T).toarray()
        self.S = inverse_root(self.K)
        self.share = data.weights / data.total
        self.n_coefficients = self.S.shape[1] * data.n_states
        self.field_scale, self.centring = field_scales(data, self.field_ridge)
        spread = self.share @ self.K.diagonal() - self.share @ self.K @ self.share
        variance = max(float(spread), 0.0) / max(self.S.shape[1], 1)
        f = data.frequencies()
        self.scale = 1 / np.sqrt(data.total * variance * f * (1 - f) + self.ridge)
        self.size = self.n_coefficients + data.n_states

    # --- coordinates ----------------------------------------------------------------------------

    def start(self, field):
        """Coordinates of no couplings and a flat field of all positions."""
        z = np.zeros(self.size)
        z[self.n_coefficients :] = self.centring * field / self.field_scale
        return z

    def parameters(self, z):
        """A, (n_rows, n_states), and the flat field."""
        A = self._coefficients(z)
        field = z[self.n_coefficients :] * self.field_scale
        return A, self.positions.zero_sum(field - self.centring * (self.share @ self.fields(A)))

    def _coefficients(self, z):
        return self.S @ (z[: self.n_coefficients].reshape(-1, len(self.scale)) * self.scale)

    # --- the objective --------------------------------------------------------------------------

    def fields(self, A):
        """E(A)."""
        return fields_of_few_rows(A, self.X, self.X, self.K, self.sizes)

    def _value_and_residuals(self, eta):
        """Sum over rows of the log-pseudo-likelihoods, and w (x - p)."""
        logs, weights = self.positions.log_softmax(eta), self.data.weights
        residuals = self.X.toarray() - np.exp(logs) * self.present
        return weights @ self.X.multiply(logs).sum(1), weights[:, None] * residuals

    def __call__(self, z, gradient):
        """The value at coordinates; its gradient is filled."""
        A = self._coefficients(z)
        eta = self.fields(A)
        penalty = self.ridge / 2 * np.vdot(A, eta)
        field = z[self.n_coefficients :] * self.field_scale
        field = self.positions.zero_sum(field - self.centring * (self.share @ eta))
        value, residuals = self._value_and_residuals(eta + field)
        value -= penalty + self.field_ridge / 2 * (field @ field)
        of_field = self.positions.zero_sum(residuals.sum(0) - self.field_ridge * field)
        residuals -= self.share[:, None] * (self.centring * of_field)
        change = self.ridge * A - residuals
        by_coefficients = self.S.T @ self.fields(change)
        gradient[: self.n_coefficients] = (by_coefficients * self.scale).reshape(-1)
        gradient[self.n_coefficients :] = -of_field * self.field_scale
        return -value


def inverse_root(K):
    """K^-1/2 of a positive semidefinite matrix, without columns of its null space."""
    values, vectors = np.linalg.eigh(K)
    positive = values > MIN_EIGENVALUE * values[-1]
    return vectors[:, positive] / np.sqrt(values[positive])
