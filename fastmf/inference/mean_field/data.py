"""Products of rows of data, of any kind, with couplings: see `fastmf._common.rows`."""

import numpy as np

from fastmf._common.rows import is_sparse, row_blocks
from fastmf.priors._rows import states


def data_fields(prior, X, weights):
    """Compute X @ weights, (n_rows, n_hidden), of flat values or labels, dense or sparse."""
    if is_sparse(X):
        return X.astype(weights.dtype, copy=False) @ weights
    if X.dtype == weights.dtype and X.shape[1] == len(weights):
        return X @ weights
    return np.concatenate([states(prior, X[b], weights.dtype) @ weights for b in row_blocks(X)])
