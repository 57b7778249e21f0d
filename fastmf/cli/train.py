"""`fastmf train`: train a model on data."""

import sys
import time
from pathlib import Path

from fastmf.cli import _data, _machines, _options, dca
from fastmf.cli.info import log_likelihoods

EPILOG = """\
examples:
  fastmf train rbm train-images-idx3-ubyte.gz --scale 255 --threshold 0.5 --epochs 20
      binary MNIST, straight from its file
  fastmf train rbm faces.npy --visible truncated_gauss_bernoulli --learning-rate 1e-2 1e-5
      real values in [0, 1], many of them exactly 0; a learning rate that decreases by epoch
  fastmf train rbm table.csv --visible gaussian --hidden-units 8 --epochs 100
      columns of numbers in their own units of measurement, with empty cells
  fastmf train rbm votes.csv --hidden-units 10 --validation-share 0.2 --patience 10
      stop when the log-likelihood of validation rows no longer increases
  fastmf train rbm big.npy --checkpoint run.npz
      if it is interrupted, the same command resumes after the last whole epoch
  fastmf train rbm PF00014.fasta --gradient pcd --epochs 100
      an alignment of sequences: categorical units, similar sequences share their weight

Units "bernoulli" take values in [0, 1], as probabilities, "ising" units -1 and 1, others real
values, in any unit of measurement. Tables may have a line of names, and empty cells, which are
missing values. The log-likelihood shown is that of 100 rows of data, by mean field (TAP) or, of
small machines of real units, exact: in nats per unit, visible and hidden, and in nats a row.
"""


def add(commands):
    """Add the command to a parser."""
    train = commands.add_parser("train", help="train a machine on data")
    machines = train.add_subparsers(title="machines", metavar="MACHINE", required=True)
    rbm = _options.command(
        machines,
        run,
        "rbm",
        help="a restricted Boltzmann machine",
        description="Train a restricted Boltzmann machine by mean-field (TAP) solutions.",
        epilog=EPILOG,
    )
    rbm.add_argument(
        "data", metavar="DATA", help="file of numbers, one sample per row, or an alignment"
    )
    _options.add_output(rbm, "model.npz", "model to write")
    _options.add_quiet(rbm)
    _data.add_options(rbm.add_argument_group("data"))
    alignment = rbm.add_argument_group("alignment")
    dca.add_alphabet(alignment)
    dca.add_identity(alignment)
    dca.add_filters(alignment)
    _add_machine(rbm.add_argument_group("machine"))
    _add_gradient_ascent(rbm.add_argument_group("learning"))
    _add_control(rbm.add_argument_group("validation and resumption"))


def _add_machine(machine):
    """Options of the units."""
    machine.add_argument(
        "-n", "--hidden-units", type=int, default=100, metavar="N", help="hidden units [100]"
    )
    for layer in ("visible", "hidden"):
        other = ", of an alignment categorical" if layer == "visible" else ""
        machine.add_argument(
            f"--{layer}",
            default=None if other else "bernoulli",
            metavar="PRIOR",
            help=f"{layer} units: bernoulli, ising, categorical, gaussian, truncated_gaussian, "
            f"gauss_bernoulli, truncated_gauss_bernoulli [bernoulli{other}]",
        )


def _add_gradient_ascent(learning):
    """Options of the steps and of the gradient that they follow."""
    learning.add_argument("--epochs", type=int, default=20, metavar="N", help="[20]")
    learning.add_argument(
        "--batch-size", type=int, metavar="N", help="[20; by chains, or of real units, 100]"
    )
    learning.add_argument(
        "--learning-rate",
        type=float,
        nargs="+",
        default=[0.05],
        metavar=("RATE", "END"),
        help="a rate, or two: of the first epoch and of the last, geometric between [0.05]",
    )
    learning.add_argument("--momentum", type=float, default=0.5, metavar="R", help="[0.5]")
    learning.add_argument(
        "--l2",
        type=float,
        metavar="R",
        help="weight decay [0.005; by chains, or of real units, 0.001]",
    )
    learning.add_argument(
        "--gradient",
        choices=("auto", "tap", "mean_field", "adaptive_tap", "cd", "pcd", "exact"),
        default="auto",
        help="how averages over the model are computed: mean-field solutions of second, first or "
        "third order or of adaptive TAP, Gibbs chains from the data or persistent, or exactly; "
        "auto is tap, and for real units exact or pcd [auto]",
    )
    _options.add_seed(learning)


