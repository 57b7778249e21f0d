"""`fastmf dca`: direct couplings of the columns of an alignment."""

import sys
import time

import numpy as np

import fastmf
from fastmf.cli import _data, _options
from fastmf.models._io import replacing

SEPARATION = 5

EPILOG = """\
examples:
  fastmf dca PF00014.fasta --plot contacts.png
      predicted contacts of a protein family, as a table and as a picture
  fastmf dca DHFR.a2m --focus DYR_ECOLI --gaps missing --top 500
      columns of E. coli's sequence alone; gaps do not enter the model
  fastmf dca PF00014.fasta --model family.npz
      keep the machine: fastmf sample, score and mutants read it
  fastmf dca RF00162.fasta --alphabet rna --distances distances.npy --plot contacts.png
      compare with a structure: precision of the predictions, and true contacts in the picture

The table has one line a pair of columns, best first: their numbers i and j among the columns that
are kept and in the file, from 1, and the score: the Frobenius norm of their couplings in a Potts
model (maximum pseudo-likelihood, zero-sum gauge, without the gap state), less what these columns
have on average (APC). With --focus also its residues there, such as K12, numbered from the number
in its title (NAME/12-80) or 1.
"""


def add(commands):
    """Add the command to a parser."""
    dca = _options.command(
        commands,
        run,
        "dca",
        help="predict contacts from an alignment of sequences",
        description="Fit a Potts model to an alignment (DCA) and rank its pairs of columns.",
        epilog=EPILOG,
    )
    dca.add_argument(
        "alignment", metavar="ALIGNMENT", help="FASTA, A2M, A3M, Stockholm or Clustal file"
    )
    dca.add_argument(
        "-o", "--out", default="contacts.csv", metavar="CSV", help="table to write [contacts.csv]"
    )
    dca.add_argument("--plot", metavar="PNG", help="picture to write: a map of the best pairs")
    dca.add_argument(
        "--model", metavar="NPZ", help="file to write the machine to, for sample, score, mutants"
    )
    _options.add_quiet(dca, "progress")
    dca.add_argument(
        "--top", type=int, metavar="N",
        help=f"best pairs, at least {SEPARATION} columns apart, to write and draw [as many as "
        "columns]",
    )  # fmt: skip
    dca.add_argument(
        "--distances", metavar="FILE",
        help="matrix of distances of the columns that are kept (.npy, .npz, .csv); contacts are "
        "below 8",
    )  # fmt: skip
    add_alphabet(dca)
    add_filters(dca)
    add_focus(dca)
    dca.add_argument(
        "--gaps", choices=("state", "missing"), default="state",
        help="whether a gap is a state of its own or missing data [state]",
    )  # fmt: skip
    add_identity(dca)
    dca.add_argument(
        "--l2", type=float, default=0.02, metavar="R",
        help="ridge on couplings; plmc's lambda_e is R / 2 times the effective number [0.02]",
    )  # fmt: skip
    dca.add_argument(
        "--l2-field", type=float, metavar="R",
        help="ridge on fields, likewise plmc's lambda_h [that on couplings]",
    )  # fmt: skip


def add_alphabet(parser):
    """Add the option that names the letters of an alignment."""
    parser.add_argument(
        "--alphabet", metavar="A",
        help="of an alignment: protein, rna, dna, or its letters in the order of the states "
        "(--alphabet=-AB) [the one that fits]",
    )  # fmt: skip


def add_focus(parser):
    """Add the option that says which sequence the columns of an alignment are those of."""
    parser.add_argument(
        "--focus",
        metavar="NAME",
        help="keep the columns where this sequence has upper-case letters",
    )


def add_inserts(parser):
    """Add the option that says whether columns of lower-case letters are kept."""
    parser.add_argument(
        "--inserts", choices=("drop", "keep"), default="drop",
        help="whether columns of lower-case letters and dots are left out [drop]",
    )  # fmt: skip


