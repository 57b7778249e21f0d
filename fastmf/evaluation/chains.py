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
        units have one integer label each. This is the layout of ArviZ: `to_inference_data`, or
        ``arviz.from_dict({"posterior": draws})`` (ArviZ 1; before, ``from_dict(posterior=draws)``).

    Raises
    ------
    ValueError, TypeError
        If the units cannot be sampled, or an argument is invalid.

    See Also
    --------
    to_inference_data

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
        chains = _LayeredChains(model, n_threads)
    elif isinstance(model, BoltzmannMachine):
        check_machine(model, "gibbs_chains")
        chains = _VisibleChains(model, n_threads)
    else:
        raise TypeError(
            f"model must be an RBM, a DBM or a BoltzmannMachine, got {type(model).__name__}: of an "
            "estimator, pass model_."
        )
    chains.start(_starts(model, init, n_chains, rng), rng)
    chains.advance(n_warmup, rng)
    draws = {}
    for k in range(n_draws):
        chains.advance(thin, rng)
        for name, values in chains.values().items():
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


class _LayeredChains:
    """Chains of an RBM or DBM: all even layers, then all odd ones, are drawn at once."""

    def __init__(self, model, n_threads):
        self.model, self.pair, self.n_threads = model, model.bipartite(), n_threads

    def start(self, visible, rng):
        self.even, self.odd = even_layers(self.model, visible, rng), None

    def advance(self, n_sweeps, rng):
        self.even, self.odd = gibbs(self.pair, self.even, n_sweeps, rng, self.n_threads)

    def values(self):
        """States of each layer, by name."""
        names = ["visible", "hidden"]
        if self.model.deep:
            names = ["visible", *(f"hidden_{k}" for k in range(1, len(self.model.layers)))]
        labels = {}
        for side, states in enumerate((self.even, self.odd)):
            ends = np.cumsum(self.model.sizes[side::2])
            parts = np.split(states, ends[:-1], axis=1)
            layers = self.model.layers[side::2]
            for name, layer, part in zip(names[side::2], layers, parts, strict=True):
                labels[name] = as_labels(layer, part)
        return {name: labels[name] for name in names}


class _VisibleChains:
    """Chains of a fully visible machine: one unit or group after the other, or by colours."""

    def __init__(self, model, n_threads):
        self.model, self.n_threads = model, n_threads
        self.units = sampled_units(model)

    def start(self, visible, rng):
        self.states = visible.astype(self.model.dtype)

    def advance(self, n_sweeps, rng):
        self.states = self.units.sample(self.states, n_sweeps, rng, self.n_threads)

    def values(self):
        """States of the units, by name."""
        return {"visible": as_labels(self.model.prior, self.states)}
