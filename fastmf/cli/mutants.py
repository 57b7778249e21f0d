"""`fastmf mutants`: effects of all single mutations of a sequence."""

import numpy as np

from fastmf.cli import _data, _machines, _options
from fastmf.models._io import replacing

EPILOG = """\
examples:
  fastmf dca DHFR.a2m --focus DYR_ECOLI --model family.npz
  fastmf mutants family.npz DHFR.a2m --focus DYR_ECOLI --plot mutants.png
      all single mutations of E. coli's sequence
  fastmf mutants family.npz sequences.fasta --sequence second

The table has one line a mutation: site (from 1), column of the alignment, letter before, letter
after, the change of the log-probability in nats (above 0, the family's model prefers the mutant),
and the number of the residue in the sequence, from that in its title (NAME/24-45) or from 1.
"""


def add(commands):
    """Add the command to a parser."""
    mutants = _options.command(
        commands,
        run,
        "mutants",
        help="effects of the single mutations of a sequence",
        description="Changes of log-probability by all changes of a single letter of a sequence.",
        epilog=EPILOG,
    )
    mutants.add_argument("model", metavar="MODEL", help="machine written by fastmf dca --model")
    mutants.add_argument(
        "data", metavar="ALIGNMENT", help="sequences that are aligned as the machine's"
    )
    mutants.add_argument(
        "--sequence", metavar="NAME", help="which of them [that of --focus, or the first]"
    )
    _options.add_output(mutants, "mutants.csv", "table", metavar="CSV")
    mutants.add_argument("--plot", metavar="PNG", help="picture to write: effects as colours")
    _machines.add_rows(mutants)


def run(arguments):
    """Write the table and the picture, and print the best mutation."""
    from fastmf.datasets.alignments import residues_of

    _data.check_outputs(
        [arguments.model, arguments.data],
        (arguments.output, (".csv",)),
        (arguments.plot, _data.PICTURE_SUFFIXES),
    )
    machine = _machines.load(arguments.model, "mutants")
    X, alignment = _machines.read_rows(arguments.data, machine, arguments)
    alphabet = _machines.alphabet_of(machine, arguments)
    if alignment is None:
        raise ValueError(f"{arguments.data} is no alignment; give sequences.")
    names, columns = alignment.names, alignment.columns + 1
    row = _row(names, arguments.sequence or arguments.focus)
    x = X[row]
    if (x < 0).any():
        raise ValueError(
            f"{names[row]} lacks a letter of the alphabet {alphabet} at site "
            f"{np.argmax(x < 0) + 1}: `fastmf impute` it first."
        )
    effects = machine.mutants(x)
    residues = residues_of(arguments.data, names[row], alignment, arguments.inserts)
    residues = [residue[1:] for residue in residues]
    with replacing(arguments.output) as file:
        file.write(b"site,column,from,to,effect,residue\n")
        for i, state in enumerate(x):
            for b in np.flatnonzero(np.arange(len(alphabet)) != state):
                line = f"{i + 1},{columns[i]},{alphabet[state]},{alphabet[b]},{effects[i, b]:.6g}"
                file.write(f"{line},{residues[i]}\n".encode())
    mutated = np.where(np.arange(len(alphabet)) == x[:, None], -np.inf, effects)
    site, state = np.unravel_index(mutated.argmax(), mutated.shape)
    number = residues[site] or f"(column {columns[site]})"  # a gap has no number
    best = f"{alphabet[x[site]]}{number}{alphabet[state]} {mutated.max():+.3g} nats"
    print(f"{arguments.output}: {len(x) * (len(alphabet) - 1)} mutations of {names[row]}")
    print(f"largest change: {best}")
    if arguments.plot is not None:
        from fastmf.plotting import mutation_matrix

        _data.save_figure(arguments.plot, mutation_matrix(effects, alphabet, sequence=x))


def _row(names, wanted):
    """Number of the sequence of a name, or of the only one of that name to a slash, or begin."""
    if wanted is None:
        return 0
    found = [k for k, name in enumerate(names) if name == wanted]
    found = found or [k for k, name in enumerate(names) if name.partition("/")[0] == wanted]
    found = found or [k for k, name in enumerate(names) if name.startswith(wanted)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} sequences are named {wanted}, expected one.")
    return found[0]
