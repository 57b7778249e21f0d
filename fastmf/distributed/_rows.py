"""Blocks of rows of a Dask array."""


def is_dask(value):
    """Whether it is a Dask array, without importing Dask."""
    return hasattr(value, "to_delayed") and hasattr(value, "chunks")


def blocks(rows):
    """The blocks of an array that is divided along its rows only, each as one task."""
    return rows.to_delayed().ravel()
