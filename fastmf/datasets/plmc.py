"""Parameters of Potts models in the binary files of plmc."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastmf.datasets._compressed import reading
from fastmf.datasets.alignments import checked_alphabet
from fastmf.models._io import replacing


class PlmcParameters(NamedTuple):
    """Contents of a parameter file of plmc.

    Parameters
    ----------
    couplings : array of shape (n_columns, n_states, n_columns, n_states)
        Symmetric, diagonal blocks zero.
    field : array of shape (n_columns, n_states)
        Their sum with the couplings is the exponent of a sequence.
    alphabet : str
        Letters of the states.
    frequencies : array of shape (n_columns, n_states)
        Weighted frequencies of the states of each column.
    pair_frequencies : array of shape (n_columns, n_states, n_columns, n_states)
        Frequencies of pairs of columns; diagonal blocks, which are not stored, zero.
    target : str of length n_columns
        The focus sequence; without one, the first letter of plmc's alphabet, repeated.
    positions : int array of shape (n_columns,)
        Number of each column, in the focus sequence if there is one.
    n_neighbours : array of shape (n_rows + n_skipped,)
        For each sequence of the alignment the inverse of its weight; 0 for those left out.
    n_rows, n_skipped : int
        Sequences used and left out; the first None on writing: those with neighbours.
    n_iter : int
        Largest number of iterations.
    theta, lambda_field, lambda_couplings, lambda_group, n_effective : float
        Options -t, -lh, -le and -lg, and the sum of the weights.

    Examples
    --------
    See `write_plmc`, which writes such a file and reads it again.
    """

    couplings: np.ndarray
    field: np.ndarray
    alphabet: str
    frequencies: np.ndarray
    pair_frequencies: np.ndarray
    target: str
    positions: np.ndarray
    n_neighbours: np.ndarray
    n_rows: int
    n_skipped: int
    n_iter: int
    theta: float
    lambda_field: float
    lambda_couplings: float
    lambda_group: float
    n_effective: float


_REAL_NAMES = ("frequencies", "pair_frequencies", "n_neighbours")
_PARAMETER_NAMES = ("theta", "lambda_field", "lambda_couplings", "lambda_group", "n_effective")


def read_plmc(path):
    """Read parameters of a Potts model from a binary file of plmc (its option -o).

    Parameters
    ----------
    path : str or path

    Returns
    -------
    parameters : PlmcParameters
        Arrays in the file's type, which is float32 unless its size says float64.

    Raises
    ------
    ValueError
        If the file is of another kind, truncated or damaged.

    Notes
    -----
    T. A. Hopf et al., Nature Biotechnology 35 (2017) 128-135. Little-endian: sizes, options,
    alphabet, weights, target, positions, frequencies, fields, then pairs i < j.

    Examples
    --------
    See `write_plmc`, which writes such a file and reads it again.
    """
    path = Path(path)
    with reading(path, "parameters of plmc"), open(path, "rb") as file:
        sizes = np.fromfile(file, "<i4", 5)
        dtype = _plmc_dtype(path.stat().st_size, sizes)
        L, q, n_rows, n_skipped, n_iter = sizes.tolist()
        numbers = np.fromfile(file, dtype, 5).tolist()
        alphabet = _plmc_text(file.read(q))
        n_neighbours = np.fromfile(file, dtype, n_rows + n_skipped)
        target = _plmc_text(file.read(L))
        positions = np.fromfile(file, "<i4", L)
        frequencies, field = (np.fromfile(file, dtype, L * q).reshape(L, q) for _ in range(2))
        pair_frequencies, couplings = (_read_pairs(file, dtype, L, q) for _ in range(2))
        if not all(np.isfinite(x).all() for x in (field, couplings, frequencies, pair_frequencies)):
            raise ValueError("it holds NaN or infinity.")
    return PlmcParameters(
        couplings, field, alphabet, frequencies, pair_frequencies, target, positions, n_neighbours,
        n_rows, n_skipped, n_iter, *numbers,
    )  # fmt: skip


def write_plmc(path, couplings, field, alphabet="protein", **more):
    """Write parameters of a Potts model as plmc's binary file, in float32.

    Parameters
    ----------
    path : str or path
    couplings : array of shape (n_columns, n_states, n_columns, n_states)
        Symmetric, diagonal blocks zero.
    field : array of shape (n_columns, n_states)
    alphabet : {"protein", "rna", "dna"} or str, default "protein"
        Letters of the states.
    **more
        Further fields of `PlmcParameters`. By default frequencies, weights and numbers are 0, and
        positions 1, 2, ...

    Raises
    ------
    ValueError
        If an array does not have its shape, is not finite, or couplings are not symmetric.
    TypeError
        For an unknown keyword.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, fastmf as mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mf.datasets.write_plmc(f"{folder}/x", np.zeros((2, 5, 2, 5)), np.ones((2, 5)), "rna")
    ...     parameters = mf.datasets.read_plmc(f"{folder}/x")
    >>> parameters.couplings.shape, parameters.alphabet, parameters.positions
    ((2, 5, 2, 5), '-ACGU', array([1, 2], dtype=int32))
    """
    couplings, field, alphabet = _checked_parameters(couplings, field, alphabet)
    L, q = field.shape
    more = _plmc_more(more, L, q, alphabet)
    sizes = [L, q, more["n_rows"], more["n_skipped"], more["n_iter"]]
    checked = {"couplings": couplings, "field": field} | {k: more[k] for k in _REAL_NAMES}
    for name, part in checked.items():
        if not (abs(np.asarray(part, float)) <= np.finfo(np.float32).max).all():
            raise ValueError(f"{name} must hold finite numbers of single precision, plmc's type.")
    with replacing(path) as file:
        file.write(np.array(sizes, "<i4").tobytes())
        file.write(np.array([more[name] for name in _PARAMETER_NAMES], "<f4").tobytes())
        file.write(alphabet.encode("ascii"))
        file.write(more["n_neighbours"].astype("<f4").tobytes())
        file.write(more["target"].encode("ascii"))
        file.write(more["positions"].astype("<i4").tobytes())
        for part in (more["frequencies"], field):
            file.write(part.astype("<f4").tobytes())
        for part in (more["pair_frequencies"], couplings):
            # Row by row of pairs: all of them at once would double the memory.
            for i in range(L - 1):
                pairs = part[i, :, i + 1 :].transpose(1, 0, 2)
                file.write(pairs.astype("<f4").tobytes())


def _plmc_dtype(size, sizes):
    """The type of the numbers: the one with which the file has its size."""
    told = sizes.tolist()
    if len(told) < 5 or min(told[:2]) < 1 or told[1] > 127 or min(told[2:4]) < 0:
        raise ValueError(f"it begins with the sizes {told}.")
    L, q, n_rows, n_skipped, _ = told
    n_bytes = 20 + q + 5 * L
    n_numbers = 5 + n_rows + n_skipped + 2 * L * q + L * (L - 1) * q * q
    for dtype in ("<f4", "<f8"):
        if size == n_bytes + n_numbers * np.dtype(dtype).itemsize:
            return np.dtype(dtype)
    old = 8 + 5 * L + 4 * (2 * L * q + L * (L - 1) * (1 + q * q))
    if size in (old, 2 * old - 8 - 5 * L - 4 * L * (L - 1)):
        raise ValueError("it has plmc's older format, without an alphabet: fit by a newer plmc.")
    raise ValueError(
        f"{L} columns of {q} states and {n_rows + n_skipped} sequences need "
        f"{n_bytes + 4 * n_numbers} bytes, it has {size}; it may be truncated."
    )


def _plmc_text(letters):
    if not all(33 <= letter < 127 for letter in letters):
        raise ValueError("its alphabet or target is no text.")
    return letters.decode("ascii")


def _read_pairs(file, dtype, L, q):
    tables = np.zeros((L, q, L, q), dtype)
    for i in range(L - 1):
        pairs = np.fromfile(file, dtype, (L - 1 - i) * q * q).reshape(-1, q, q)
        tables[i, :, i + 1 :] = pairs.transpose(1, 0, 2)
        tables[i + 1 :, :, i] = pairs.transpose(0, 2, 1)
    return tables


def _plmc_more(more, L, q, alphabet):
    """Contents of a file of plmc beside the model, from what the caller gave."""
    names = tuple(PlmcParameters.__annotations__)[3:]
    if unknown := set(more) - set(names):
        raise TypeError(f"write_plmc has no argument {sorted(unknown)}; expected {names}.")
    neighbours = np.asarray(more.get("n_neighbours", ()), np.float64)
    defaults = {
        "frequencies": np.zeros((L, q)),
        "pair_frequencies": np.zeros((L, q, L, q)),
        "target": alphabet[0] * L,
        "positions": np.arange(1, L + 1),
        "n_neighbours": neighbours,
        "n_rows": np.count_nonzero(neighbours),
        "n_skipped": np.count_nonzero(neighbours == 0),
    }
    more = dict.fromkeys(names, 0) | defaults | more | {"n_neighbours": neighbours}
    shapes = {"frequencies": (L, q), "pair_frequencies": (L, q, L, q), "positions": (L,)}
    shapes["n_neighbours"] = (more["n_rows"] + more["n_skipped"],)
    for name, shape in shapes.items():
        more[name] = np.asarray(more[name])
        if more[name].shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {more[name].shape}.")
    if len(more["target"]) != L or not more["target"].isascii():
        raise ValueError(f"target must have {L} letters, got {more['target']!r:.60}.")
    return more


def _checked_parameters(couplings, field, alphabet):
    """Arrays and alphabet to write, of one number of columns and states."""
    alphabet = checked_alphabet(alphabet)
    field, couplings = np.asarray(field), np.asarray(couplings)
    if field.ndim != 2 or field.shape[1] != len(alphabet) or len(field) == 0:
        raise ValueError(
            f"field must have shape (n_columns, {len(alphabet)}) for the alphabet {alphabet}, got "
            f"{field.shape}."
        )
    if couplings.shape != 2 * field.shape:
        raise ValueError(f"couplings must have shape {2 * field.shape}, got {couplings.shape}.")
    for name, part in (("field", field), ("couplings", couplings)):
        if part.dtype.kind not in "fiub" or not np.isfinite(part).all():
            raise ValueError(f"{name} must hold finite numbers.")
    for i in range(len(field)):
        if couplings[i, :, i].any():
            raise ValueError(f"couplings of column {i} with itself must be 0; they are not stored.")
        if not np.allclose(couplings[i], couplings[:, :, i].transpose(2, 0, 1), atol=1e-8):
            raise ValueError(
                "couplings must be symmetric: couplings[i, a, j, b] = couplings[j, b, i, a]."
            )
    return couplings, field, alphabet
