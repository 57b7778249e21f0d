"""The log-pseudo-likelihood of a machine of ordinal items, and its derivatives.

The machine is p(x) ~ exp(sum_i mu_{i, x_i} + sum_{i<j} sigma_ij x_i x_j), x_i = 0..m_i, mu_i0 = 0
(Marsman et al. 2025); p_ic, s_i and E_i are in `fastmf.kernels.pseudo_likelihood.ordinal`. With
weights w of rows that add up to one, and V_i the variance of x_i given all others,

    P            = sum_s w_s sum_i ln p_{i, x_i} - sum_k l2_k parameter_k^2 / 2
    dP/dmu_ic    = sum_s w_s (1[x_i = c] - p_ic)
    dP/dsigma_ij = sum_s w_s (x_j (x_i - E_i) + x_i (x_j - E_j))
    -d^2P        = sum_s w_s sum_i Cov_i of (1[c])_c and (c x_j)_j:
                   p_ic (1[b = c] - p_ib), p_ic (c - E_i) x_j, V_i x_j x_k

The parameters are a vector of the parameters of thresholds (`Thresholds`), followed by couplings
sigma_ij, i < j, in lexicographic order.

Thresholds are linear functions of their parameters. Item i with categories 0..m_i has thresholds
mu_i1, ..., mu_im (mu_i0 = 0), which are free, or of the form mu_ic = alpha_i c + beta_i c^2 (Blume
and Capel) with two parameters per item. An item with two categories has one parameter.
"""

import numpy as np
from scipy import linalg

from fastmf.kernels.pseudo_likelihood.ordinal import ROWS_AT_A_TIME, conditionals
from fastmf.learning.pseudo_likelihood.existence import Items
from fastmf.learning.pseudo_likelihood.fit import TOLERANCE_ROWS
from fastmf.learning.pseudo_likelihood.pairwise import PairwiseLikelihood, SeparateCoordinates

KINDS = ("free", "blume_capel")


class Thresholds:
    """Parameterisation of the thresholds of all items, item by item.

    Attributes
    ----------
    item, category : int array of shape (n_thresholds,)
        Item and category of each threshold.
    item_of_parameter : int array of shape (n_parameters,)
    matrix : array of shape (n_thresholds, n_parameters)
        Derivatives of thresholds by parameters.
    slope : array of shape (n_parameters,)
        Parameters of the thresholds mu_ic = c.
    """

    def __init__(self, n_categories, kind="free"):
        self.n_categories = np.asarray(n_categories, np.int64)
        self.kind, n_items = kind, len(self.n_categories)
        if not (self.n_categories >= 2).all():
            items = np.flatnonzero(self.n_categories < 2).tolist()
            raise ValueError(
                f"n_categories must be at least 2, items {items} have fewer: leave out."
            )
        self.width = int(self.n_categories.max())
        sizes = self.n_categories - 1
        self.item = np.repeat(np.arange(n_items), sizes)
        self.category = 1 + np.arange(len(self.item)) - (np.cumsum(sizes) - sizes)[self.item]
        blocks, slopes = zip(*map(self._block, sizes), strict=True)
        self.matrix, self.slope = linalg.block_diag(*blocks), np.concatenate(slopes)
        n_parameters = [block.shape[1] for block in blocks]
        self.item_of_parameter = np.repeat(np.arange(n_items), n_parameters)

    def _block(self, size):
        """Return derivatives of the thresholds of an item, and the parameters of mu_c = c."""
        c = np.arange(1.0, size + 1)
        if self.kind == "free":
            return np.eye(size), c
        block = np.stack([c, c**2], 1)[:, :size]
        return block, np.eye(block.shape[1])[0]

    def of_item(self, i):
        """Return the indices of thresholds and parameters of an item, and its block."""
        rows, columns = self.item == i, self.item_of_parameter == i
        return np.flatnonzero(rows), np.flatnonzero(columns), self.matrix[np.ix_(rows, columns)]

    def table(self, parameters, absent=0.0):
        """Return the thresholds of all categories, (width, n_items); `absent` without category."""
        out = np.full((self.width, len(self.n_categories)), absent)
        out[0] = 0
        out[self.category, self.item] = self.matrix @ parameters
        return out

    def gradient(self, by_thresholds):
        """Convert derivatives by a table of thresholds to derivatives by parameters."""
        return by_thresholds[self.category, self.item] @ self.matrix

    def from_frequencies(self, frequencies):
        """Return the parameters of uncoupled items, which are exact for free thresholds."""
        f = frequencies[self.category, self.item]
        logs = np.log(f / frequencies[0, self.item])
        if self.kind == "free":
            return logs
        weighted = self.matrix * f[:, None]
        return linalg.solve(weighted.T @ self.matrix, weighted.T @ logs, assume_a="pos")


