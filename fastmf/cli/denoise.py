"""`fastmf denoise`: posterior means of clean data given noisy data."""

from functools import partial

import numpy as np

from fastmf.cli import _data, _machines, _options
from fastmf.priors._queries import two_values

EPILOG = """\
examples:
  fastmf denoise model.npz noisy.npy --flip-probability 0.1 --output restored.npy
      binary data of which each entry was flipped with probability 0.1
  fastmf denoise model.npz noisy.npy --noise-variance 0.04 --output restored.csv
      real values with Gaussian noise of standard deviation 0.2
  fastmf denoise model.npz noisy.npy --flip-probability 0.3 --n-starts 10 --candidates train.npy
      strong noise: average over several mean-field solutions, which start at the training data
      nearest to the noisy data
"""


def add(commands):
    """Add the command to a parser."""
    denoise = _options.command(
        commands,
        run,
        "denoise",
        help="restore noisy data by a trained machine",
        description="Posterior means of the visible units given noisy observations of them.",
        epilog=EPILOG,
    )
    denoise.add_argument("model", metavar="MODEL", help="file written by fastmf train")
    denoise.add_argument("data", metavar="DATA", help="noisy data, one sample per row")
    _options.add_output(denoise, "denoised.npy", "where to write: .npy, .npz or .csv")
    noise = denoise.add_argument_group("noise (one of them)")
    one = noise.add_mutually_exclusive_group(required=True)
    one.add_argument("--flip-probability", type=float, metavar="P", help="of an entry, binary data")
    one.add_argument(
        "--noise-variance", type=float, metavar="V", help="of Gaussian noise, real data"
    )
    method = denoise.add_argument_group("method")
    method.add_argument(
        "--n-starts", type=int, metavar="N", help="mean-field solutions to average over"
    )
    method.add_argument(
        "--candidates", metavar="FILE", help="clean data to start from [what the model has kept]"
    )
    method.add_argument(
        "--anneal",
        type=float,
        nargs="+",
        metavar="LEVEL",
        help="noise levels to go through first, in this order",
    )
    _options.add_seed(method)
    method.add_argument("--round", action="store_true", help="write states, not means")
    _data.add_options(denoise.add_argument_group("data"))
    denoise.add_argument(
        "--clean", metavar="FILE", help="clean data: print the score of the estimate"
    )


def run(arguments):
    """Denoise, write the estimate and print its score if clean data are given."""
    from fastmf import GeneralizedRBM
    from fastmf._jit.messages import announced

    inputs = arguments.model, arguments.data, arguments.clean
    _data.check_outputs(inputs, (arguments.output, _data.OUTPUT_SUFFIXES))
    machine = GeneralizedRBM.load(arguments.model)
    read = partial(_machines.read_table, machine=machine, arguments=arguments)
    Y = read(arguments.data)
    clean = None if arguments.clean is None else read(arguments.clean)
    if clean is not None and clean.shape != Y.shape:
        raise ValueError(
            f"{arguments.clean} has shape {clean.shape}, but {arguments.data} {Y.shape}."
        )
    # Options that are not given have the defaults of the estimator's method.
    given = {"n_starts": arguments.n_starts, "anneal": arguments.anneal}
    if arguments.candidates is not None:
        given["candidates"] = read(arguments.candidates, whole=True)
    with announced("denoising"):
        estimate = machine.denoise(
            Y,
            flip_probability=arguments.flip_probability,
            noise_variance=arguments.noise_variance,
            random_state=arguments.seed,
            **{name: value for name, value in given.items() if value is not None},
        )
    binary = arguments.noise_variance is None
    states = _rounded(estimate, machine.visible_) if binary or arguments.round else None
    if arguments.round:
        estimate = states
    _data.write(arguments.output, estimate, _machines.names_of(machine))
    print(f"{arguments.output}: {len(estimate)} rows of {estimate.shape[1]} values")
    if clean is not None:
        print(_score(clean, Y, states if binary else estimate, binary))


def _rounded(estimate, prior):
    values = two_values(prior)
    if not values:
        raise ValueError(f"--round needs two-valued units, not {type(prior).__name__}.")
    low, high = values
    return np.where(estimate > (low + high) / 2, high, low).astype(estimate.dtype)


def _score(clean, Y, estimate, binary):
    if binary:
        from fastmf.evaluation import matthews_correlation

        before, after = (matthews_correlation(clean, X).mean() for X in (Y, estimate))
        score = "Matthews correlation"
    else:
        before, after = (((X - clean) ** 2).mean() for X in (Y, estimate))
        score = "mean squared error"
    return f"{score}, mean of {len(clean)} rows: {after:.5g} (noisy {before:.5g})"
