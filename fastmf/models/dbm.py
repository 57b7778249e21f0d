"""Deep Boltzmann machine with any unit priors."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models._layered import Layered
from fastmf.models.rbm import RBM
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors.concatenated import concatenate


@dataclass(frozen=True, eq=False, repr=False)
class DBM(Layered):
    """A chain of layers, neighbours coupled: p proportional to exp(sum x_l' W_l x_{l+1}) priors.

    Parameters
    ----------
    weights : tuple of arrays
        The couplings of neighbouring layers, from the visible one up: (n_0, n_1), (n_1, n_2), ...
    layers : tuple of unit priors
        One more than `weights`; the first is of the visible units.

    Attributes
    ----------
    sizes : tuple of int
        Units of each layer.
    dtype : numpy dtype
        float32 if all weights are float32, float64 otherwise; the priors are converted.

    Raises
    ------
    ValueError
        If weights are not finite matrices, or sizes do not fit.
    TypeError
        If weights or layers are not tuples, or a prior lacks the methods of a unit prior.

    Notes
    -----
    Tramel et al. (2018), Eqs. 119 and 121 with the hidden layers l and l + 1 coupled by W^(l+1) (as
    printed W^(1) appears twice).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> layers = tuple(mf.Bernoulli(np.zeros(n)) for n in (4, 3, 2))
    >>> model = mf.DBM((np.zeros((4, 3)), np.zeros((3, 2))), layers)
    >>> [mean.shape for mean in mf.tap(model).mean]
    [(4,), (3,), (2,)]
    """

    weights: tuple
    layers: tuple

    def __post_init__(self):
        for name in ("weights", "layers"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or is_unit_prior(value):
                raise TypeError(f"{name} must be a tuple, got {type(value).__name__}.")
        weights = [_checks.matrix(f"weights[{k}]", w) for k, w in enumerate(self.weights)]
        if not weights or len(self.layers) != len(weights) + 1:
            raise ValueError(
                "a DBM has one layer more than matrices of weights, and at least one of these; got "
                f"{len(self.layers)} layers and {len(weights)} matrices."
            )
        for k, (lower, upper) in enumerate(pairwise(weights)):
            if lower.shape[1] != upper.shape[0]:
                raise ValueError(
                    f"weights[{k}] has {lower.shape[1]} columns and weights[{k + 1}] "
                    f"{upper.shape[0]} rows; both are units of layer {k + 1}."
                )
        if len({w.dtype for w in weights}) > 1:
            weights = [_checks.matrix("weights", w.astype(np.float64)) for w in weights]
        object.__setattr__(self, "weights", tuple(weights))
        layers = [
            _checks.unit_prior(f"layers[{k}]", prior, n, self.dtype)
            for k, (prior, n) in enumerate(zip(self.layers, self.sizes, strict=True))
        ]
        object.__setattr__(self, "layers", tuple(layers))

    @property
    def couplings(self):
        """The weights."""
        return self.weights

    def _named(self, couplings, layers):
        return {"weights": tuple(couplings), "layers": tuple(layers)}

    def __repr__(self):
        layers = zip(self.sizes, self.layers, strict=True)
        return f"DBM({' x '.join(f'{n} {type(p).__name__}' for n, p in layers)}, {self.dtype})"

    def energy(self, *states):
        """Energy: minus the couplings' terms and the log of the priors' weights.

        Parameters
        ----------
        *states : array of shape (..., n_units)
            One for each layer.

        Returns
        -------
        array of shape (...)
            +inf outside the support.
        """
        if len(states) != len(self.layers):
            raise ValueError(f"energy needs the states of {len(self.layers)} layers.")
        return self._energy(states)

    def bipartite(self):
        """The same machine as an RBM: its even layers are visible there, its odd ones hidden.

        Returns
        -------
        RBM
            With zeros between layers that are not neighbours. `tap` on the DBM does not multiply by
            these.
        """
        return self._bipartite

    @computed_once
    def _bipartite(self):
        numbers = [np.r_[units] for units in self.bounds]
        n_even = sum(self.sizes[::2])
        couplings = np.zeros((n_even, sum(self.sizes) - n_even), self.dtype)
        for k, w in enumerate(self.weights):
            even, odd, w = (k + 1, k, w.T) if k % 2 else (k, k + 1, w)
            couplings[np.ix_(numbers[even], numbers[odd] - n_even)] = w
        return RBM(couplings, *(concatenate(self.layers[side::2]) for side in (0, 1)))


def machine_of(couplings, layers):
    """An RBM of two layers, a DBM of more."""
    if len(couplings) == 1:
        return RBM(*couplings, *layers)
    return DBM(tuple(couplings), tuple(layers))
