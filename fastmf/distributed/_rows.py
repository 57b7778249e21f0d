"""Blocks of rows of a Dask array."""

from fastmf._common.rows import is_dask


def checked_dask(name, X, known_sizes=False):
    """Return `X` if it is a Dask array with two axes, and with chunks of known sizes if asked."""
    if not is_dask(X):
        raise TypeError(f"{name} must be a Dask array, got {type(X).__name__}.")
    if X.ndim != 2:
        raise ValueError(f"{name} must have shape (n_rows, n_features), got {X.shape}.")
    if known_sizes and not all(size == size for sizes in X.chunks for size in sizes):
        raise ValueError(
            f"{name} must have chunks of known sizes, got shape {X.shape}: call its method "
            "compute_chunk_sizes, or of a Dask data frame to_dask_array(lengths=True)."
        )
    return X


def blocks(rows):
    """The blocks of an array that is divided along its rows only, each as one task."""
    return rows.to_delayed().ravel()