def add_filters(parser):
    """Add the options that say which sequences and columns of an alignment are kept."""
    parser.add_argument(
        "--outside", choices=("drop", "gap", "missing"), default="drop",
        help="whether sequences with letters outside the alphabet, such as X, are left out, or "
        "these letters are gaps or missing data [drop]",
    )  # fmt: skip
    add_inserts(parser)
    parser.add_argument(
        "--max-gaps", type=float, nargs="+", default=[1.0], metavar=("ROWS", "COLUMNS"),
        help="leave out sequences with a larger fraction of gaps, and then columns [1 1]",
    )  # fmt: skip


def read_alignment(name, arguments, focus=None, gaps="state"):
    """The result of `fastmf.datasets.load_alignment`; what it lacks is said."""
    from fastmf.datasets.alignments import load_and_compare

    max_gaps = arguments.max_gaps
    alignment, left_out = load_and_compare(
        name, arguments.alphabet, focus, gaps, inserts=arguments.inserts,
        outside=arguments.outside, max_gaps=max_gaps[0] if len(max_gaps) == 1 else max_gaps,
    )  # fmt: skip
    n_rows = left_out.n_rows + left_out.n_gappy_rows + len(alignment.rows)
    if left_out.n_rows:
        _say(
            f"{left_out.n_rows} of {n_rows} sequences left out: letters outside the alphabet "
            f"{alignment.alphabet} ({' '.join(left_out.letters[:5])})"
        )
    if left_out.n_gappy_rows:
        _say(f"{left_out.n_gappy_rows} of {n_rows} sequences left out: more than "
             f"{max_gaps[0]:.0%} gaps")  # fmt: skip
    if left_out.n_gappy_columns:
        n_columns = left_out.n_gappy_columns + len(alignment.columns)
        _say(f"{left_out.n_gappy_columns} of {n_columns} columns left out: more than "
             f"{max_gaps[1]:.0%} gaps")  # fmt: skip
    return alignment


def weights_of(X, identity):
    """Weights of the rows of an alignment; what makes them tell little is said."""
    from fastmf import datasets

    weights = datasets.sequence_weights(X, identity)
    constant = (np.where(X < 0, np.iinfo(X.dtype).max, X).min(0) >= X.max(0)).sum()
    n_columns = X.shape[1]
    columns = f"{constant} of {n_columns} columns hold one letter only"
    effective = f"the effective number of sequences is {weights.sum():.1f}"
    if constant > n_columns - 2:
        what = f"{columns}, and {effective}: couplings cannot be told"
    elif weights.sum() < 2:
        what = f"{effective} (--identity {identity:g}): couplings can hardly be told"
    elif constant:
        what = f"{columns}: couplings of these cannot be told"
    else:
        return weights
    _say(f"warning: {what}")
    return weights


def _say(text):
    print(f"fastmf: {text}", file=sys.stderr)


def add_identity(parser):
    """Add the option that says which sequences of an alignment are similar."""
    parser.add_argument(
        "--identity", type=float, default=0.8, metavar="R",
        help="sequences of an alignment that agree in this fraction of columns share their weight "
        "[0.8]",
    )  # fmt: skip