def _add_control(control):
    """Options of validation rows, early stopping and checkpoints."""
    control.add_argument(
        "--validation-share",
        type=float,
        metavar="R",
        help="fraction of the rows that are not learned from, whose log-likelihood is computed "
        "after each epoch",
    )
    control.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N epochs without an increase of the log-likelihood, and keep the best "
        "model",
    )
    control.add_argument(
        "--checkpoint", metavar="FILE", help="file to resume from, written after each epoch"
    )


def run(arguments):
    """Train, write the model and print a summary."""
    import numpy as np

    from fastmf import GeneralizedRBM

    inputs = arguments.data, arguments.checkpoint
    _data.check_outputs(inputs, (arguments.output, (".npz",)))
    if len(arguments.learning_rate) > 2:
        raise ValueError("--learning-rate takes one rate or two, of the first epoch and the last.")
    X, visible, alignment, names = _rows(arguments)
    validation, weights = None, None
    if arguments.validation_share is not None:
        X, validation = _split(X, arguments.validation_share, np.random.default_rng(arguments.seed))
    if alignment is not None:
        weights = dca.weights_of(X, arguments.identity)
        X = X.astype(arguments.dtype)
    rates = arguments.learning_rate
    machine = GeneralizedRBM(
        arguments.hidden_units,
        visible=visible,
        hidden=arguments.hidden,
        gradient=arguments.gradient,
        learning_rate=rates[0] if len(rates) == 1 else tuple(rates),
        momentum=arguments.momentum,
        l2=arguments.l2,
        n_epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        early_stopping=arguments.patience is not None,
        patience=5 if arguments.patience is None else arguments.patience,
        checkpoint=arguments.checkpoint,
        random_state=arguments.seed,
        verbose=int(not arguments.quiet),
    )
    start = time.perf_counter()
    try:
        machine.fit(X, validation_data=validation, sample_weight=weights)
    except KeyboardInterrupt:
        if arguments.checkpoint and Path(arguments.checkpoint).exists():
            print(
                f"fastmf: {arguments.checkpoint} holds the last whole epoch; the same command "
                "goes on from there",
                file=sys.stderr,
            )
        raise
    if alignment is not None:
        dca.keep_alignment(machine, alignment)
    _machines.keep_names(machine, names)
    machine.save(arguments.output)
    print(f"{arguments.output}: {_summary(machine)}, {time.perf_counter() - start:.1f} s")


def _rows(arguments):
    """Rows of the file, visible units, the alignment and names of columns, None if it has none."""
    from fastmf import Categorical
    from fastmf.datasets.alignments import is_alignment

    if not is_alignment(arguments.data):
        X, names = _data.read_with_names(arguments.data, arguments)
        return X, arguments.visible or "bernoulli", None, names
    if arguments.visible not in (None, "categorical"):
        raise ValueError(
            f"{arguments.data} is an alignment: an alignment has categorical units, not "
            f"{arguments.visible} ones; leave out --visible."
        )
    alignment = dca.read_alignment(arguments.data, arguments)
    # The fields are fitted to the columns.
    fields = [[0.0] * len(alignment.alphabet)] * alignment.X.shape[1]
    X = alignment.X[: _data.n_rows(arguments)]
    return X, Categorical(fields).refit(X), alignment, None


def _split(X, fraction, rng):
    n = round(fraction * len(X)) if 0 < fraction < 1 else 0
    if not 0 < n < len(X):
        raise ValueError(
            f"--validation-share {fraction:g} of {len(X)} rows leaves nothing on one side."
        )
    order = rng.permutation(len(X))
    return X[order[n:]], X[order[:n]]


def _summary(machine):
    n_visible, n_hidden = machine.weights_.shape
    text = f"{n_visible} visible and {n_hidden} hidden units, {machine.n_iter_} epochs"
    found = log_likelihoods(machine)
    if found:
        text += f", log-likelihood {found['log_likelihood']:.4f} nats per unit"
        if "validation_log_likelihood" in found:
            text += f" (validation {found['validation_log_likelihood']:.4f})"
        n_units = sum(machine.model_.sizes)
        text += f", {found['log_likelihood'] * n_units:.2f} nats a row"
        if "validation_log_likelihood" in found:
            text += f" (validation {found['validation_log_likelihood'] * n_units:.2f})"
    return text
