"""Reading and writing of models and evidence in the format of the UAI inference competitions."""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import file_path, number
from fastmf.datasets.files import check_memory, contents, reading
from fastmf.models._io import write_text
from fastmf.models._state_tables import (
    MAX_LOG,
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
        Categorical units with sparse couplings: the variables, followed by a unit for each factor
        of more than two variables.
    clamp : array of shape (n_units,), or None
        Evidence: labels of observed variables, NaN for free ones; the argument `clamp` of solvers.
    log_factor : float
        Logarithm of the product of the factors without variables. The partition function of the
        network is exp(log_factor) times the partition function of `model`.
    n_variables : int
        Number of variables of the network, which are the first units.

    Examples
    --------
    See `load_uai`.
    """

    model: BoltzmannMachine
    clamp: np.ndarray | None
    log_factor: float
    n_variables: int


def load_uai(path, evidence=None, *, max_bytes=2**33):
    """Read a model from a file in UAI format.

    Parameters
    ----------
    path : str or path
        MARKOV or BAYES network, optionally compressed by gzip. Tables of files named ``*.LG`` or
        ``*.LG.gz`` contain natural logarithms.
    evidence : str or path, optional
        File of observed variables (.evid).
    max_bytes : int, default 2**33
        Memory limit, checked with the sizes announced in the file.

    Returns
    -------
    UAIModel

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file is of another kind, damaged, or too large, or if a factor has negative entries or
        is zero everywhere; the message names the line.

    Notes
    -----
    The logarithm of a factor is a field for one variable and a coupling for two; it is -inf for
    zeros. A factor of more variables becomes an auxiliary unit, whose states are the possible
    entries of its table, and whose couplings of -inf forbid other values of the variables. Factors
    of the same two variables are multiplied. Variables with one state get a second, impossible one.

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
    with reading(path, "a UAI file"):
        tables, log_factor, n = _read_model(
            Words(path, max_bytes), max_bytes, _has_logarithms(path)
        )
    clamp = None
    if evidence is not None:
        evidence = file_path("evidence", evidence)
        with reading(evidence, "evidence"):
            clamp = _read_evidence(Words(evidence, max_bytes), tables.sizes[:n], len(tables.sizes))
    return UAIModel(machine_of_tables(tables), clamp, log_factor, n)


def _has_logarithms(path):
    """Whether the tables of a file with this name contain logarithms."""
    return path.name.lower().removesuffix(".gz").endswith(".lg")


def _read_model(words, max_bytes, logarithms):
    """Read the tables of a network, the log of its constant factor, and the number of variables."""
    kind = words.take("its kind")
    if kind.upper() not in _NETWORKS:
        words.fail(f"it begins with {kind[:20]!a}, not with MARKOV or BAYES")
    n_units = words.number("the number of variables", 1)
    sizes = words.numbers(n_units, "a number of states", int, 1, 2**31)
    n_factors = words.number("the number of factors")
    scopes = [_read_scope(words, f"factor {k}", sizes, max_bytes) for k in range(n_factors)]
    check_memory(8 * int(sizes.sum()), max_bytes)
    factors = [
        (scope, _read_table(words, f"factor {k}", sizes[scope], logarithms))
        for k, scope in enumerate(scopes)
    ]
    words.end()
    return *tables_of_factors(sizes, factors), n_units


def _read_scope(words, factor, sizes, max_bytes):
    """Read the variables of a factor."""
    arity = words.number(f"the number of variables of {factor}")
    scope = words.numbers(arity, f"a variable of {factor}", int, 0, len(sizes) - 1)
    repeated = np.flatnonzero(np.bincount(scope) > 1)
    if len(repeated):
        words.fail(f"{factor} has variable {repeated[0]} twice")
    if arity > 2:  # the construction of couplings needs about 160 bytes per entry
        n_states = math.prod(sizes[scope].tolist())
        n_bytes = 160 * n_states * int(sizes[scope].sum())
        if n_bytes > max_bytes:
            words.fail(
                f"{factor} has {arity} variables with {n_states} joint states, {n_bytes} bytes: "
                f"split it into factors of fewer variables, or pass max_bytes={n_bytes}"
            )
    return scope


def _read_table(words, factor, sizes, logarithms):
    """Read the table of a factor; return its logarithm."""
    n_entries = words.number(f"the number of entries of {factor}")
    if n_entries != math.prod(sizes.tolist()):
        words.fail(
            f"{factor} has {n_entries} entries, but its variables have {math.prod(sizes.tolist())} "
            "states together"
        )
    lowest = -np.inf if logarithms else 0
    table = words.numbers(n_entries, f"an entry of {factor}", float, lowest)
    if table.max() == lowest:
        words.fail(f"{factor} is zero everywhere, so that no state is possible")
    if not logarithms:
        with np.errstate(divide="ignore"):
            table = np.log(table)
    return table.reshape(sizes)


def _read_evidence(words, n_states, n_units):
    """Read labels of the units, NaN if not observed; return None without observations."""
    values = words.numbers(words.n_left, "a variable or state", int).tolist()
    # Files in the older format begin with the number of samples, 1.
    if len(values) % 2 == 0 and values[:1] == [1]:
        values = values[1:]
    if not values or len(values) != 1 + 2 * values[0]:
        raise ValueError("it must hold the number of observed variables, then each with its state.")
    clamp = np.full(n_units, np.nan)
    for i, state in zip(values[1::2], values[2::2], strict=True):
        if i >= len(n_states) or state >= n_states[i]:
            raise ValueError(f"the model has no variable {i} with a state {state}.")
        if not np.isnan(clamp[i]) and clamp[i] != state:
            raise ValueError(f"variable {i} has two states, {clamp[i]:g} and {state}.")
        clamp[i] = state
    return None if values[0] == 0 else clamp


def save_uai(model, path, *, clamp=None, log_factor=0.0):
    """Write a model in UAI format, and optionally evidence.

    Parameters
    ----------
    model : BoltzmannMachine
        Units must be discrete; states are numbered in ascending order of the values.
    path : str or path
        Compressed if named ``*.gz``. Tables of files named ``*.LG`` or ``*.LG.gz`` contain natural
        logarithms.
    clamp : array of shape (n_units,), optional
        Values of observed units, NaN for free ones; for categorical units also labels (n_groups,).
        They are written to a file with the name of `path`, without .gz, followed by ``.evid``.
    log_factor : float, default 0
        Logarithm of a factor without variables.

    Raises
    ------
    TypeError
        If the model is of another class.
    ValueError
        If units are not discrete, or clamped to a value outside their support.

    Notes
    -----
    Numbers are written with enough digits to read the same float. Tables whose exponentials would
    overflow or underflow are split into several factors.

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
    path = file_path("path", path)
    limit = 2**20 * MAX_LOG  # larger ones would become millions of factors
    log_factor = number("log_factor", log_factor, -limit, limit)
    tables, states = state_tables(model)
    allowed = np.split(allowed_states(model, clamp, states), tables.first[1:])
    factors = [((), table) for table in equal_factors(log_factor)] if log_factor else []
    factors += factors_of(tables)
    if _has_logarithms(path):
        with np.errstate(divide="ignore"):
            factors = [(scope, np.log(table)) for scope, table in factors]
    sizes = tables.sizes.tolist()
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(factors))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in factors]
    for _, table in factors:
        lines += ["", str(table.size), " ".join(map(repr, table.ravel().tolist()))]
    write_text(path, "\n".join(lines) + "\n")
    if clamp is not None:
        observed = [(k, int(a.argmax())) for k, a in enumerate(allowed) if a.sum() == 1]
        words = [len(observed), *(number for pair in observed for number in pair)]
        name = path.stem if path.suffix.lower() == ".gz" else path.name
        write_text(path.with_name(f"{name}.evid"), " ".join(map(str, words)) + "\n")


# --- words ----------------------------------------------------------------------------------------


class Words:
    """The words of a file, separated by white space, which are read in order."""

    def __init__(self, path, max_bytes):
        # Words and their numbers need about 16 times the memory of their text.
        self._text = contents(path, max_bytes, 16).removeprefix(b"\xef\xbb\xbf")
        self._words, self._n_taken = self._text.split(), 0

    @property
    def n_left(self):
        """Number of words that have not been read."""
        return len(self._words) - self._n_taken

    def take(self, what):
        """Read the next word; `what` names it in errors."""
        if not self.n_left:
            raise ValueError(f"it ends on line {self._line()}, within {what}.")
        self._n_taken += 1
        return self._words[self._n_taken - 1]

    def numbers(self, n, what, kind, low=0, high=np.inf):
        """Read the next n words as finite numbers of a kind, int or float, in [low, high]."""
        values, highest = [], min(high, 2**63 - 1 if kind is int else np.finfo(float).max)
        for _ in range(n):
            word = self.take(what)
            values.append(_number(word, kind))
            if not low <= values[-1] <= highest:
                name = "an integer" if kind is int else "a number"
                limit = f"at least {low}" if high == np.inf else f"from {low} to {high}"
                text = word.decode("ascii", "replace")
                self.fail(f"{what} must be {name} {limit}, got {text!r:.40}")
        return np.array(values, kind)

    def number(self, what, low=0, high=np.inf):
        """Read the next word as an integer."""
        return int(self.numbers(1, what, int, low, high)[0])

    def end(self):
        """Raise a ValueError if any word is left."""
        if self.n_left:
            word = self.take("")
            self.fail(f"there are more words than were announced, from {word[:20]!a} on")

    def fail(self, message):
        """Raise a ValueError with the line of the last word read."""
        raise ValueError(f"line {self._line()}: {message}.")

    def _line(self):
        """Return the number of the line of the last word read."""
        numbers = np.cumsum([len(line.split()) for line in self._text.splitlines()])
        return int(np.searchsorted(numbers, self._n_taken)) + 1


def _number(word, kind):
    """Convert a word to a number; NaN if it is not a number."""
    try:
        # Python accepts underscores in numbers.
        return kind(word.replace(b"_", b"?"))
    except ValueError:
        return np.nan
