"""Cases of the tilted moments of blocks of units; "rows" are blocks."""

from itertools import pairwise

import numpy as np

from fastmf.kernels.ep.site_blocks import SiteBlocks, pattern_work
from kernel_cases.case import Case, chosen

# Units of the blocks, and units that a pattern may include.
SHAPES = ((1, 1), (2, 2), (5, 5), (12, 3), (9, 2), (3, 1), (7, 7), (2, 2), (6, 4))
WIDEST = 12
# More workers than tests take.
MOST_WORKERS = 4


def tilt_arguments(size, dtype, rows=None):
    """Blocks with cavities of which one leaves no proper slab, and some are indefinite.

    Log-weights of one block are above 500.
    """
    shapes = np.array(SHAPES * max(1, size.n_rows // 50))
    parts = []
    for k in chosen(rows, len(shapes)):
        rng, c = np.random.default_rng([8, k]), shapes[k, 0]
        own = rng.gamma(2.0, size=c) + 0.5
        field, log_odds = rng.normal(size=c) / 5, rng.normal(size=c) - 2
        log_weight = log_odds + np.log(own) / 2 - field**2 / (2 * own)
        X = rng.normal(size=(6, c)) + 2 * rng.normal(size=(6, 1))
        improper = -2 * own.max() if k == 4 else -0.2
        precision = 5 * X.T @ X + improper * np.eye(c)
        y = X @ np.where(rng.random(c) < 0.3, 1.0, 0.0) + rng.normal(size=6)
        linear = (40 if k == 6 else 5) * X.T @ y
        parts.append((shapes[k], np.stack([log_weight, field, own]), linear, precision.ravel()))
    (shapes, prior, linear, precision) = zip(*parts, strict=True)
    sizes, largest = np.array(shapes).T
    prior, linear, precision = (np.concatenate(p, -1) for p in (prior, linear, precision))
    starts, squares = (np.append(0, np.cumsum(n)) for n in (sizes, sizes**2))
    filled = np.zeros((3, len(linear))), np.zeros(len(precision)), np.zeros((2, len(sizes)))
    blocks = SiteBlocks(starts, squares, largest, prior)
    work = pattern_work(blocks, MOST_WORKERS)
    return blocks, linear, precision, work, *filled


def results(arguments):
    """What is filled, of the blocks whose moments exist, with a row for each block."""
    blocks, *_, units, covariance, totals = arguments
    exist = np.isfinite(totals[0])

    def rows(values, ends, widest):
        parts = [values[..., i:j] for i, j in pairwise(ends)]
        pad = [(0, 0)] * (values.ndim - 1)
        padded = [np.pad(p, [*pad, (0, widest - p.shape[-1])]) for p in parts]
        return np.stack([np.where(e, p, 0) for e, p in zip(exist, padded, strict=True)])

    return {
        "units": rows(units, blocks.starts, WIDEST),
        "covariance": rows(covariance, blocks.squares, WIDEST**2),
        "totals": np.where(exist, totals, 0).T,
        "exist": exist,
    }


CASES = [
    Case("ep.site_blocks.tilt_blocks", "cavities", tilt_arguments, results, {"float64": 1e-8},
         exact=("exist",), large=True),
]  # fmt: skip
