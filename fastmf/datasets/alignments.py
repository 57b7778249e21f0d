"""Alignments of sequences: FASTA, A2M, A3M, Stockholm and Clustal files, as integer labels."""

import io
import math
import re
import string
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count, file_path, number, one_of, real_array
from fastmf._common.rows import row_blocks
from fastmf._common.warning import short_repr
from fastmf._threads.workers import VECTOR_SPEED, in_parallel, workers_for
from fastmf.datasets.files import beginning, contents, reading
from fastmf.kernels.pseudo_likelihood import hamming
from fastmf.models._io import write_text

ALPHABETS = {"protein": "-ACDEFGHIKLMNPQRSTVWY", "rna": "-ACGU", "dna": "-ACGT"}

_BOM = b"\xef\xbb\xbf"
_GAPS = b"-."
_INSERTS = string.ascii_lowercase.encode() + b"."
_OUTSIDE = np.iinfo(np.int8).min
_SPACES = b" \t\r\n\v\f"
_TEXT = bytes([*range(33, 127), *_SPACES])
# First words of files in Clustal's format, which other programs write as well.
_CLUSTAL = (b"CLUSTAL", b"MUSCLE", b"PROBCONS", b"MSAPROBS", b"Kalign")
# Line of Clustal's format that marks conserved columns below a block.
_CONSERVED = re.compile(rb"[*:. ]*")
# Further gap characters of Stockholm's format.
_GAPS_OF_STOCKHOLM = bytes.maketrans(b"~_", b"..")
_COUNT = re.compile(rb"\s+[0-9]+$")


@short_repr
class Alignment(NamedTuple):
    """Aligned sequences as integer labels.

    Parameters
    ----------
    X : int8 array of shape (n_rows, n_columns)
        States: ``alphabet[X[s, i]]`` is a letter; -1 is missing data.
    names : list of str of length n_rows
        First word of the title of each sequence.
    rows, columns : int array of shape (n_rows,) and (n_columns,)
        Indices of the sequences and columns in the file, from 0; in A2M files without dots, indices
        of match columns.
    alphabet : str
        Letters of the states.

    Examples
    --------
    See `load_alignment`.
    """

    X: np.ndarray
    names: list[str]
    rows: np.ndarray
    columns: np.ndarray
    alphabet: str


class _Text(NamedTuple):
    """The sequences of a file before processing."""

    path: Path
    names: list[str]
    rows: list[bytes]


def load_alignment(
    path, alphabet="protein", focus=None, gaps="state", *, inserts="drop", outside="drop",
    max_gaps=1.0, max_bytes=2**29,
):  # fmt: skip
    r"""Read an alignment from a FASTA, A2M, A3M, Stockholm or Clustal file.

    Parameters
    ----------
    path : str or path
        The file, optionally compressed by gzip; its format is detected from its content.
    alphabet : {"protein", "rna", "dna"}, str or None, default "protein"
        ``-ACDEFGHIKLMNPQRSTVWY``, ``-ACGU``, ``-ACGT``, or letters and signs in the order of the
        states; T and U are one base in "rna" and "dna". None: the smallest of the three that has
        nearly as many letters of the file as the best one, where N may be an unknown base.
    focus : str, optional
        Title of a sequence, or its beginning: keep the columns of its upper-case letters (plmc's
        option -f).
    gaps : {"state", "missing"}, default "state"
        Whether a gap is a state, or missing (-1), in which case the alphabet has no gap.
    inserts : {"drop", "keep"}, default "drop"
        Whether columns with only lower-case letters and dots are dropped. In the other columns,
        lower-case letters are read as upper-case ones.
    outside : {"drop", "gap", "missing"}, default "drop"
        Whether rows with letters outside the alphabet, such as X, are dropped, or these letters are
        read as gaps or as missing data (-1).
    max_gaps : float or (float, float), default 1
        Largest fraction of gaps and missing data in a row, and then in a column of the remaining
        rows; rows and columns with more are dropped.
    max_bytes : int, default 2**29
        Largest size of the uncompressed text; reading needs about three times as much memory.

    Returns
    -------
    alignment : Alignment

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, empty, damaged, too large, ragged, or of another format, if no row
        or column remains, if no sequence or several match `focus`, or if an option is unknown.

    Notes
    -----
    "." and "-" are equivalent, except in insert columns and in alphabets with a dot. In `A2M
    <https://compbio.soe.ucsc.edu/a2m-desc.html>`_ files without dots, and in A3M files, rows are
    aligned by removing their lower-case letters. "*" at the end of a row is ignored, unless the
    alphabet contains it. Lines before the first title that begin with "#" or ";" are comments.
    `Stockholm <https://sonnhammer.sbc.su.se/Stockholm.html>`_ files must have a single alignment.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import fastmf as mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "x.a2m"
    ...     _ = path.write_text(">one/1-3\nA.CG\n>two\nAu-G\n>three\nA.NG\n")
    ...     alignment = mf.datasets.load_alignment(path, "rna")
    >>> alignment.names, alignment.columns
    (['one/1-3', 'two'], array([0, 2, 3]))
    >>> alignment.X
    array([[1, 2, 3],
           [1, 0, 3]], dtype=int8)
    """
    options = {"inserts": inserts, "outside": outside, "max_gaps": max_gaps}
    return load_and_compare(path, alphabet, focus, gaps, max_bytes=max_bytes, **options)[0]


