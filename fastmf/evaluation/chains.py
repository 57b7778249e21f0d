"""Chains of Gibbs samples, several from one model, to judge whether they have converged."""

import numpy as np

from fastmf._common.arguments import count, generator, rows
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.inference.sampling.visible import sampled_units
from fastmf.models import BoltzmannMachine
from fastmf.models._layered import Layered
from fastmf.models.boltzmann import check_machine
from fastmf.priors._groups import as_labels, as_states
from fastmf.priors._protocol import n_units, sample
from fastmf.priors._values import check_support


def gibbs_chains(
    model,
    n_chains=4,
    n_draws=1000,
    *,
    n_warmup=500,
    thin=1,
    init=None,
    n_threads=None,
    rng=None,
):
    """Draws of several Gibbs chains, one array for each layer of units.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
        Such as `model_` of an estimator.
    n_chains, n_draws : int
    n_warmup : int, default 500
        Sweeps of each chain before its first draw.
    thin : int, default 1
        Sweeps from one draw to the next.
    init : array of shape (n_chains, n_visible), optional
        Visible states from which the chains start, such as rows of data; labels of categorical
        units. Default: draws of the units without couplings.
    n_threads : int, optional
        Results do not depend on it.
    rng : numpy.random.Generator or int, optional

    Returns
    -------
    dict of str to array of shape (n_chains, n_draws, n_columns)
        "visible" and, of an RBM, "hidden"; of a DBM "hidden_1", "hidden_2" and so on. Categorical
        units have one integer label each. This is the layout of ArviZ:
        ``arviz.from_dict({"posterior": draws})`` (ArviZ 1; before, ``from_dict(posterior=draws)``).

    Raises
    ------
    ValueError, TypeError
        If the units cannot be sampled, or an argument is invalid.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)) / 2, mf.Ising(np.zeros(3)), mf.Ising(np.full(2, 0.3)))
    >>> draws = mf.evaluation.gibbs_chains(model, n_chains=50, n_draws=100, n_warmup=20, rng=0)
    >>> {name: values.shape for name, values in draws.items()}
    {'visible': (50, 100, 3), 'hidden': (50, 100, 2)}
    >>> bool(np.allclose(draws["visible"].mean((0, 1)), mf.exact(model).mean[0], atol=0.1))
    True
    """
    n_chains, n_draws = count("n_chains", n_chains), count("n_draws", n_draws)
    n_warmup, thin = count("n_warmup", n_warmup, 0), count("thin", thin)
    n_threads = count("n_threads", n_threads, optional=True)
    rng = generator(rng, optional=True)
    if isinstance(model, Layered):
        pair = model.bipartite()

        def move(states, n_sweeps):
            return gibbs(pair, states[0], n_sweeps, rng, n_threads)
    elif isinstance(model, BoltzmannMachine):
        check_machine(model, "gibbs_chains")
        units = sampled_units(model)

        def move(states, n_sweeps):
            return (units.sample(states[0], n_sweeps, rng, n_threads),)
    else:
        raise TypeError(
            f"model must be an RBM, a DBM or a BoltzmannMachine, got {type(model).__name__}: of an "
            "estimator, pass model_."
        )
    visible = _starts(model, init, n_chains, rng)
    layered = isinstance(model, Layered)
    states = (even_layers(model, visible, rng) if layered else visible.astype(model.dtype),)
    if n_warmup:
        states = move(states, n_warmup)
    draws = {}
    for k in range(n_draws):
        states = move(states, thin)
        for name, values in _by_layer(model, states).items():
            if k == 0:
                draws[name] = np.empty((n_chains, n_draws, values.shape[1]), values.dtype)
            draws[name][:, k] = values
    return draws


def _starts(model, init, n_chains, rng):
    """Visible states of all chains, checked."""
    prior = model.layers[0]
    if init is None:
        zeros = np.zeros((n_chains, n_units(prior)), model.dtype)
        return sample(prior, zeros, zeros, rng)
    init = rows("init", as_states("init", prior, init), n_units(prior), model.dtype)
    if init.shape != (n_chains, n_units(prior)):
        raise ValueError(f"init must have {n_chains} rows, one a chain, got shape {init.shape}.")
    check_support(prior, init, False, model.dtype, "init")
    return init


def _by_layer(model, states):
    """States of each layer by name, given the states of even and odd layers."""
    names = ["visible", "hidden"][: len(model.layers)]
    if len(model.layers) > 2:
        names = ["visible", *(f"hidden_{k}" for k in range(1, len(model.layers)))]
    labels = {}
    for side, x in enumerate(states):
        layers = model.layers[side::2]
        ends = np.cumsum([n_units(layer) for layer in layers])[:-1]
        for name, layer, part in zip(names[side::2], layers, np.split(x, ends, 1), strict=True):
            labels[name] = as_labels(layer, part)
    return {name: labels[name] for name in names}