class OrdinalLikelihood(PairwiseLikelihood):
    """Mean log-pseudo-likelihood of weighted rows of ordinal items minus ridge penalties.

    `states` (n_rows, n_items) are categories 0..m_i, preferably in distinct rows; `pairs` are the
    coupled items i < j in lexicographic order, by default all.
    """

    def __init__(
        self, states, weights, thresholds, *, l2=0.0, l2_field=0.0, pairs=None, n_threads=None
    ):  # fmt: skip
        states, self.thresholds = np.ascontiguousarray(states, float), thresholds
        super().__init__(states, weights, len(thresholds.slope), pairs, n_threads)
        allowed = (states >= 0) & (states < thresholds.n_categories)
        if not (allowed & (states == np.floor(states))).all():
            raise ValueError(
                "states must be the numbers 0, 1, ... of categories, fewer than n_categories."
            )
        self.item_of_field, self.width = thresholds.item_of_parameter, thresholds.width
        self.penalties = float(l2), float(l2_field)
        self.ridge = np.full(self.n_parameters, float(l2))
        self.ridge[: self.n_fields] = l2_field
        self.frequencies = np.stack([
            self.weights @ (self.states == c) for c in range(thresholds.width)
        ])  # fmt: skip

    # --- parameters -----------------------------------------------------------------------------

    def smoothed_frequencies(self):
        """Return frequencies of categories with pseudocounts of half a row, (width, n_items)."""
        present = np.arange(len(self.frequencies))[:, None] < self.thresholds.n_categories
        counts = TOLERANCE_ROWS * self.frequencies + present / 2
        return counts / counts.sum(0)

    def independent(self):
        """Return the parameters of uncoupled items."""
        fields = self.thresholds.from_frequencies(self.smoothed_frequencies())
        return np.append(fields, np.zeros(self.n_parameters - self.n_fields))

    def independent_curvature(self):
        """Return means and variances, and Hessian and slopes of fields, of uncoupled items."""
        f, thresholds = self.smoothed_frequencies(), self.thresholds
        c = np.arange(len(f))[:, None]
        mean = (c * f).sum(0)
        variance = (c**2 * f).sum(0) - mean**2
        flat, item = f[thresholds.category, thresholds.item], thresholds.item
        covariance = np.diag(flat) - np.outer(flat, flat) * (item[:, None] == item)
        hessian = thresholds.matrix.T @ covariance @ thresholds.matrix
        return mean, variance, hessian, thresholds.slope

    def coordinates(self, separate):
        """Return `SeparateCoordinates`, in which each coupling is one coordinate."""
        return SeparateCoordinates(self)

    # --- value and gradient ---------------------------------------------------------------------

    def conditionals(self, parameters, rows=slice(None)):
        """Compute conditional probabilities of categories of each item and their derivatives."""
        couplings, fields = self.unpacked(parameters)
        states, table = self.states[rows], self.thresholds.table(fields, -np.inf)
        residuals, values = states @ couplings, np.empty(len(states))
        memory = np.empty((1, len(table) + 3, ROWS_AT_A_TIME * self.n_units))
        p = np.empty((len(table), *states.shape))
        queue = np.zeros(2, np.int64)
        conditionals(residuals, table, states, memory, queue, p, residuals, values)
        return p, residuals, values

    def _value_and_derivatives(self, parameters):
        """Compute the value, half its derivatives by couplings, and derivatives by fields."""

        def sums(rows):
            w, (p, residuals, values) = self.weights[rows], self.conditionals(parameters, rows)
            return w @ values, self.states[rows].T @ (w[:, None] * residuals), w @ p

        value, by_couplings, expected = self.sums_over_blocks(sums)
        return value, by_couplings, self.thresholds.gradient(self.frequencies - expected)

    # --- existence of the maximum ---------------------------------------------------------------

    def items(self, l1=0.0):
        """Return the `Items` of the rows."""
        labels, thresholds = self.states.astype(np.int64), self.thresholds
        blocks = (thresholds.of_item(i)[2] for i in range(self.n_units))
        fields = [np.vstack([0 * block[:1], block]) for block in blocks]
        scores = [np.arange(float(size))[:, None] for size in thresholds.n_categories]
        l2, l2_field = self.penalties
        remedies = "merge rare categories, or take more rows or fewer items"
        return Items(labels, labels, self.states, fields, scores, self.coupled,
                     (l2_field == 0, l2 == 0 and not l1), "items", remedies)  # fmt: skip

    def look(self, parameters):
        """Return the smallest residual w p_b of each row, and whether all margins are positive."""
        smallest, separates = np.empty(len(self.weights)), True
        c = np.arange(self.thresholds.width)[:, None, None]
        for rows in self.blocks():
            p, x = self.conditionals(parameters, rows)[0], self.states[rows]
            present = (c != x) & (c < self.thresholds.n_categories)
            largest = np.where(present, p, 0.0).max(0)
            smallest[rows] = self.weights[rows] * p.min((0, 2), initial=1.0, where=present)
            observed = np.take_along_axis(p, x.astype(int)[None], 0)[0]
            separates = separates and bool((observed > largest).all())
        return smallest, separates

    # --- second derivatives ---------------------------------------------------------------------

    def _curvatures(self, parameters, rows):
        t, w, p = self.thresholds, self.weights[rows], self.conditionals(parameters, rows)[0]
        numbers = np.arange(t.width)[:, None, None]
        mean = (numbers * p).sum(0)
        variances = (np.square(numbers - mean) * p).sum(0)
        # Covariances of the indicators of the thresholds of an item, and of these with its score.
        flat = p[t.category, :, t.item].T
        weighted = w[:, None] * flat
        covariances = np.diag(weighted.sum(0)) - flat.T @ weighted * (t.item[:, None] == t.item)
        deviations = weighted * (t.category - mean[:, t.item])
        return t.matrix.T @ covariances @ t.matrix, deviations @ t.matrix, w[:, None] * variances

    # --- scores ---------------------------------------------------------------------------------

    def _row_derivatives(self, parameters, rows):
        p, residuals, _ = self.conditionals(parameters, rows)
        expected = p[self.thresholds.category, :, self.thresholds.item].T
        return self._field_statistics(rows) - expected @ self.thresholds.matrix, residuals

    def _field_statistics(self, rows):
        observed = self.states[rows][:, self.thresholds.item] == self.thresholds.category
        return observed @ self.thresholds.matrix

    def predictions(self, parameters):
        """Compute scores of rows, conditional means and hits of the most probable category."""
        p, residuals, _ = self.conditionals(parameters)
        hits = p.argmax(0) == self.states
        return self.states, self.states - residuals, hits.astype(float), self.frequencies.max(0)

    def _slopes_of_means(self, parameters, factors):
        p, residuals, _ = self.conditionals(parameters)
        numbers = np.arange(self.width)[:, None, None]
        slopes = p * (numbers - (self.states - residuals)) * factors
        return self.thresholds.gradient(slopes.sum(1)), (numbers * slopes).sum(0)

    def _with(self, states, weights, pairs):
        l2, l2_field = self.penalties
        return OrdinalLikelihood(
            states, weights, self.thresholds, l2=l2, l2_field=l2_field, pairs=pairs,
            n_threads=self.n_threads,
        )  # fmt: skip