def sequence_weights(X, identity=0.8, *, n_threads=None):
    """Compute weights of related sequences, 1 / (number of similar rows, including the row itself).

    With these weights a cluster of similar rows counts as about one row (Morcos et al. 2011).

    Parameters
    ----------
    X : int array of shape (n_rows, n_groups)
        Labels; all negative labels count as one additional letter.
    identity : float, default 0.8
        Smallest fraction of equal columns of similar rows, in [0, 1] (``1 - theta`` in plmc).
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    array of shape (n_rows,)
        In (0, 1].

    Raises
    ------
    TypeError, ValueError
        If `X` is not a matrix of integers, or `identity` is not a number in [0, 1].

    Notes
    -----
    All pairs of distinct rows are compared, about 10^8 a second on one core for 150 columns. The
    sum of the weights is called the effective number of sequences. Reference: Morcos et al.,
    "Direct-coupling analysis of residue coevolution captures native contacts across many protein
    families", PNAS 108 (2011).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = np.array([[0, 1, 2, 3, -1], [0, 1, 2, 3, 4], [4, 4, 4, 4, 4]])
    >>> mf.datasets.sequence_weights(X).tolist()
    [0.5, 0.5, 1.0]
    """
    codes = _codes(X)
    n_columns = codes.shape[1]
    identity = number("identity", identity, 0, 1)
    n_threads = count("n_threads", n_threads, optional=True)
    # The product may be just above an integer due to rounding.
    max_differences = n_columns - math.ceil(identity * n_columns * (1 - 4 * np.finfo(float).eps))
    rows = hamming.padded(codes)
    keys = rows.view(np.dtype((np.void, rows.shape[1])))[:, 0]
    _, first, place, repeats = np.unique(keys, True, True, True)
    labels, n_tasks = rows[first], -(-len(first) // hamming.QUERY_ROWS)
    n_workers = workers_for(n_tasks, len(first) * labels.size // VECTOR_SPEED, n_threads)
    counts = np.zeros((n_workers, len(first)), np.int64)
    arguments = labels, repeats, max_differences, np.zeros(2, np.int64), counts
    in_parallel(hamming.count_similar, arguments, n_workers)
    return 1 / counts.sum(0)[place]


def write_fasta(path, X, alphabet="protein", names=None):
    """Write sequences to a FASTA file, each on one line.

    Parameters
    ----------
    path : str or path
        Compressed if named ``*.gz``.
    X : int array of shape (n_rows, n_columns)
        States of the positions; negative (missing) ones are written as gaps.
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
    with np.errstate(invalid="ignore"):  # NaN is refused below
        states = X.astype(int)
    if (states != X).any() or states.max() >= len(alphabet):
        raise ValueError(
            f"X must hold states below {len(alphabet)} of the alphabet {alphabet}, got "
            f"{X.max():g} at most."
        )
    names = np.asarray(range(1, len(X) + 1) if names is None else names, object)
    if names.shape != (len(X),) or any({*"\r\n"} & {*str(name)} for name in names):
        raise ValueError(f"names must be {len(X)} names without line breaks, got {names!r:.60}.")
    rows = map("".join, np.array([*alphabet, "-"])[np.maximum(states, -1)])
    write_text(path, "".join(f">{name}\n{row}\n" for name, row in zip(names, rows, strict=True)))


def load_and_compare(
    path, alphabet="protein", focus=None, gaps="state", *, inserts="drop", outside="drop",
    max_gaps=1.0, max_bytes=2**29,
):  # fmt: skip
    """Return the result of `load_alignment`, and messages about dropped rows and columns."""
    one_of("gaps", gaps, ("state", "missing"))
    one_of("inserts", inserts, ("drop", "keep"))
    one_of("outside", outside, ("drop", "gap", "missing"))
    pair = max_gaps if isinstance(max_gaps, tuple | list) else (max_gaps, 1.0)
    if len(pair) != 2:
        raise ValueError(f"max_gaps must be a number or two, got {max_gaps!r:.60}.")
    max_gaps = [number("max_gaps", value, 0, 1) for value in pair]
    if not isinstance(focus, str | None):
        raise TypeError(f"focus must be a str or None, got {type(focus).__name__}.")
    if alphabet is not None:
        alphabet = checked_alphabet(alphabet)
    text = _read(file_path("path", path), max_bytes)
    if focus is None and inserts == "drop":
        # If all letters are lower-case, inserts cannot be identified.
        signs = b"".join(text.rows).translate(None, _GAPS)
        if signs and not signs.translate(None, _INSERTS):
            raise ValueError(f"{text.path}: no column is left, as {_ALL_LOWER}.")
    if alphabet is not None and "." in alphabet:
        text = text._replace(rows=[row.replace(b".", b"-") for row in text.rows])
    rows = _aligned_in(alphabet, text, inserts)
    columns = _columns_read(text, rows, focus, inserts)
    if alphabet is None:
        alphabet = _fitting_alphabet(rows, columns)
    table, alphabet = _states(alphabet, gaps, outside)
    if set(alphabet) <= set("-.ACGT") or set(alphabet) <= set("-.ACGU"):  # T and U are one base
        table[list(b"TtUu")] = table[[ord("T"), ord("U")]].max()
    X, valid, outside = _encoded(rows, columns, table)
    strange = "".join(map(chr, np.argsort(-outside, kind="stable")[: np.count_nonzero(outside)]))
    if not valid.any():
        raise ValueError(
            f"{text.path}: no sequence is within the alphabet {alphabet}; letters outside it are "
            f"{' '.join(strange[:5])}. Pass another alphabet, or outside='gap'."
        )
    row_mask, column_mask = _few_gaps(X, gap_state(alphabet), max_gaps, text.path)
    row_numbers, column_numbers = np.flatnonzero(valid)[row_mask], columns[column_mask]
    reason = f"letters outside the alphabet {alphabet} ({' '.join(strange[:5])})"
    left_out = [
        f"{np.sum(~mask)} of {n} {what} left out: {reason}"
        for mask, n, what, reason in (
            (valid, len(valid), "sequences", reason),
            (row_mask, len(valid), "sequences", f"more than {max_gaps[0]:.0%} gaps"),
            (column_mask, len(columns), "columns", f"more than {max_gaps[1]:.0%} gaps"),
        )
        if not mask.all()
    ]
    X, names = X[row_mask][:, column_mask], [text.names[k] for k in row_numbers]
    return Alignment(X, names, row_numbers, column_numbers, alphabet), left_out


def residues_of(path, name, alignment, inserts="drop"):
    """Return letter and number of a sequence's residue in each column, such as "K12".

    Numbers begin with the number in the title, as in NAME/12-80, otherwise with 1, and include
    inserts. Gaps have an empty text.
    """
    text = _read(Path(path), 2**29)
    row = _focus_row(text, name)
    letters = np.frombuffer(text.rows[row], np.uint8)
    residue = ~_IS_GAP[letters]
    first = re.search(r"/(\d{1,9})-\d+$", text.names[row])
    numbers = np.cumsum(residue) + (int(first[1]) if first else 1) - 1
    width = _aligned_in(alignment.alphabet, text, inserts).shape[1]
    # Map columns to letters: inserts, or the stop sign at the end, may have been removed.
    places = np.flatnonzero(~_IS_INSERT[letters]) if len(letters) > width else np.arange(width)
    places = np.append(places, np.arange(len(places), width))[alignment.columns]
    return [f"{chr(letters[k])}{numbers[k]}" if residue[k] else "" for k in places]


def is_alignment(path):
    """Whether the beginning of a file looks like an alignment; False for a pipe."""
    text = beginning(path, 4096) if Path(path).is_file() else b""
    text = text.removeprefix(_BOM).replace(b"\r", b"\n").lstrip()
    while text.startswith((b"#", b";")) and not text.startswith(b"# STOCKHOLM"):
        text = text.partition(b"\n")[2].lstrip()
    return text.startswith((b">", b"# STOCKHOLM", *_CLUSTAL))


def gap_state(alphabet):
    """Return the state of the gap; None if the alphabet has no gap."""
    return next((state for state, letter in enumerate(alphabet) if letter in "-."), None)


# --- options and letters ------------------------------------------------------------------------


def checked_alphabet(alphabet):
    """Return the letters of an alphabet given by its name or letters; raise if it is invalid."""
    if not isinstance(alphabet, str):
        raise TypeError(f"alphabet must be a str or None, got {type(alphabet).__name__}.")
    if alphabet.lower() in ALPHABETS:
        return ALPHABETS[alphabet.lower()]
    signs = set(alphabet)
    wrong = (
        len(signs) < max(2, len(alphabet)) or len(signs) > 127 or {"-", "."} <= signs
        or any(not "!" <= sign <= "~" or sign == ">" or sign.islower() for sign in signs)
    )  # fmt: skip
    if wrong:
        raise ValueError(
            "alphabet must be 'protein', 'rna', 'dna' or at least two different upper-case letters "
            f"or signs, without '>' and not with both '-' and '.', got {alphabet!r:.60}."
        )
    return alphabet


def _few_gaps(X, gap, max_gaps, path):
    """Return masks of the rows, and of the columns in these rows, with few enough gaps."""
    gaps = np.isin(X, [-1] if gap is None else [-1, gap])
    rows = gaps.mean(1) <= max_gaps[0]
    columns = gaps[rows].mean(0) <= max_gaps[1] if rows.any() else rows[:0]
    if not columns.any():
        what = "column" if rows.any() else "sequence"
        raise ValueError(f"{path}: no {what} is left with as few gaps as max_gaps={max_gaps}.")
    return rows, columns


def _states(alphabet, gaps, outside="drop"):
    """Return a table of the state of each byte, `_OUTSIDE` if it has none, and the letters."""
    gap = gap_state(alphabet)
    letters = re.sub("[-.]", "", alphabet) if gaps == "missing" else alphabet
    table = np.full(256, _OUTSIDE, np.int8)
    for state, sign in enumerate(letters):
        table[[ord(sign), ord(sign.lower())]] = state
    if gaps == "missing" or gap is not None:
        table[list(_GAPS)] = -1 if gaps == "missing" else gap
    elif outside == "gap":
        raise ValueError("outside='gap' needs a gap in the alphabet; pass outside='missing'.")
    if outside != "drop":
        unknown = _table(string.ascii_letters.encode()) & (table == _OUTSIDE)
        table[unknown] = table[ord("-")] if outside == "gap" else -1
    return table, letters


def _fitting_alphabet(rows, columns):
    """Return the smallest alphabet with at least 95% of the letters that the best one contains."""
    blocks = (rows[block][:, columns].ravel() for block in row_blocks(rows))
    counts = sum(np.bincount(letters, minlength=256) for letters in blocks)
    counts[list(_GAPS)] = 0
    # N is an amino acid, or an unknown base.
    unknown = counts[ord("N")] + counts[ord("n")]
    n_known = {
        name: counts[_states(alphabet, "state")[0] >= 0].sum() + (name != "protein") * unknown
        for name, alphabet in ALPHABETS.items()
    }
    largest = max(n_known.values())
    return ALPHABETS[next(n for n in ("rna", "dna", "protein") if n_known[n] >= 0.95 * largest)]


# --- files --------------------------------------------------------------------------------------


def _read(path, max_bytes):
    with reading(path, "an alignment"):
        text = contents(path, max_bytes).removeprefix(_BOM).replace(b"\r\n", b"\n")
        lines = io.BytesIO(text.replace(b"\r", b"\n"))  # lines of old Macs end in \r
        names, rows = sequences(enumerate(map(bytes.strip, lines), 1))
    if not names:
        raise ValueError(f"{path} holds no sequences.")
    return _Text(path, names, rows)


def _letters_of(line, place):
    """Return the letters of a line of a sequence; `place` is its number in the file."""
    if strange := line.translate(None, _TEXT):
        raise ValueError(
            f"line {place} holds the byte 0x{strange[0]:02x}, which is no letter; it is "
            "damaged or of another format."
        )
    return line.translate(None, _SPACES)


def sequences(lines):
    """Parse numbered lines; return the first words of titles, and the letters of sequences.

    Lines before the first title that begin with '#', as written by HHblits, or ';' are comments.
    """
    for _, line in lines:
        if line.startswith(b"# STOCKHOLM"):
            return _in_blocks(lines)
        if not line or line.startswith((b"#", b";")):
            continue
        if line.startswith(_CLUSTAL):
            return _in_blocks(lines, clustal=True)
        if line.startswith(b">"):
            return _fasta(lines, line)
        raise ValueError(
            "it begins neither with '>' (FASTA, A2M, A3M) nor with '# STOCKHOLM' or 'CLUSTAL'."
        )
    raise ValueError("it is empty.")


def _name(words):
    return words.split(None, 1)[0].decode("utf-8", "replace") if words.split() else ""


def _fasta(lines, title):
    names, rows = [_name(title[1:])], [bytearray()]
    for place, line in lines:
        if line.startswith(b">"):
            names.append(_name(line[1:]))
            rows.append(bytearray())
        else:
            rows[-1] += _letters_of(line, place)
    return names, rows


def _in_blocks(lines, clustal=False):
    """Parse Stockholm or Clustal format, in which sequences may be split into blocks."""
    sequences_by_name, block, closed = {}, set(), False
    for place, line in lines:
        if closed and line:
            raise ValueError("it holds more than one alignment; split it at the lines '//'.")
        if not line:
            block.clear()
        closed = closed or (line == b"//" and not clustal)
        comment = _CONSERVED.fullmatch(line) if clustal else line.startswith(b"#")
        if not line or comment or closed:
            continue
        name, *letters = line.split(None, 1)
        if not letters or name in block:
            what = "holds no letters" if not letters else "repeats a name of its block"
            raise ValueError(f"line {place}, {name[:60]!r}, {what}.")
        block.add(name)
        text = _COUNT.sub(b"", letters[0]) if clustal else letters[0].translate(_GAPS_OF_STOCKHOLM)
        sequences_by_name.setdefault(name, bytearray()).extend(_letters_of(text, place))
    if not closed and not clustal:
        raise ValueError("it ends without the line '//': it is truncated.")
    return list(map(_name, sequences_by_name)), list(sequences_by_name.values())


# --- rows and columns ---------------------------------------------------------------------------

_ALL_LOWER = "all its letters are lower-case, which marks inserts; pass inserts='keep'"


def _table(signs):
    """Return a mask over all bytes of the given signs."""
    return np.isin(np.arange(256), list(signs))


_IS_GAP, _IS_INSERT = _table(_GAPS), _table(_INSERTS)


def _aligned(text, inserts):
    """Return rows of equal length, without inserts for A2M files without dots."""
    rows = text.rows
    if inserts == "drop" and all(rows) and _lacks_dots(rows):
        matches = [row.translate(None, _INSERTS) for row in rows]
        if len(matches[0]) > 0 and len(set(map(len, matches))) == 1:
            rows = matches
    width = len(rows[0])
    for k, row in enumerate(rows):
        if len(row) != width:
            raise ValueError(
                f"{text.path} is no alignment: sequence {k + 1} ({text.names[k]:.60}) has "
                f"{len(row)} columns, the first one {width}; align them first."
            )
    if width == 0:
        raise ValueError(f"{text.path} has titles, but no letters.")
    return rows


def _aligned_in(alphabet, text, inserts):
    """Return the aligned letters; '*' at the end of a row is removed unless in the alphabet."""
    if alphabet is not None and "*" in alphabet:
        rows = _aligned(text, inserts)
    else:
        without_stops = text._replace(rows=[row.removesuffix(b"*") for row in text.rows])
        try:
            all_stop = all(row.endswith(b"*") for row in text.rows)
            rows = _aligned(without_stops if all_stop else text, inserts)
        except ValueError:
            # Some rows end in a stop sign that has no column in the other rows.
            rows = _aligned(without_stops, inserts)
        rows = [re.sub(rb"\*([-.]*)\Z", rb"-\1", row) if b"*" in row else row for row in rows]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def _lacks_dots(rows):
    """Whether inserts are not padded: rows differ in length, or columns mix both cases."""
    if len(set(map(len, rows))) > 1:
        return True
    letters = b"".join(rows)
    inserts = _IS_INSERT[np.frombuffer(letters, np.uint8)].reshape(len(rows), -1).sum(axis=0)
    return b"." not in letters and bool(((inserts > 0) & (inserts < len(rows))).any())


def _columns_read(text, rows, focus, inserts):
    """Return the columns to read: columns with a letter of the focus, or all except inserts."""
    if focus is None and inserts == "keep":
        return np.arange(rows.shape[1])
    if focus is None:
        keep, what = ~_IS_INSERT[rows].all(axis=0), _ALL_LOWER
    else:
        letters = rows[_focus_row(text, focus)]
        keep = ~(_IS_GAP | _IS_INSERT if inserts == "drop" else _IS_GAP)[letters]
        what = f"the focus {focus!r:.60} has no upper-case letters"
    if not keep.any():
        raise ValueError(f"{text.path}: no column is left, as {what}.")
    return np.flatnonzero(keep)


def rows_named(names, title):
    """Return rows with this name, else with this name before a slash, else beginning with it."""
    rules = (
        lambda name: name == title,
        lambda name: name.partition("/")[0] == title,
        lambda name: name.startswith(title),
    )
    matches = ([k for k, name in enumerate(names) if rule(name)] for rule in rules)
    return next(filter(None, matches), [])


def _focus_row(text, focus):
    """Return the row of the focus, the first one if several have the same name."""
    rows = rows_named(text.names, focus) if focus else []
    if not rows:
        raise ValueError(f"{text.path}: no sequence's title begins with focus={focus!r:.60}.")
    if len({text.names[k] for k in rows}) > 1:
        several = ", ".join(text.names[k] for k in rows[:3])
        raise ValueError(
            f"{text.path}: focus={focus!r:.60} fits {len(rows)} sequences ({several:.120}, ...); "
            "give the whole title of one."
        )
    return rows[0]


def _encoded(rows, columns, table):
    """Return states of rows within the alphabet, a mask of these, and counts of other letters."""
    encoded, valid, outside = [], [], np.zeros(256, int)
    for block in row_blocks(rows):
        letters = rows[block][:, columns]
        states = table[letters]
        strange = states == _OUTSIDE
        valid.append(~strange.any(axis=1))
        encoded.append(states[valid[-1]])
        outside += np.bincount(letters[strange], minlength=256)
    return np.concatenate(encoded), np.concatenate(valid), outside


def _codes(X):
    """Return labels as codes from 0 to 255; all negative labels have one code."""
    X = real_array("X", X)
    if X.dtype.kind not in "iub":
        raise TypeError(f"X must be an array of integer labels, got dtype {X.dtype}.")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(
            f"X must have shape (n_rows, n_groups), with rows and columns, got {X.shape}."
        )
    if X.dtype.kind == "i" and X.max() < 255:
        return np.maximum(X, -1).astype(np.int16) + 1
    # Labels are only compared within columns, so that each column can have its own codes.
    codes = [
        np.unique(np.maximum(column, -1), return_inverse=True)[1] for column in X.T.astype(int)
    ]
    codes = np.stack(codes, 1)
    if codes.max() > 255:
        raise ValueError("X must have at most 256 different labels in a column, got more.")
    return codes
