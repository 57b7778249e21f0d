"""The command `dca`: prediction of contacts in proteins and RNA from alignments."""

import time

import numpy as np

import fastmf
from fastmf._common.arguments import count
from fastmf.cli import _options, _rows
from fastmf.datasets.alignments import gap_state, load_and_compare, residues_of
from fastmf.evaluation import contact_precision, ranked_pairs

_READING = ("focus", "gaps", "outside", "inserts", "max_gaps")


def add_dca(parser):
    """Add the options of `dca` that are made from signatures."""
    _rows.add_alignment(parser, *_READING, "identity")
    group = parser.add_argument_group("penalties, with l2_field = l2 by default")
    _options.add_parameters(group, fastmf.PottsMachine, ("l2", "l2_field"), l2=0.02, l2_field=None)


def dca(arguments):
    """Fit a Potts model to an alignment (DCA) and rank its pairs of columns.

    examples:
      fastmf dca PF00014.fasta --plot contacts.png
          predicted contacts of a protein family, as a table and as a picture
      fastmf dca DHFR.a2m --focus DYR_ECOLI --gaps missing --top 500
          columns of E. coli's sequence alone; gaps do not enter the model
      fastmf dca PF00014.fasta --model family.npz
          keep the machine: fastmf sample, score and mutants read it
      fastmf dca RF00162.fasta --alphabet rna --distances distances.npy --plot contacts.png
          compare with a structure: precision of the predictions, and true contacts in the picture

    The table has one line for each pair of columns, best first: their numbers i and j among the
    columns that are kept and in the file, from 1, and the score: the Frobenius norm of their
    couplings in a Potts model (maximum pseudo-likelihood, zero-sum gauge, without the gap state),
    with average product correction (APC). With --focus there are also its residues, such as K12,
    numbered from the number in its title (NAME/12-80) or 1.

    Options
    -------
    ALIGNMENT
        FASTA, A2M, A3M, Stockholm or Clustal file
    -o, --out CSV = contacts.csv
        table to write
    --plot PNG
        picture to write: a map of the best pairs
    --model NPZ
        file to write the machine to, for sample, score, mutants
    --top N
        best pairs to write and draw [the number of columns]
    --separation N = 5
        smallest distance of two columns of a pair in the sequence
    --distances FILE
        matrix of distances of the columns that are kept (.npy, .npz, .csv); contacts are below 8
    -q, --quiet
        do not show progress
    """
    _options.check_outputs(
        [arguments.alignment, arguments.distances],
        (arguments.out, (".csv",)),
        (arguments.plot, _options.PICTURES),
        (arguments.model, (".npz",)),
    )
    count("n_top", arguments.n_top, optional=True)
    alignment = read_alignment(arguments.alignment, arguments)
    n_columns, separation = alignment.X.shape[1], arguments.separation
    if n_columns <= separation:
        raise ValueError(
            f"{arguments.alignment} has {n_columns} columns: none are {separation} apart."
        )
    distances = None
    if arguments.distances is not None:
        distances = fastmf.datasets.read_array(arguments.distances)
        if distances.shape != (n_columns, n_columns):
            raise ValueError(
                f"{arguments.distances} has shape {distances.shape}, expected ({n_columns}, "
                f"{n_columns}): the columns of the alignment that are kept."
            )
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
    if distances is not None:
        allowed = ~np.isnan(distances)
        n = min(n_pairs, len(ranked_pairs(scores, separation, allowed)[0]))
        if n:
            precision = contact_precision(scores, distances, n, separation)
            print(f"precision of the best {n} pairs: {precision:.3f}")
    if arguments.model is not None:
        _rows.keep_alignment(machine, alignment)
        machine.save(arguments.model)
    if arguments.plot is not None:
        options = {"n_top": n_pairs, "separation": separation}
        _rows.write_figure(
            arguments.plot, fastmf.plotting.contact_map(scores, distances, **options)
        )


def read_alignment(name, arguments):
    """Read an alignment; report the rows and columns that are left out."""
    options = _options.given(arguments, *_READING)
    alignment, left_out = load_and_compare(name, arguments.alphabet, **options)
    for text in left_out:
        _options.say(text)
    return alignment


def weights_of(X, identity):
    """Compute the weights of the rows of an alignment; warn if it has too little information."""
    weights = fastmf.datasets.sequence_weights(X, identity)
    constant = (np.where(X < 0, np.iinfo(X.dtype).max, X).min(0) >= X.max(0)).sum()
    n_columns = X.shape[1]
    columns = f"{constant} of {n_columns} columns hold one letter only"
    effective = f"the effective number of sequences is {weights.sum():.1f}"
    if constant > n_columns - 2:
        _options.say(f"warning: {columns}, and {effective}: couplings cannot be told")
    elif weights.sum() < 2:
        _options.say(
            f"warning: {effective} (--identity {identity:g}): couplings can hardly be told"
        )
    elif constant:
        _options.say(f"warning: {columns}: couplings of these cannot be told")
    return weights


def _write(arguments, scores, alignment):
    """Write the best pairs, and return their number."""
    n_top = arguments.n_top or len(scores)
    i, j = (side[:n_top] for side in ranked_pairs(scores, arguments.separation))
    columns = alignment.columns + 1
    table = {"i": i + 1, "j": j + 1, "column_i": columns[i], "column_j": columns[j]}
    table["score"] = scores[i, j]
    if arguments.focus is not None:
        inserts = _options.given(arguments, "inserts")
        residues = residues_of(arguments.alignment, arguments.focus, alignment, **inserts)
        table |= {f"residue_{name}": np.array(residues)[k] for name, k in (("i", i), ("j", j))}
    _rows.write_columns(arguments.out, table)
    return len(i)
