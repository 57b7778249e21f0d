"""Changes of log-probability by all changes of a single letter of a sequence.

examples:
  fastmf dca DHFR.a2m --focus DYR_ECOLI --model family.npz
  fastmf mutants family.npz DHFR.a2m --focus DYR_ECOLI --plot mutants.png
      all single mutations of E. coli's sequence
  fastmf mutants family.npz sequences.fasta --sequence second

The table has one line a mutation: site (from 1), column of the alignment, letter before, letter
after, the change of the log-probability in nats (above 0, the family's model prefers the mutant),
and the number of the residue in the sequence, from that in its title (NAME/24-45) or from 1.
"""

import numpy as np

from fastmf.cli import _options, _rows


def add(parser):
    """Add the options to a parser."""
    data = "sequences that are aligned as the machine's, such as one of fastmf dca --model"
    _rows.add_files(parser, "mutants.csv", data, (".csv",))
    parser.add_argument(
        "--sequence", metavar="NAME", help="which of them [that of --focus, or the first]"
    )
    _options.add_plot(parser, "effects as colours")
    _rows.add_data(parser)
    _rows.add_alignment(parser, "focus", "inserts")


def run(arguments):
    """Write the table and the picture, and print the best mutation."""
    from fastmf.datasets.alignments import residues_of, rows_named

    _rows.check_files(arguments)
    machine = _rows.load(arguments.model, "mutants")
    table, alignment = _rows.read_rows(arguments.data, machine, arguments)
    alphabet = _rows.alphabet_of(machine, arguments)
    if alignment is None:
        raise ValueError(f"{arguments.data} is no alignment; give sequences.")
    X, names, columns = table.X, alignment.names, alignment.columns + 1
    chosen = arguments.sequence or arguments.focus
    rows = [0] if chosen is None else rows_named(names, chosen)
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} sequences are named {chosen}, expected one.")
    (row,) = rows
    x = X[row]
    if (x < 0).any():
        raise ValueError(
            f"{names[row]} lacks a letter of the alphabet {alphabet} at site "
            f"{np.argmax(x < 0) + 1}: `fastmf impute` it first."
        )
    effects = machine.mutants(x)
    inserts = _options.given(arguments, "inserts")
    residues = residues_of(arguments.data, names[row], alignment, **inserts)
    numbers = [residue[1:] for residue in residues]
    lines = [
        (i + 1, columns[i], alphabet[x[i]], letter, f"{effects[i, b]:.6g}", numbers[i])
        for i in range(len(x))
        for b, letter in enumerate(alphabet)
        if b != x[i]
    ]
    head = "site", "column", "from", "to", "effect", "residue"
    _rows.write_table(arguments.output, [head, *lines])
    _, column, before, after, effect, number = max(lines, key=lambda line: float(line[4]))
    best = f"{before}{number or f'(column {column})'}{after} {float(effect):+.3g} nats"
    print(f"{arguments.output}: {len(lines)} mutations of {names[row]}")
    print(f"largest change: {best}")
    if arguments.plot is not None:
        from fastmf.plotting import mutation_matrix

        _rows.write_figure(arguments.plot, mutation_matrix(effects, alphabet, sequence=x))
