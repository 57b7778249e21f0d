"""Fully visible Boltzmann machine with any unit prior."""

from dataclasses import dataclass

import numpy as np

from fastmf.models import _checks
from fastmf.models._gauge import in_gauge
from fastmf.models._io import Model
from fastmf.priors._domain import with_shifted_field
from fastmf.priors._groups import column_sizes, fields_of_groups, groups, has_groups, only_groups


@dataclass(frozen=True, eq=False, repr=False)
class BoltzmannMachine(Model):
    """One layer of units, all coupled: p(x) proportional to exp(x'Jx / 2) prior(x).

    Parameters
    ----------
    couplings : array of shape (n_units, n_units)
        Symmetric, with zero diagonal; every pair is counted once in the exponent x'Jx / 2. Of
        categorical units also (n_groups, q, n_groups, q), with zeros within a group.
    prior : unit prior
        The uncoupled units (unnormalised, see `fastmf.priors`).

    Attributes
    ----------
    n_units : int
    layers : tuple
        (prior,).
    dtype : numpy dtype
        float32 if the couplings are float32, float64 otherwise; the prior is converted.

    Raises
    ------
    ValueError
        If the couplings are not finite, square, symmetric and zero on the diagonal, or the prior
        has another number of units.
    TypeError
        If the prior lacks the methods of a unit prior.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.BoltzmannMachine(np.array([[0.0, 1.0], [1.0, 0.0]]), mf.Ising(np.zeros(2)))
    >>> model.energy(np.array([[1.0, 1.0], [1.0, -1.0]]))
    array([-1.,  1.])
    """

    couplings: np.ndarray
    prior: tuple

    def __post_init__(self):
        couplings = _checks.matrix("couplings", _checks.by_states(self.couplings, 4))
        if couplings.shape[0] != couplings.shape[1]:
            raise ValueError(f"couplings must be square, got shape {couplings.shape}.")
        rounding = 8 * np.finfo(couplings.dtype).eps * abs(couplings).max()
        asymmetry = abs(couplings - couplings.T).max()
        if asymmetry > rounding:
            raise ValueError(
                f"couplings must be symmetric, got entries that differ by {asymmetry:g}."
            )
        if couplings.diagonal().any():
            raise ValueError("couplings must have a zero diagonal, got non-zero entries there.")
        if asymmetry > 0:
            couplings = _checks.matrix("couplings", (couplings + couplings.T) / 2)
        object.__setattr__(self, "couplings", couplings)
        prior = _checks.unit_prior("prior", self.prior, len(couplings), couplings.dtype)
        object.__setattr__(self, "prior", prior)
        if has_groups(prior) and any(couplings[g, g].any() for g in groups(prior)):
            raise ValueError(
                "couplings must be zero between the states of one group, got non-zero entries."
            )

    @property
    def n_units(self):
        """Number of units."""
        return len(self.couplings)

    @property
    def layers(self):
        """The priors, (prior,)."""
        return (self.prior,)

    @property
    def dtype(self):
        """Floating type of all parameters."""
        return self.couplings.dtype

    def __repr__(self):
        return f"BoltzmannMachine({self.n_units} {type(self.prior).__name__}, {self.dtype})"

    def in_gauge(self, gauge="zero-sum", reference=0):
        """The same distribution with the parameters of categorical units in a gauge.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice"}, default "zero-sum"
            Couplings of two groups have mean zero over the states of either, and fields over those
            of a group; or they are zero at the state `reference` of each.
        reference : int, default 0

        Returns
        -------
        BoltzmannMachine
            Energies differ by a constant.

        Raises
        ------
        ValueError
            If not all units are categorical.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> couplings = np.zeros((2, 2, 2, 2))
        >>> couplings[0, 1, 1, 1] = couplings[1, 1, 0, 1] = 4.0
        >>> machine = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))
        >>> machine.in_gauge().couplings[:2, 2:].tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
        """
        _checks.gauge_and_reference(gauge, reference)
        if not only_groups(self.prior):
            raise ValueError("a gauge needs categorical units alone.")
        sizes = column_sizes(self.prior)
        field = np.concatenate(fields_of_groups(self.prior))
        if gauge == "lattice" and reference >= sizes.min():
            raise ValueError(f"reference must be a state of every group, got {reference}.")
        couplings, moved = in_gauge(self.couplings, field, sizes, gauge, reference)
        shifted = with_shifted_field(self.prior, moved - field)
        return BoltzmannMachine((couplings + couplings.T) / 2, shifted)

    def energy(self, x):
        """Energy -x'Jx / 2 - log prior(x), so that p is proportional to exp(-energy).

        Parameters
        ----------
        x : array of shape (..., n_units)
            Or labels of categorical units, (..., n_groups).

        Returns
        -------
        array of shape (...)
            +inf outside the support.
        """
        x = _checks.states_of("x", self.prior, x)
        pairs = ((x @ self.couplings) * x).sum(-1) / 2
        return -pairs - _checks.log_prob("prior", self.prior, x)
