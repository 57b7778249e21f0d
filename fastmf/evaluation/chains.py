"""Several Gibbs chains from one model, for convergence diagnostics."""

import numpy as np

from fastmf._common.arguments import count, generator, refusing_overflow
from fastmf.inference.sampling.gibbs import even_layers, gibbs, sampled_units
from fastmf.models._checks import visible_rows
from fastmf.models.boltzmann import check_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import as_labels
from fastmf.priors._protocol import n_units, sample


@refusing_overflow
def gibbs_chains(
    model, n_chains=4, n_draws=1000, *, n_warmup=500, thin=1, init=None, n_threads=None, rng=None
):
    """Draw samples by several Gibbs chains, one array for each layer of units.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
        For example, `model_` of an estimator.
    n_chains, n_draws : int
    n_warmup : int, default 500
        Sweeps of each chain before its first draw.
    thin : int, default 1
        Sweeps from one draw to the next.
    init : array of shape (n_chains, n_visible), optional
        Initial visible states, for example rows of data; labels for categorical units. Default:
        draws of the uncoupled units.
    n_threads : int, optional
        Results do not depend on it.
    rng : numpy.random.Generator or int, optional

    Returns
    -------
    dict of str to array of shape (n_chains, n_draws, n_columns)
        "visible", and "hidden" for an RBM, "hidden_1", "hidden_2", ... for a DBM. Categorical units
        have one integer label each. ArviZ reads it by ``arviz.from_dict({"posterior": draws})``
        (before ArviZ 1 by ``from_dict(posterior=draws)``).

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        If the units cannot be sampled, an argument is invalid, or numbers overflow.

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
    check_machine(model, "gibbs_chains")
    prior, layered = model.layers[0], isinstance(model, Layered)
    if init is None:
        zeros = np.zeros((n_chains, n_units(prior)), model.dtype)
        visible = sample(prior, zeros, zeros, rng)
    else:
        visible = visible_rows("init", model, init)
        if visible.shape != (n_chains, n_units(prior)):
            raise ValueError(
                f"init must have {n_chains} rows, one a chain, got shape {visible.shape}."
            )
    units = model.bipartite() if layered else sampled_units(model)
    # States of the even layers, or of all units.
    states = even_layers(model, visible, rng) if layered else visible.astype(model.dtype)

    def advanced(states, n_sweeps):
        """Return all layers after some sweeps, as one tuple: even layers, and odd ones if any."""
        if layered:
            return gibbs(units, states, n_sweeps, rng, n_threads)
        return (units.sample(states, n_sweeps, rng, n_threads),)

    if n_warmup:
        states = advanced(states, n_warmup)[0]
    draws = []
    for _ in range(n_draws):
        layers = advanced(states, thin)
        states = layers[0]
        draws.append(_by_layer(model, layers))
    return {name: np.stack([draw[name] for draw in draws], axis=1) for name in draws[0]}


def _by_layer(model, states):
    """Return the states of each layer by name, given states of even layers, and of odd layers."""
    n_hidden = len(model.layers) - 1
    names = ["hidden"] if n_hidden == 1 else [f"hidden_{k + 1}" for k in range(n_hidden)]
    bounds = model.bounds if isinstance(model, Layered) else (slice(None),)
    units = np.hstack(states)
    labels = (as_labels(prior, units[:, k]) for prior, k in zip(model.layers, bounds, strict=True))
    return dict(zip(["visible", *names], labels, strict=True))
