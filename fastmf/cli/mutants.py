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
    """Add the options to a parser.

    Options
    -------
    MODEL
        machine written by fastmf dca --model
    DATA
        alignment of sequences that are aligned as the machine's
    --sequence NAME
        which of them [that of --focus, or the first]
    -o, --output CSV = mutants.csv
        table
    --plot PNG
        picture to write: effects as colours
    """
    _rows.add_data(parser)
    _rows.add_alignment(parser, "focus", "inserts")


def run(arguments):
    """Write the table and the picture, and print the best mutation."""
    from fastmf.datasets.alignments import residues_of, rows_named

    _rows.check_files(arguments, (".csv",))
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
    letters, numbers = np.array(list(alphabet)), np.array([residue[1:] for residue in residues])
    sites, states = np.nonzero(np.arange(len(letters)) != x[:, None])
    table = {
        "site": sites + 1, "column": columns[sites], "from": letters[x[sites]],
        "to": letters[states], "effect": effects[sites, states], "residue": numbers[sites],
    }  # fmt: skip
    _rows.write_columns(arguments.output, table)
    best = {name: column[table["effect"].argmax()] for name, column in table.items()}
    place = best["residue"] or f"(column {best['column']})"
    print(f"{arguments.output}: {len(sites)} mutations of {names[row]}")
    print(f"largest change: {best['from']}{place}{best['to']} {best['effect']:+.3g} nats")
    if arguments.plot is not None:
        from fastmf.plotting import mutation_matrix

        _rows.write_figure(arguments.plot, mutation_matrix(effects, alphabet, sequence=x))
