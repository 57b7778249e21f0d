"""Thresholds of ordinal items as linear functions of their parameters.

Item i with categories 0..m_i has thresholds mu_i1, ..., mu_im (mu_i0 = 0), either free or of the
form of Blume and Capel, mu_ic = alpha_i c + beta_i c^2, two parameters an item. An item of two
categories has one parameter in both.
"""

import numpy as np
from scipy import linalg

KINDS = ("free", "blume_capel")


class Thresholds:
    """Parameters of the thresholds of all items, one item after the other.

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
        """Derivatives of the thresholds of an item, and the parameters of mu_c = c."""
        c = np.arange(1.0, size + 1)
        if self.kind == "free":
            return np.eye(size), c
        block = np.stack([c, c**2], 1)[:, :size]
        return block, np.eye(block.shape[1])[0]

    def of_item(self, i):
        """Thresholds and parameters of an item, and its block of the matrix."""
        rows, columns = self.item == i, self.item_of_parameter == i
        return np.flatnonzero(rows), np.flatnonzero(columns), self.matrix[np.ix_(rows, columns)]

    def table(self, parameters, absent=0.0):
        """Thresholds of all categories, (width, n_items), and a number where items have none."""
        out = np.full((self.width, len(self.n_categories)), absent)
        out[0] = 0
        out[self.category, self.item] = self.matrix @ parameters
        return out

    def gradient(self, by_thresholds):
        """Derivatives by parameters of those by a table of thresholds."""
        return by_thresholds[self.category, self.item] @ self.matrix

    def from_frequencies(self, frequencies):
        """Parameters of items without couplings, exact if thresholds are free."""
        f = frequencies[self.category, self.item]
        logs = np.log(f / frequencies[0, self.item])
        if self.kind == "free":
            return logs
        weighted = self.matrix * f[:, None]
        return linalg.solve(weighted.T @ self.matrix, weighted.T @ logs, assume_a="pos")