def run(arguments):
    """Fit, write the table and the picture, and print a summary."""
    _data.check_outputs(
        [arguments.alignment, arguments.distances],
        (arguments.out, (".csv",)),
        (arguments.plot, _data.PICTURE_SUFFIXES),
        (arguments.model, (".npz",)),
    )
    if arguments.top is not None and arguments.top < 1:
        raise ValueError(f"--top must be at least 1, got {arguments.top}.")
    alignment = read_alignment(arguments.alignment, arguments, arguments.focus, arguments.gaps)
    n_columns = alignment.X.shape[1]
    if n_columns <= SEPARATION:
        raise ValueError(
            f"{arguments.alignment} has {n_columns} columns: none are {SEPARATION} apart."
        )
    distances = _distances(arguments.distances, n_columns)
    start = time.perf_counter()
    weights = weights_of(alignment.X, arguments.identity)
    machine = fastmf.PottsMachine(
        n_states=len(alignment.alphabet),
        l2=arguments.l2,
        l2_field=arguments.l2 if arguments.l2_field is None else arguments.l2_field,
        verbose=not arguments.quiet,
    )
    machine.fit(alignment.X, sample_weight=weights)
    scores = machine.contact_scores(ignore=gap_state(alignment.alphabet))
    seconds = time.perf_counter() - start
    n_pairs = _write(arguments, scores, alignment)
    print(
        f"{arguments.out}: {n_pairs} best pairs of {n_columns} columns, from {len(weights)} "
        f"sequences ({weights.sum():.1f} effective), {seconds:.1f} s"
    )
    curve = None if distances is None else _precision(scores, distances)
    if curve is not None:
        n = min(n_pairs, len(curve))
        print(f"precision of the best {n} pairs: {curve[n - 1]:.3f}")
    if arguments.model is not None:
        keep_alignment(machine, alignment)
        machine.save(arguments.model)
    if arguments.plot is not None:
        _draw(arguments.plot, scores, distances, n_pairs, curve)


def keep_alignment(machine, alignment):
    """Tell a fitted machine the letters of its states and the columns that it learned from."""
    machine.alphabet_ = alignment.alphabet
    machine.columns_ = alignment.columns


def gap_state(alphabet):
    """The state that stands for a gap, None if there is none."""
    return next((state for state, letter in enumerate(alphabet) if letter in "-."), None)


def _distances(name, n_columns):
    """The matrix of distances in a file, None without one."""
    if name is None:
        return None
    from fastmf.datasets import read_array

    distances = read_array(name)
    if distances.shape != (n_columns, n_columns):
        raise ValueError(
            f"{name} has shape {distances.shape}, expected ({n_columns}, {n_columns}): the columns "
            "of the alignment that are kept."
        )
    return distances


def _write(arguments, scores, alignment):
    """Write the best pairs, and return how many these are."""
    from fastmf.datasets.alignments import residues_of
    from fastmf.evaluation import ranked_pairs

    n_top, head, residues = arguments.top or len(scores), "i,j,column_i,column_j,score", None
    if arguments.focus is not None:
        head += ",residue_i,residue_j"
        residues = residues_of(arguments.alignment, arguments.focus, alignment, arguments.inserts)
    column = alignment.columns + 1
    first, second = (indices[:n_top] for indices in ranked_pairs(scores, SEPARATION))
    with replacing(arguments.out) as file:
        file.write(f"{head}\n".encode("ascii"))
        for i, j in zip(first.tolist(), second.tolist(), strict=True):
            line = f"{i + 1},{j + 1},{column[i]},{column[j]},{scores[i, j]:.6g}"
            line += f",{residues[i]},{residues[j]}" if residues else ""
            file.write(f"{line}\n".encode("ascii"))
    return len(first)


def _precision(scores, distances):
    """Precision of the best 1, 2, ... pairs, up to five for each column."""
    from fastmf.evaluation import contact_precision, ranked_pairs

    n_known = len(ranked_pairs(scores, SEPARATION, ~np.isnan(distances))[0])
    if n_known == 0:
        return None
    n_top = np.arange(1, min(n_known, 5 * len(scores)) + 1)
    return contact_precision(scores, distances, n_top, SEPARATION)


def _draw(path, scores, distances, n_top, curve):
    from fastmf.plotting import contact_map, precision_curve
    from fastmf.plotting._axes import axes

    ax = axes(None, (5.5, 5.5) if curve is None else (11, 5))
    figure = ax.figure
    if curve is not None:
        figure.clear()
        ax, right = figure.subplots(1, 2)
        precision_curve({"pseudo-likelihood": curve}, n_columns=len(scores), ax=right)
    contact_map(scores, distances, n_top=n_top, separation=SEPARATION, ax=ax)
    _data.save_figure(path, figure)
