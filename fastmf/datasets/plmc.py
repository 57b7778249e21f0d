"""Reading and writing of the binary parameter files of plmc (Potts models)."""

import re
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import file_path, real_array
from fastmf._common.warning import short_repr
from fastmf.datasets.alignments import checked_alphabet
from fastmf.datasets.files import reading
from fastmf.models._io import replacing


@short_repr
class PlmcParameters(NamedTuple):
    """Contents of a parameter file of plmc.

    Parameters
    ----------
    couplings : array of shape (n_columns, n_states, n_columns, n_states)
        Symmetric, diagonal blocks zero.
    field : array of shape (n_columns, n_states)
        The sum of fields and couplings is the exponent of a sequence.
    alphabet : str
        Letters of the states.
    frequencies : array of shape (n_columns, n_states)
        Weighted frequencies of the states of each column.
    pair_frequencies : array of shape (n_columns, n_states, n_columns, n_states)
        Weighted frequencies of pairs of states; diagonal blocks, which are not stored, are zero.
    target : str of length n_columns
        The focus sequence; without a focus, the first letter of plmc's alphabet, repeated.
    positions : int array of shape (n_columns,)
        Number of each column, in the focus sequence if there is one.
    n_neighbours : array of shape (n_rows + n_skipped,)
        Inverse weight of each sequence of the alignment; 0 for skipped sequences.
    n_rows, n_skipped : int
        Number of used and of skipped sequences.
    n_iter : int
        Largest number of iterations.
    theta, lambda_field, lambda_couplings, lambda_group, n_effective : float
        Options -t, -lh, -le and -lg, and the sum of the weights.

    Examples
    --------
    See `write_plmc`.
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


_SIZES = ("n_rows", "n_skipped", "n_iter")
_PAIRS = ("pair_frequencies", "couplings")


def read_plmc(path):
    """Read parameters of a Potts model from a binary file of plmc (its option -o).

    Parameters
    ----------
    path : str or path

    Returns
    -------
    parameters : PlmcParameters
        Arrays in the type of the file, float32 or float64, which is inferred from its size.

    Raises
    ------
    ValueError
        If the file is of another kind, truncated or damaged.

    Notes
    -----
    T. A. Hopf et al., Nature Biotechnology 35 (2017) 128-135. Little-endian: sizes, options,
    alphabet, weights, target, positions, frequencies, fields, followed by pairs i < j.

    Examples
    --------
    See `write_plmc`.
    """
    path = file_path("path", path)
    with reading(path, "parameters of plmc"), open(path, "rb") as file:
        sizes = np.fromfile(file, "<i4", 5).tolist()
        head = np.fromfile(file, _layout(*sizes[:4], _type(path.stat().st_size, sizes)), 1)[0]
        values = {name: head[name].copy() for name in head.dtype.names}
        values |= {name: x.item() for name, x in values.items() if x.ndim == 0}
        values |= {name: _read_pairs(file, head["field"]) for name in _PAIRS}
        for name in ("alphabet", "target"):
            values[name] = values[name].tobytes().decode("latin-1")
            if not re.fullmatch("[!-~]+", values[name]):
                raise ValueError("its alphabet or target is no text.")
        if not all(np.isfinite(values[name]).all() for name in ("field", "frequencies", *_PAIRS)):
            raise ValueError("it holds NaN or infinity.")
    return PlmcParameters(**values, **dict(zip(_SIZES, sizes[2:], strict=True)))


def write_plmc(path, couplings, field, alphabet="protein", **more):
    """Write parameters of a Potts model to a binary file of plmc, in float32.

    Parameters
    ----------
    path : str or path
    couplings : array of shape (n_columns, n_states, n_columns, n_states)
        Symmetric, diagonal blocks zero.
    field : array of shape (n_columns, n_states)
    alphabet : {"protein", "rna", "dna"} or str, default "protein"
        Letters of the states.
    **more
        Further fields of `PlmcParameters`. By default frequencies, weights and numbers are 0,
        positions are 1, 2, ..., and `n_rows` and `n_skipped` follow from `n_neighbours`.

    Raises
    ------
    ValueError
        If an array has another shape or is not finite, or couplings are not symmetric.
    TypeError
        If a keyword is unknown, or an array does not have real numbers.

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
    values = _checked({"couplings": couplings, "field": field} | more, checked_alphabet(alphabet))
    _check_couplings(values["couplings"])
    sizes = *values["field"].shape, *(int(values[name]) for name in _SIZES)
    head = np.zeros((), _layout(*sizes[:4], "<f4"))
    values |= {name: list(values[name].encode()) for name in ("alphabet", "target")}
    for name in head.dtype.names:
        head[name] = values[name]
    with replacing(path) as file:
        file.write(np.array(sizes, "<i4").tobytes() + head.tobytes())
        for name in _PAIRS:
            # Convert one row of pairs at a time, as a copy of all pairs would double the memory.
            for i in range(sizes[0] - 1):
                pairs = values[name][i, :, i + 1 :].transpose(1, 0, 2)
                file.write(pairs.astype("<f4").tobytes())


