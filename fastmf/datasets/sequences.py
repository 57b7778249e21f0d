"""Weights of sequences that are alike, and files of sequences."""

import math

import numpy as np

from fastmf._common.arguments import count, number, real_array
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.datasets.alignments import checked_alphabet
from fastmf.kernels.pseudo_likelihood import hamming
from fastmf.models._io import replacing

# Rounding error of the product of a fraction and a number of columns, which may be just above an
# integer.
_COLUMN_ROUNDING = 1e-9


def sequence_weights(X, identity=0.8, *, n_threads=None):
    """Weights 1 / (number of rows that agree in at least a fraction of the columns).

    Rows of an alignment are related; so weighted, a cluster of similar rows counts as about one
    (Morcos et al. 2011). A row is similar to itself.

    Parameters
    ----------
    X : int array of shape (n_rows, n_groups)
        Labels; all negative ones together are a letter like any other.
    identity : float, default 0.8
        Fraction of equal columns, in [0, 1], from which on rows are similar. (In plmc's terms
        ``1 - theta``.)
    n_threads : int, optional
        Default Numba's number of threads. Results do not depend on it.

    Returns
    -------
    array of shape (n_rows,)
        In (0, 1].

    Raises
    ------
    TypeError, ValueError
        If `X` is not a matrix of integers, or `identity` is not such a number.

    Notes
    -----
    Exact: all pairs of rows are compared, some 10^8 a second on one core for 150 columns. Their sum
    is what is called the effective number of sequences. Reference: Morcos et al., "Direct-coupling
    analysis of residue coevolution captures native contacts across many protein families", PNAS 108
    (2011).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = np.array([[0, 1, 2, 3, -1], [0, 1, 2, 3, 4], [4, 4, 4, 4, 4]])
    >>> mf.datasets.sequence_weights(X).tolist()
    [0.5, 0.5, 1.0]
    """
    codes = _codes(X)
    n_rows, n_columns = codes.shape
    identity = number("identity", identity, 0, 1)
    n_threads = count("n_threads", n_threads, optional=True)
    most = n_columns - math.ceil(identity * n_columns - _COLUMN_ROUNDING)
    labels = hamming.padded(codes)
    n_tasks = -(-n_rows // hamming.QUERY_ROWS)
    # A vector is compared in the time of some two multiply-adds.
    work = n_rows * n_rows * (labels.shape[1] // hamming.VECTOR_BYTES)
    n_workers = workers_for(n_tasks, work, n_threads)
    counts = np.zeros((n_workers, n_rows), np.int64)
    queue = np.zeros(2, np.int64)
    in_parallel(hamming.count_similar, (labels, most, queue, counts), n_workers)
    return 1 / counts.sum(0)


def write_fasta(path, X, alphabet="protein", names=None):
    """Write sequences of letters as a FASTA file, one line each.

    Parameters
    ----------
    path : str or path
    X : int array of shape (n_rows, n_columns)
        States of the positions; negative ones, which are missing, are written as gaps.
    alphabet : {"protein", "rna", "dna"} or str, default "protein"
        Letters of the states, as in `load_alignment`.
    names : sequence of str of length n_rows, optional
        Default: 1, 2, ...

    Raises
    ------
    ValueError, TypeError
        If `X` is not a matrix of integers, has states beyond the alphabet, or names do not fit.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fastmf as mf
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.fasta"
    >>> mf.datasets.write_fasta(path, [[1, 2], [4, -1]], "rna", ["one", "two"])
    >>> print(path.read_text(), end="")
    >one
    AC
    >two
    U-
    """
    X = real_array("X", X)
    if X.ndim != 2 or X.size == 0:
        raise ValueError(f"X must have shape (n_rows, n_columns), got {X.shape}.")
    alphabet = checked_alphabet(alphabet)
    states = X.astype(int)
    if (states != X).any() or states.max() >= len(alphabet):
        raise ValueError(
            f"X must hold states below {len(alphabet)} of the alphabet {alphabet}, got "
            f"{X.max():g} at most."
        )
    names = range(1, len(X) + 1) if names is None else list(names)
    if len(names) != len(X) or any("\n" in str(name) for name in names):
        raise ValueError(f"names must be {len(X)} names without line breaks, got {len(names)}.")
    letters = np.frombuffer((alphabet + "-").encode("ascii"), np.uint8)
    with replacing(path) as file:
        for name, row in zip(names, letters[np.maximum(states, -1)], strict=True):
            file.write(f">{name}\n".encode() + row.tobytes() + b"\n")


def _codes(X):
    """Labels as numbers from 0 to 255, all negative ones as one of them."""
    X = real_array("X", X)
    if X.dtype.kind not in "iub":
        raise TypeError(f"X must be an array of integer labels, got dtype {X.dtype}.")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(
            f"X must have shape (n_rows, n_groups), with rows and columns, got {X.shape}."
        )
    if X.dtype.kind == "i" and X.max() < 255:
        return np.maximum(X, -1).astype(np.int16) + 1
    # Letters are compared within columns only.
    codes = [
        np.unique(np.maximum(column, -1), return_inverse=True)[1] for column in X.T.astype(int)
    ]
    codes = np.stack(codes, 1)
    if codes.max() > 255:
        raise ValueError("X must have at most 256 different labels in a column, got more.")
    return codes
