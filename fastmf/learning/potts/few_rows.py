"""Potts machines of few rows and many states, in the memory of the rows.

Gradients of the objective by couplings are sums of products of one-hot rows X (n, n_states) with
residuals, so that the maximum with a penalty, and all that leads to it, is

    J = A'X + X'A  (symmetric),   J = X'A  (asymmetric, a column for each state of the site itself)

off the blocks of a site with itself, for some A (n, n_states). The local fields are linear in A,

    X J = E(A) = M_A X + K A - own blocks,   K = XX', M_A = X A'      (asymmetric: without M_A X)

and <J_A, J_B> = <A, E(B)> (over pairs of sites once), so that with residuals R and ridge N l2 the
gradient by A is E(N l2 A - R). Coordinates are B with A = K^-1/2 B, in which the asymmetric
couplings have the norm of B, and centred fields, h' = h + J f.
"""

import numpy as np
from scipy.special import logsumexp

from fastmf.learning.potts.couplings import one_hot

# Eigenvalues of K below this fraction of the largest belong to differences of rows that change no
# couplings.
_MIN_EIGENVALUE = 1e-10


class FewRows:
    """Minus the penalised log-pseudo-likelihood of some sites, as a function of B and fields.

    Parameters
    ----------
    data : PottsData
    l2, l2_field : float
        Per unit of weight.
    symmetric : bool
    sites : slice, optional
        Consecutive sites; all by default, and for the symmetric objective.
    kernel : tuple of arrays, optional
        K and K^-1/2 as `kernel_of` returns them, if they have been computed.
    """

    def __init__(self, data, l2, l2_field, symmetric, sites=None, kernel=None):
        self.labels, self.data, self.symmetric = data.labels, data, symmetric
        sites = range(*(sites or slice(None)).indices(len(data.sizes)))
        self.sites = sites
        first = np.cumsum(data.sizes) - data.sizes
        self.begin, self.end = first[sites[0]], first[sites[-1]] + data.sizes[sites[-1]]
        self.first = first[list(sites)] - self.begin
        self.sizes = data.sizes[list(sites)]
        self.site = np.repeat(np.arange(len(sites)), self.sizes)
        # Each pair has two couplings in the asymmetric objective.
        self.ridge = data.total * l2 * (1.0 if symmetric else 0.5)
        self.field_ridge = data.total * l2_field
        self.K, self.S = kernel or kernel_of(data.labels, data.sizes)
        self.share = data.weights / data.total
        self.X = one_hot(data.labels, data.sizes)[:, self.begin : self.end]
        self.n_coefficients = self.S.shape[1] * (self.end - self.begin)
        f = data.frequencies()[self.begin : self.end]
        self.field_scale = 1 / np.sqrt(data.total * f * (1 - f) + self.field_ridge)
        self.size = self.n_coefficients + len(f)

    # --- coordinates ----------------------------------------------------------------------------

    def start(self, field):
        """Coordinates of no couplings and a flat field of all sites."""
        z = np.zeros(self.size)
        z[self.n_coefficients :] = field[self.begin : self.end] / self.field_scale
        return z

    def parameters(self, z):
        """A, (n_rows, n_states of the sites), and the field of these states."""
        A = self._coefficients(z)
        field = z[self.n_coefficients :] * self.field_scale
        return A, self._zero_sum(field - self.share @ self.fields(A))

    def _coefficients(self, z):
        return self.S @ z[: self.n_coefficients].reshape(self.S.shape[1], -1)

    def _zero_sum(self, vector):
        return vector - (np.add.reduceat(vector, self.first) / self.sizes)[self.site]

    # --- the objective --------------------------------------------------------------------------

    def fields(self, A):
        """E(A)."""
        out = self.K @ A
        if self.symmetric:
            out += (self.X.T @ (self.X @ A.T).T).T
        for columns in self._columns():
            X = self.X[:, columns]
            # Of the products with this site's own states none is wanted.
            own = X.T @ A[:, columns]
            out[:, columns] -= X @ (own + own.T if self.symmetric else own)
        return out

    def _columns(self):
        """Columns of the states of each site."""
        return [slice(f, f + q) for f, q in zip(self.first, self.sizes, strict=True)]

    def _value_and_residuals(self, eta):
        """Sum over rows of the log-pseudo-likelihoods, and w (x - p); eta is overwritten."""
        value, weights = 0.0, self.data.weights
        for columns, site in zip(self._columns(), self.sites, strict=True):
            x = self.labels[:, site]
            present = np.flatnonzero(x >= 0)
            x = x[present].astype(np.int64)
            log_p = eta[present, columns]
            log_p -= logsumexp(log_p, axis=1, keepdims=True)
            value += weights[present] @ log_p[np.arange(len(x)), x]
            residuals = -np.exp(log_p)
            residuals[np.arange(len(x)), x] += 1
            eta[:, columns] = 0
            eta[present, columns] = residuals * weights[present, None]
        return value, eta

    def __call__(self, z, gradient):
        """The value at coordinates; its gradient is filled."""
        A = self._coefficients(z)
        eta = self.fields(A)
        penalty = self.ridge / 2 * np.vdot(A, eta)
        field = z[self.n_coefficients :] * self.field_scale
        field = self._zero_sum(field - self.share @ eta)
        value, residuals = self._value_and_residuals(eta + field)
        value -= penalty + self.field_ridge / 2 * (field @ field)
        of_field = self._zero_sum(residuals.sum(0) - self.field_ridge * field)
        residuals -= self.share[:, None] * of_field
        change = self.ridge * A - residuals
        gradient[: self.n_coefficients] = (self.S.T @ self.fields(change)).reshape(-1)
        gradient[self.n_coefficients :] = -of_field * self.field_scale
        return -value


def kernel_of(labels, sizes):
    """K = XX', numbers of agreements of rows, and K^-1/2 without columns of the null space."""
    X = one_hot(labels, sizes)
    K = (X @ X.T).toarray()
    values, vectors = np.linalg.eigh(K)
    kept = values > _MIN_EIGENVALUE * values[-1]
    return K, vectors[:, kept] / np.sqrt(values[kept])