def _layout(L, q, n_rows, n_skipped, real):
    """Return the dtype of the part of a file between the sizes and the pairs."""
    names = "theta", "lambda_field", "lambda_couplings", "lambda_group", "n_effective"
    return np.dtype([
        *((name, real) for name in names),
        ("alphabet", "u1", (q,)),
        ("n_neighbours", real, (n_rows + n_skipped,)),
        ("target", "u1", (L,)),
        ("positions", "<i4", (L,)),
        ("frequencies", real, (L, q)),
        ("field", real, (L, q)),
    ])  # fmt: skip


def _type(size, sizes):
    """Return the type of the numbers, inferred from the size of the file."""
    if len(sizes) < 5 or min(sizes[:2]) < 1 or sizes[1] > 127 or min(sizes[2:4]) < 0:
        raise ValueError(f"it begins with the sizes {sizes}.")
    L, q, n_rows, n_skipped, _ = sizes
    n_bytes = 20 + q + 5 * L
    n_numbers = 5 + n_rows + n_skipped + 2 * L * q + L * (L - 1) * q * q
    for dtype in ("<f4", "<f8"):
        if size == n_bytes + n_numbers * np.dtype(dtype).itemsize:
            return dtype
    old_size = 8 + 5 * L + 4 * (2 * L * q + L * (L - 1) * (1 + q * q))
    if size in (old_size, 2 * old_size - 8 - 5 * L - 4 * L * (L - 1)):
        raise ValueError("it has plmc's older format, without an alphabet: fit by a newer plmc.")
    raise ValueError(
        f"{L} columns of {q} states and {n_rows + n_skipped} sequences need "
        f"{n_bytes + 4 * n_numbers} bytes, it has {size}; it may be truncated."
    )


def _read_pairs(file, field):
    """Read tables of all pairs of columns, with the sizes and the dtype of the fields."""
    L, q = field.shape
    tables = np.zeros((L, q, L, q), field.dtype)
    for i in range(L - 1):
        pairs = np.fromfile(file, field.dtype, (L - 1 - i) * q * q).reshape(-1, q, q)
        tables[i, :, i + 1 :] = pairs.transpose(1, 0, 2)
        tables[i + 1 :, :, i] = pairs.transpose(0, 2, 1)
    return tables


def _checked(values, alphabet):
    """Check the given contents of a file; return them with defaults for missing entries."""
    names = tuple(PlmcParameters.__annotations__)
    if unknown := set(values) - set(names):
        raise TypeError(f"write_plmc has no argument {sorted(unknown)}; expected {names[3:]}.")
    L, q = len(np.atleast_1d(real_array("field", values["field"]))), len(alphabet)
    neighbours = real_array("n_neighbours", values.get("n_neighbours", ()))
    defaults = {
        "frequencies": np.zeros((L, q)),
        "pair_frequencies": np.zeros((L, q, L, q)),
        "target": alphabet[0] * L,
        "positions": np.arange(1, L + 1),
        "n_neighbours": neighbours,
        "n_rows": np.count_nonzero(neighbours),
        "n_skipped": np.count_nonzero(neighbours == 0),
    }
    values = dict.fromkeys(names, 0) | defaults | values | {"alphabet": alphabet}
    shapes = dict.fromkeys(("field", "frequencies"), (L, q)) | dict.fromkeys(_PAIRS, (L, q, L, q))
    shapes |= {"positions": (L,), "n_neighbours": (values["n_rows"] + values["n_skipped"],)}
    for name, shape in shapes.items():
        array = values[name] = real_array(name, values[name])
        if array.shape != shape or L == 0:
            raise ValueError(
                f"{name} must have shape {shape} for the alphabet {alphabet}, got {array.shape}."
            )
        if not (abs(array) <= np.finfo(np.float32).max).all():
            raise ValueError(f"{name} must hold finite numbers of single precision, plmc's type.")
    if len(values["target"]) != L or not values["target"].isascii():
        raise ValueError(f"target must have {L} letters, got {values['target']!r:.60}.")
    return values


def _check_couplings(couplings):
    """Raise unless couplings are symmetric, with zero diagonal blocks."""
    for i in range(len(couplings)):
        if couplings[i, :, i].any():
            raise ValueError(f"couplings of column {i} with itself must be 0; they are not stored.")
        if not np.allclose(couplings[i], couplings[:, :, i].transpose(2, 0, 1), atol=1e-8):
            raise ValueError(
                "couplings must be symmetric: couplings[i, a, j, b] = couplings[j, b, i, a]."
            )
