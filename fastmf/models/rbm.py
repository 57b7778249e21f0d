"""Restricted Boltzmann machine with any unit priors."""

from dataclasses import dataclass

import numpy as np

from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models._layered import Layered


@dataclass(frozen=True, eq=False, repr=False)
class RBM(Layered):
    """Two layers of units, coupled across: p(v, h) proportional to exp(v'Wh) prior(v) prior(h).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Couplings; column j is the receptive field of hidden unit j. For categorical visible units
        also (n_groups, q, n_hidden). Without columns (n_hidden = 0) the visible units are
        independent.
    visible, hidden : unit prior
        The uncoupled units of each layer (unnormalised, see `fastmf.priors`).

    Attributes
    ----------
    n_visible, n_hidden : int
    layers : tuple
        (visible, hidden).
    dtype : numpy dtype
        float32 if the weights are float32, float64 otherwise; the priors are converted.

    Raises
    ------
    ValueError
        If the weights are not a finite matrix with at least one row, or a prior has another number
        of units.
    TypeError
        If a prior lacks the methods of a unit prior.

    Notes
    -----
    Tramel et al. (2018), Eq. 9, with unnormalised priors.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    >>> model.energy(np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0])).item()
    -4.0
    >>> mf.tap(model).mean[1].shape
    (2,)
    """

    weights: np.ndarray
    visible: tuple
    hidden: tuple

    def __post_init__(self):
        weights = _checks.by_states(self.weights, 3)
        weights = _checks.matrix("weights", weights, may_lack_columns=True)
        object.__setattr__(self, "weights", weights)
        for name, n in zip(("visible", "hidden"), weights.shape, strict=True):
            prior = _checks.unit_prior(name, getattr(self, name), n, weights.dtype)
            object.__setattr__(self, name, prior)

    @property
    def n_visible(self):
        """Number of visible units."""
        return self.weights.shape[0]

    @property
    def n_hidden(self):
        """Number of hidden units."""
        return self.weights.shape[1]

    @property
    def transposed(self):
        """The weights, (n_hidden, n_visible), read-only."""
        transposed = np.array(self.weights.T, order="C")
        transposed.flags.writeable = False
        return transposed

    @computed_once
    def couplings(self):
        """The weights, as a tuple of one matrix."""
        return (self.weights,)

    @computed_once
    def layers(self):
        """The priors, (visible, hidden)."""
        return self.visible, self.hidden

    def _named(self, couplings, layers):
        return {"weights": couplings[0], "visible": layers[0], "hidden": layers[1]}

    def bipartite(self):
        """The RBM itself."""
        return self

    def _layer_names(self):
        return ["visible", "hidden"]

    def __repr__(self):
        visible, hidden = (type(layer).__name__ for layer in self.layers)
        return f"RBM({self.n_visible} {visible} x {self.n_hidden} {hidden}, {self.dtype})"

    def energy(self, visible, hidden):
        """Energy -v'Wh - log prior(v) - log prior(h), so that p is proportional to exp(-energy).

        Parameters
        ----------
        visible : array of shape (..., n_visible)
            Or one label for each group of categorical units, likewise in `hidden`.
        hidden : array of shape (..., n_hidden)

        Returns
        -------
        array of shape (...)
            +inf outside the support.
        """
        return self._energy((visible, hidden))
