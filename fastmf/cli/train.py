"""The command `train`: training of restricted Boltzmann machines."""

import inspect
import time
from pathlib import Path

import numpy as np

import fastmf
from fastmf.cli import _options, _rows
from fastmf.cli.dca import read_alignment, weights_of
from fastmf.datasets.alignments import is_alignment
from fastmf.evaluation import Checkpoint

# Parameters of the estimator, except those set by other options or not representable as text.
_NAMES = [
    name
    for name in inspect.signature(fastmf.GeneralizedRBM).parameters
    if name not in ("init", "callbacks", "early_stopping", "random_state", "verbose")
]


def add_train(parser):
    """Add the options of `train` that are made from signatures."""
    _rows.add_data(parser)
    _rows.add_alignment(parser, "identity", "outside", "inserts", "max_gaps")
    group = parser.add_argument_group("machine and learning")
    _options.add_parameters(group, fastmf.GeneralizedRBM, _NAMES)


def train(arguments):
    """Train a restricted Boltzmann machine on data, by mean-field (TAP) solutions.

    examples:
      fastmf train rbm train-images-idx3-ubyte.gz --scale 255 --threshold 0.5 --epochs 20
          binary MNIST, read from its original file
      fastmf train rbm faces.npy --visible truncated_gauss_bernoulli --learning-rate 1e-2 1e-5
          real values in [0, 1], many of them exactly 0; a learning rate that decreases by epoch
      fastmf train rbm table.csv --visible gaussian --hidden-units 8 --epochs 100
          columns of numbers on any scale, with empty cells
      fastmf train rbm survey.csv --id person --hidden-units 8 --epochs 100
          columns of words, counts and real values, whose units are inferred, and row names
      fastmf train rbm votes.csv --hidden-units 10 --validation-share 0.2 --early-stopping 10
          stop when the log-likelihood of validation rows no longer increases
      fastmf train rbm big.npy --checkpoint run.npz
          after an interruption, the same command resumes after the last complete epoch
      fastmf train rbm PF00014.fasta --gradient pcd --epochs 100
          an alignment of sequences: categorical units; similar sequences share their weight

    Options are explained in the documentation of `fastmf.GeneralizedRBM`. Units "bernoulli" take
    values in [0, 1], as probabilities, "ising" units -1 and 1, real-valued units numbers on any
    scale. Tables may have a line of names, and empty cells, which are missing values. The
    log-likelihood shown is the mean over 100 rows of data, by annealing or, for small machines,
    exact: in nats per unit, visible and hidden, and in nats per row.

    Options
    -------
    {rbm}
        machine: a restricted Boltzmann machine
    DATA
        file of numbers, one sample per row, or an alignment
    -o, --output FILE = model.npz
        model to write
    --seed N = 0
        seed of the random numbers
    --validation-share R
        fraction of the rows used for validation: their log-likelihood is computed after each
        epoch, and determines when to stop with --early-stopping
    --early-stopping N
        stop when the log-likelihood of validation rows has not risen for N epochs
    --checkpoint FILE
        file written after each epoch, from which the same command resumes
    -q, --quiet
        do not show progress
    """
    _options.check_outputs((arguments.data, arguments.checkpoint), (arguments.output, (".npz",)))
    options = _options.given(arguments, *_NAMES, "random_state", "early_stopping")
    table, alignment = _rows_of(arguments, options)
    X = table.X
    validation, weights = None, None
    if (fraction := arguments.validation_data) is not None:
        n = round(fraction * len(X)) if 0 < fraction < 1 else 0
        if not 0 < n < len(X):
            raise ValueError(
                f"--validation-share {fraction:g} of {len(X)} rows leaves nothing on one side."
            )
        order = np.random.default_rng(arguments.random_state).permutation(len(X))
        rows = X if isinstance(X, np.ndarray) else X.iloc
        X, validation = rows[order[n:]], rows[order[:n]]
    if alignment is not None:
        weights = weights_of(X, arguments.identity)
        X = X.astype(arguments.dtype or np.float32)
    if arguments.checkpoint:
        options["callbacks"] = [Checkpoint(arguments.checkpoint)]
    machine = fastmf.GeneralizedRBM(**options, verbose=int(not arguments.quiet))
    start = time.perf_counter()
    try:
        machine.fit(X, validation_data=validation, sample_weight=weights)
    except KeyboardInterrupt:
        if arguments.checkpoint and Path(arguments.checkpoint).exists():
            kept = f"{arguments.checkpoint} holds the last whole epoch"
            _options.say(f"{kept}; the same command resumes there")
        raise
    if alignment is not None:
        _rows.keep_alignment(machine, alignment)
    _rows.keep_names(machine, table.columns)
    machine.save(arguments.output)
    print(f"{arguments.output}: {_summary(machine)}, {time.perf_counter() - start:.1f} s")


def _rows_of(arguments, options):
    """Read `Rows` of the file, and the alignment or None."""
    if not is_alignment(arguments.data):
        inferred = options.get("visible", "auto") == "auto"
        read = _rows.read_frame if inferred else _rows.read_numbers
        return read(arguments.data, arguments), None
    if arguments.visible not in (None, "categorical"):
        raise ValueError(
            f"{arguments.data} is an alignment: an alignment has categorical units, not "
            f"{arguments.visible} ones; leave out --visible."
        )
    alignment = read_alignment(arguments.data, arguments)
    # The fields are fitted to the columns.
    fields = [[0.0] * len(alignment.alphabet)] * alignment.X.shape[1]
    X = alignment.X[: _rows.n_rows(arguments)]
    options["visible"] = fastmf.Categorical(fields).refit(X)
    return _rows.Rows(X, None, alignment.names), alignment


def _summary(machine):
    n_visible, n_hidden = machine.weights_.shape
    text = f"{n_visible} visible and {n_hidden} hidden units, {machine.n_iter_} epochs"
    names = "log_likelihood", "validation_log_likelihood"
    history = [machine.history_[name] for name in names if name in machine.history_]
    if history:
        # With early stopping, the model is the best rather than the last one.
        epoch = int(np.argmax(history[-1])) if machine.early_stopping else -1
        units = sum(machine.model_.sizes)
        for factor, form, what in ((1, ".4f", "nats per unit"), (units, ".2f", "nats a row")):
            value, *validation = (f"{values[epoch] * factor:{form}}" for values in history)
            text += ", log-likelihood " if factor == 1 else ", "
            text += f"{value} {what}" + "".join(f" (validation {x})" for x in validation)
    return text
