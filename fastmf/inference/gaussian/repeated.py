"""The Gaussian side of a linear model whose rows stand for several, or for parts, of equal rows.

Row x of weight w stands for w rows, each with a latent variable and noise of its own. All their
latent variables u have the site exp(t1 u - t2 u^2 / 2). Without noise let s = x'w; one of these
rows then has the factor

    f(s) = integral N(s - u; s2) exp(t1 u - t2 u^2 / 2) du

and all have f(s)^w, which is (1 + s2 t2)^((1 - w) / 2) times the factor of the one row x sqrt(w)
with the site of coefficients t1 sqrt(w) and t2. The moments of u follow from those of its latent
variable: the mean by sqrt(w), and the variance by w, with what one u has beyond the mean of w of
them.
"""

import numpy as np

from fastmf.inference.gaussian.blocks import BlockMoments
from fastmf.inference.gaussian.side import GaussianMoments


class RepeatedRows:
    """A linear model with latent variables, with a weight for each row.

    Parameters
    ----------
    side : GaussianSide or BlockSide
        Side of the rows multiplied by the roots of their weights, the latent variables last.
    weights : float or array of shape (n_rows,)
    noise_variance : float
    blocks : Blocks, optional
        The layout of vectors of a `BlockSide`.
    """

    def __init__(self, side, weights, noise_variance, blocks=None):
        self.side, self.noise_variance, self.blocks = side, noise_variance, blocks
        self.n_units = side.n_units
        self.weights = np.atleast_1d(weights)
        self._n_rows = len(self.weights)

    def moments(self, site):
        """As of the side without weights, with the moments of one of the equal rows."""
        site = site.copy()
        linear, precision = self._latent(site)
        linear *= np.sqrt(self.weights)
        relative = 1 + self.noise_variance * precision
        found = self.side.moments(site) if (relative > 0).all() else None
        if found is None:
            return None
        moments, log_partition, *_ = found
        mean, var = self._latent(moments)
        mean /= np.sqrt(self.weights)
        var /= self.weights
        var += (1 - 1 / self.weights) * self.noise_variance / relative
        log_partition -= (self.weights - 1) @ np.log(relative) / 2
        if self.blocks is None:
            return GaussianMoments(moments, log_partition)
        return BlockMoments(moments, log_partition)

    def _latent(self, values):
        """Linear terms and precisions, or means and variances, of latent variables: views."""
        first, second = values if self.blocks is None else self.blocks.parts(values)[:2]
        return first[-self._n_rows :], second[-self._n_rows :]
