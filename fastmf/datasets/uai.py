"""Files of the UAI inference competitions: pairwise models and evidence."""

import gzip
import math
from itertools import islice
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import file_path, number
from fastmf.datasets._compressed import BLOCK_BYTES, ITEM_BYTES, open_decompressed, reading
from fastmf.models._io import replacing
from fastmf.models._state_tables import (
    allowed_states,
    equal_factors,
    factors_of,
    machine_of_tables,
    state_tables,
    tables_of_factors,
)
from fastmf.models.boltzmann import BoltzmannMachine

_NETWORKS = (b"MARKOV", b"BAYES")


class UAIModel(NamedTuple):
    """Result of `load_uai`.

    Parameters
    ----------
    model : BoltzmannMachine
        Categorical units, with sparse couplings.
    clamp : array of shape (n_units,), or None
        Evidence: labels of observed variables, NaN for the others; the `clamp` of solvers.
    log_factor : float
        Logarithm of the product of the factors without variables. The file's partition function is
        exp(log_factor) times the model's.

    Examples
    --------
    See `load_uai`.
    """

    model: BoltzmannMachine
    clamp: np.ndarray | None
    log_factor: float


def load_uai(path, evidence=None, *, max_bytes=2**33):
    """A pairwise model from a file in UAI format.

    Parameters
    ----------
    path : str or path
        MARKOV or BAYES network whose factors have two variables at most; gzip or not.
    evidence : str or path, optional
        File of observed variables (.evid).
    max_bytes : int, default 2**33
        Largest memory that reading may take, judged by the numbers at the file's beginning.

    Returns
    -------
    UAIModel

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file is of another kind, damaged, or too large, if a factor has more than two variables
        or negative entries, or if it is zero everywhere; with the line.

    Notes
    -----
    Factors become logarithms: of one variable fields, of two couplings, and zeros -inf. Factors of
    the same variables are multiplied. A variable with one state gets a second one that never
    occurs.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fastmf as mf
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pair.uai"
    >>> text = "MARKOV 2  2 3  2  1 0  2 0 1  2  1 3  6  1 1 1 2 0 2"
    >>> _ = path.write_text(text)
    >>> uai = mf.datasets.load_uai(path)
    >>> mf.exact(uai.model).mean.round(2).tolist()
    [0.2, 0.8, 0.47, 0.07, 0.47]
    """
    path, max_bytes = file_path("path", path), number("max_bytes", max_bytes, 0, np.inf)
    with reading(path, "a pairwise UAI file"):
        tables, log_factor = _read_model(Words(path, max_bytes))
    clamp = None
    if evidence is not None:
        n_states = tables.sizes.tolist()
        evidence = file_path("evidence", evidence)
        with reading(evidence, "evidence"):
            clamp = _read_evidence(Words(evidence, np.inf), n_states)
    return UAIModel(machine_of_tables(tables), clamp, log_factor)


def _read_model(words):
    (kind,) = words.take(1, "its kind")
    if kind.upper() not in _NETWORKS:
        words.fail(f"it begins with {kind[:20]!a}, not with MARKOV or BAYES")
    n_units = words.number("the number of variables", 1)
    sizes = words.numbers(n_units, "a number of states", int, 1, 2**31)
    n_factors = words.number("the number of factors")
    scopes = [_read_scope(words, f"factor {k}", n_units) for k in range(n_factors)]
    words.reserve(int(sizes.sum()))
    factors = [
        (scope, _read_table(words, f"factor {k}", sizes[scope])) for k, scope in enumerate(scopes)
    ]
    words.end()
    return tables_of_factors(sizes, factors)


def _read_scope(words, factor, n_units):
    arity = words.number(f"the number of variables of {factor}")
    if arity > 2:
        words.fail(f"{factor} has {arity} variables, but models are pairwise: two at most")
    scope = words.numbers(arity, f"a variable of {factor}", int, 0, n_units - 1)
    if arity == 2 and scope[0] == scope[1]:
        words.fail(f"{factor} has variable {scope[0]} twice")
    return scope


def _read_table(words, factor, sizes):
    """The logarithms of a factor's table."""
    n_entries = words.number(f"the number of entries of {factor}")
    if n_entries != math.prod(sizes.tolist()):
        words.fail(
            f"{factor} has {n_entries} entries, but its variables have {math.prod(sizes.tolist())} "
            "states together"
        )
    table = words.numbers(n_entries, f"an entry of {factor}", float)
    if not table.any():
        words.fail(f"{factor} is zero everywhere, so that no state is possible")
    with np.errstate(divide="ignore"):
        return np.log(table).reshape(sizes)


def _read_evidence(words, n_states):
    values = words.rest(2 * len(n_states) + 2, "a variable or state").tolist()
    # Older files begin with the number of samples, 1.
    if len(values) % 2 == 0 and values[:1] == [1]:
        values = values[1:]
    if not values or len(values) != 1 + 2 * values[0]:
        raise ValueError("it must hold the number of observed variables, then each with its state.")
    clamp = np.full(len(n_states), np.nan)
    for i, state in zip(values[1::2], values[2::2], strict=True):
        if i >= len(n_states) or state >= n_states[i]:
            raise ValueError(f"the model has no variable {i} with a state {state}.")
        if not np.isnan(clamp[i]) and clamp[i] != state:
            raise ValueError(f"variable {i} has two states, {clamp[i]:g} and {state}.")
        clamp[i] = state
    return None if values[0] == 0 else clamp


