"""Cases of the inverses of the matrices of blocks; "rows" are blocks."""

import numpy as np

from kernel_cases.case import Case, chosen

SIZES = (1, 2, 3, 5, 8, 13, 20, 4, 2, 6)


def arguments(size, dtype, rows=None):
    """Positive definite matrices of several scales, and one that is indefinite."""
    sizes = SIZES * max(1, size.n_rows // 10)
    kept = chosen(rows, len(sizes))
    sizes = np.array([sizes[k] for k in kept])
    parts = []
    for k, c in zip(kept, sizes, strict=True):
        rng = np.random.default_rng([9, k])
        X = rng.normal(size=(c + 2, c)) * 10.0 ** rng.uniform(-2, 2, size=c)
        sign = -1 if k == 3 else 1
        parts.append(sign * (X.T @ X).ravel())
    starts, squares = (np.append(0, np.cumsum(n)) for n in (sizes, sizes**2))
    elements = np.concatenate(parts)
    work = np.zeros(2 * max(SIZES) ** 2)
    return starts, squares, elements, work, np.zeros_like(elements), np.zeros(len(sizes))


def results(arguments):
    """The inverses in units of their diagonals, with a row for each block, and what exists."""
    starts, squares, _, _, inverses, log_determinants = arguments
    rows = np.zeros((len(log_determinants), max(SIZES) ** 2))
    for k, c in enumerate(np.diff(starts)):
        if np.isfinite(log_determinants[k]):
            inverse = inverses[squares[k] : squares[k + 1]].reshape(c, c)
            scale = np.sqrt(inverse.diagonal())
            rows[k, : c * c] = (inverse / scale / scale[:, None]).ravel()
    exist = np.isfinite(log_determinants)
    return {
        "inverses": rows,
        "log_determinants": np.where(exist, log_determinants, 0),
        "exist": exist,
    }


CASES = [
    Case("ep.block_matrices.invert_matrices", "", arguments, results, {"float64": 1e-8},
         exact=("exist",), large=True, dtypes=("float64",)),
]  # fmt: skip
