"""Some blocks of a problem alone, given the sites of all other units.

After a step or two the moments of only a few blocks still disagree: of those between which the data
cannot decide, and which go on in circles. Their marginal Gaussian, less their own sites, is the
Gaussian side of a problem of these blocks alone, of which an iteration costs next to nothing. With
covariance S, means m and sites (t, T) of these blocks, its precisions and linear terms are

    S^-1 - T,  S^-1 m - t
"""

import numpy as np

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.blocks import Blocks, BlockSide
from fastmf.inference.gaussian.dense import Dense
from fastmf.kernels.ep.site_blocks import SiteBlocks

# Blocks are brought to their fixed point alone whose moments differ by more than this part of the
# largest difference, if single units differ by less, and if they hold less than this part of all
# units: with more their problem is not much cheaper than the whole.
MOVING_PART, MAX_PART = 0.1, 0.3


def moving_blocks(state):
    """Which blocks have moments that differ most; None if they are not few.

    Parameters
    ----------
    state : BlockState

    Returns
    -------
    bool array of shape (n_blocks,), or None
    """
    blocks = state.problem.blocks
    mean, single, elements = blocks.parts(abs(state.gaussian - state.tilted.moments))
    pairs = zip(blocks.by_size, blocks.matrices(elements), strict=True)
    largest = [np.maximum(mean[units].max(1), M.max((1, 2))) for units, M in pairs]
    largest = np.concatenate(largest)
    limit = MOVING_PART * largest.max()
    if max(mean[blocks.singles].max(initial=0), single.max(initial=0)) > limit:
        return None
    moving = largest > limit
    n = np.diff(blocks.starts)[moving].sum()
    return moving if 0 < n < MAX_PART * blocks.n_units else None


class SomeBlocks:
    """Some blocks, given the sites of all other units.

    Parameters
    ----------
    state : BlockState
        With the covariance of its Gaussian.
    chosen : bool array of shape (n_blocks,)
    tol : float
        Tolerance of their problem.

    Attributes
    ----------
    problem : BlockProblem
    site : array
        The sites that they have in the state.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding has left no proper Gaussian.
    """

    def __init__(self, state, chosen, tol):
        self._whole = whole = state.problem.blocks
        sizes = np.diff(whole.starts)
        own = np.repeat(chosen, sizes)
        self._units, self._elements = whole.units[own], np.repeat(chosen, sizes**2)
        n = len(self._units)
        blocks = Blocks(np.split(np.arange(n), np.cumsum(sizes[chosen])[:-1]), n)
        linear, _, elements = whole.parts(state.site)
        linear, elements = linear[self._units], elements[self._elements]
        self.site = np.concatenate([linear, elements])
        factor = cholesky(state.covariance(self._units))
        precision = factor.inverse()
        for M, units in zip(blocks.matrices(elements), blocks.by_size, strict=True):
            precision[units[:, :, None], units[:, None, :]] -= M
        field = factor.solve(whole.parts(state.gaussian)[0][self._units]) - linear
        patterns = state.problem.patterns
        self.problem = state.problem._replace(
            side=BlockSide(Dense(precision, field, 0.0), blocks, None),
            single=None,
            patterns=SiteBlocks(
                blocks.starts, blocks.squares, patterns.largest[chosen],
                np.ascontiguousarray(patterns.prior[:, own]),
            ),
            prior_precision=state.problem.prior_precision[self._units],
            tol=tol,
        )  # fmt: skip

    def with_sites(self, site, own):
        """The sites of all units, with these of the blocks."""
        site = site.copy()
        linear, _, elements = self._whole.parts(site)  # views
        n = len(self._units)
        linear[self._units], elements[self._elements] = own[:n], own[n:]
        return site