def save_uai(model, path, *, clamp=None, log_factor=0.0):
    """Write a pairwise model in UAI format, and evidence beside it.

    Parameters
    ----------
    model : BoltzmannMachine
        Discrete units; states are counted from the lowest value.
    path : str or path
        Compressed if named ``*.gz``.
    clamp : array of shape (n_units,), optional
        Values of observed units, NaN where free; of categorical units also labels (n_groups,). They
        are written to the file with this name, without .gz, and ``.evid``.
    log_factor : float, default 0
        Logarithm of a factor without variables.

    Raises
    ------
    TypeError
        If the model is of another class.
    ValueError
        If units are not discrete, or clamped to a value that they do not have.

    Notes
    -----
    Numbers have the digits that give the same float when they are read again. Tables whose
    exponentials would overflow or become 0 are divided among several factors.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fastmf as mf
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pair.uai"
    >>> spins = mf.BoltzmannMachine([[0.0, 0.5], [0.5, 0.0]], mf.Ising([0.0, 0.0]))
    >>> mf.datasets.save_uai(spins, path)
    >>> again = mf.datasets.load_uai(path).model
    >>> np.isclose(mf.exact(again).log_partition, mf.exact(spins).log_partition)
    np.True_
    """
    if not isinstance(model, BoltzmannMachine):
        raise TypeError(f"model must be a BoltzmannMachine, got {type(model).__name__}.")
    path = file_path("path", path)
    log_factor = number("log_factor", log_factor, -np.finfo(float).max, np.finfo(float).max)
    tables, states = state_tables(model)
    allowed = np.split(allowed_states(model, clamp, states), tables.first[1:])
    factors = [((), table) for table in equal_factors(log_factor)] if log_factor else []
    factors += factors_of(tables)
    sizes = tables.sizes.tolist()
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(factors))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in factors]
    for _, table in factors:
        lines += ["", str(table.size), " ".join(map(repr, table.ravel().tolist()))]
    _write(path, lines)
    if clamp is not None:
        observed = [(k, int(a.argmax())) for k, a in enumerate(allowed) if a.sum() == 1]
        words = [len(observed), *(number for pair in observed for number in pair)]
        name = path.name.removesuffix(".gz") + ".evid"
        _write(path.with_name(name), [" ".join(map(str, words))])


def _write(path, lines):
    text = ("\n".join(lines) + "\n").encode("ascii")
    if path.name.lower().endswith(".gz"):
        text = gzip.compress(text, mtime=0)
    with replacing(path) as file:
        file.write(text)


# --- words ----------------------------------------------------------------------------------------


class Words:
    """Reader of words between blanks; no more of a file is decompressed than is asked for."""

    def __init__(self, path, max_bytes):
        self._words, self.line = _numbered_words(path), 1
        self._n_bytes, self._max_bytes = 0, max_bytes

    def reserve(self, n):
        """Fail if n more numbers would take more memory than there may be."""
        self._n_bytes += n * ITEM_BYTES
        if self._n_bytes > self._max_bytes:
            self.fail(
                f"its variables and tables would take some {self._n_bytes:.3g} bytes, more than "
                f"max_bytes={self._max_bytes:.3g}"
            )

    def take(self, n, what):
        """Take the next n words; `what` names them in errors."""
        pairs = list(islice(self._words, n))
        self.line = pairs[-1][0] if pairs else self.line
        if len(pairs) < n:
            raise ValueError(f"it ends on line {self.line}, within {what}.")
        return [word for _, word in pairs]

    def numbers(self, n, what, kind, low=0, high=np.inf):
        """Take the next n words as finite numbers of a kind, int or float, in [low, high]."""
        self.reserve(n)
        return self._converted(list(islice(self._words, n)), n, what, kind, low, high)

    def rest(self, n_most, what):
        """Take all remaining words, at most `n_most`, as integers of at least 0."""
        pairs = list(islice(self._words, n_most + 1))
        if len(pairs) > n_most:
            self.fail(f"it has more than {n_most} numbers")
        return self._converted(pairs, len(pairs), what, int, 0, np.inf)

    def number(self, what, low=0, high=np.inf):
        """Take the next word as an integer."""
        return int(self.numbers(1, what, int, low, high)[0])

    def _converted(self, pairs, n, what, kind, low, high):
        values, least = [], max(low, -np.finfo(float).max)
        most = min(high, 2**63 - 1 if kind is int else np.finfo(float).max)
        for line, word in pairs:
            self.line = line
            try:
                # Python's numbers may have underscores, and any number of digits.
                value = kind(word.replace(b"_", b"?"))
            except ValueError:
                value = np.nan
            if not least <= value <= most:
                name = "an integer" if kind is int else "a number"
                limit = f"at least {low}" if high == np.inf else f"from {low} to {high}"
                text = word.decode("ascii", "replace")
                self.fail(f"{what} must be {name} {limit}, got {text!r:.40}")
            values.append(value)
        if len(values) < n:
            raise ValueError(f"it ends on line {self.line}, within {what}.")
        return np.array(values, kind)

    def fail(self, message):
        """Raise a ValueError with the line of the last word that was taken."""
        raise ValueError(f"line {self.line}: {message}.")

    def end(self):
        """Raise a ValueError unless no word is left."""
        for line, word in self._words:
            self.line = line
            self.fail(f"there are more words than were announced, from {word[:20]!a} on")


def _numbered_words(path):
    """Yield each word of a file with the number of its line; lines may be of any length."""
    line, begun = 1, b""
    with open_decompressed(path) as file:
        while piece := file.readline(BLOCK_BYTES):
            text = piece.removeprefix(b"\xef\xbb\xbf") if line == 1 else piece
            words = (begun + text).split()
            begun = b"" if text[-1:].isspace() or not words else words.pop()
            if len(begun) > BLOCK_BYTES:
                raise ValueError(f"it has a word of more than {BLOCK_BYTES} bytes.")
            for word in words:
                yield line, word
            line += piece.endswith(b"\n")
    if begun:
        yield line, begun
