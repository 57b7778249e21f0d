"""Posterior means of the visible units given noisy observations of them.

examples:
  fastmf denoise model.npz noisy.npy --flip-probability 0.1 --output restored.npy
      binary data whose entries were flipped with probability 0.1
  fastmf denoise model.npz noisy.npy --noise-variance 0.04 --output restored.csv
      real values with Gaussian noise of standard deviation 0.2
  fastmf denoise model.npz noisy.npy --flip-probability 0.3 --n-starts 10 --candidates train.npy
      strong noise: average over several mean-field solutions, which start at the training data
      nearest to the noisy data
"""

import numpy as np

from fastmf.cli import _options, _rows
from fastmf.priors._queries import two_values


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file written by fastmf train
    DATA
        noisy data, one sample per row
    -o, --output FILE = denoised.npy
        where to write: .npy, .npz or .csv
    --candidates FILE
        clean data to start from [rows in the model]
    --seed N = 0
        of random numbers
    --round
        write states, not means
    """
    from fastmf import GeneralizedRBM

    method = GeneralizedRBM.denoise
    _options.add_parameters(parser, method, ("n_starts",))
    noise = parser.add_argument_group("noise (one of them)")
    one = noise.add_mutually_exclusive_group(required=True)
    _options.add_parameters(one, method, ("flip_probability", "noise_variance"))
    _rows.add_data(parser)


def run(arguments):
    """Denoise and write the estimate."""
    from fastmf import GeneralizedRBM

    _rows.check_files(arguments)
    machine = GeneralizedRBM.load(arguments.model)
    table = _rows.read_table(arguments.data, machine, arguments)
    names = "flip_probability", "noise_variance", "n_starts", "random_state"
    options = _options.given(arguments, *names)
    if arguments.candidates is not None:
        candidates = _rows.read_table(arguments.candidates, machine, arguments, all_rows=True)
        options["candidates"] = candidates.X
    estimate = machine.denoise(table.X, **options)
    if arguments.round:
        estimate = _rounded(estimate, machine.visible_)
    _rows.write_rows(arguments.output, table._replace(X=estimate), machine, arguments)


def _rounded(estimate, prior):
    values = two_values(prior)
    if not values:
        raise ValueError(f"--round needs two-valued units, not {type(prior).__name__}.")
    low, high = values
    return np.where(estimate > (low + high) / 2, high, low).astype(estimate.dtype)
