"""Fully visible Boltzmann machines with any unit prior, and the base class of all machines."""

from dataclasses import dataclass

import numpy as np
import scipy

from fastmf._common.arguments import number, refusing_overflow
from fastmf._common.rows import is_sparse
from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models._couplings import (
    check_states,
    checked_couplings,
    has_forbidden,
    pair_sums,
    with_entries,
)
from fastmf.models._io import Model
from fastmf.priors._groups import column_is_group, column_sizes, has_groups
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._scaling import at_temperature
from fastmf.priors.concatenated import concatenate

# Maximum number of units for which solvers of dense matrices make sparse couplings dense.
MAX_DENSE_UNITS = 4096


class Machine(Model):
    """Common parts of RBMs, DBMs and fully visible machines."""

    @refusing_overflow
    def at_temperature(self, temperature):
        """Divide couplings, fields, precisions and log-weights by a temperature.

        The distribution becomes p^(1 / T), normalised; multiplicities of `Binomial` units stay.

        Parameters
        ----------
        temperature : float
            Above 0.

        Returns
        -------
        RBM, DBM or BoltzmannMachine

        Raises
        ------
        TypeError, FloatingPointError
            For spike-and-slab units, users' priors (p^(1 / T) is of another family), or overflow.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> pair = mf.BoltzmannMachine([[0.0, 1.0], [1.0, 0.0]], mf.Ising([0.0, 3.0]))
        >>> hot = pair.at_temperature(2.0)
        >>> hot.couplings[0, 1], hot.prior.field
        (np.float64(0.5), array([0. , 1.5]))
        """
        temperature = number("temperature", temperature, np.finfo(np.float32).tiny, np.inf)

        def divided(x):
            if is_unit_prior(x):
                return at_temperature(x, temperature)
            if isinstance(x, tuple):
                return tuple(map(divided, x))
            return with_entries(x, lambda values: values / values.dtype.type(temperature))

        return self.rebuilt(**{name: divided(x) for name, x in self.parameters().items()})


@dataclass(frozen=True, eq=False, repr=False)
class BoltzmannMachine(Machine):
    """One layer of units, all coupled: p(x) proportional to exp(x'Jx / 2) prior(x).

    Parameters
    ----------
    couplings : array or SciPy sparse matrix of shape (n_units, n_units)
        Symmetric, with zero diagonal; every pair is counted once in the exponent x'Jx / 2. For
        categorical units (n_states, n_states), or (n_groups, q, n_groups, q), with zeros within a
        group; -inf forbids a pair of states. Sparse couplings are stored as a
        `scipy.sparse.csr_array` with sorted indices; entries that are not stored are 0.
    prior : unit prior
        Prior of the units (unnormalised, see `fastmf.priors`).

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
        If the couplings are not finite (or -inf for states), square, symmetric and zero on the
        diagonal, or the prior has another number of units.
    TypeError
        If the prior lacks the methods of a unit prior.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.BoltzmannMachine(np.array([[0.0, 1.0], [1.0, 0.0]]), mf.Ising(np.zeros(2)))
    >>> model.energy(np.array([[1.0, 1.0], [1.0, -1.0]]))
    array([-1.,  1.])

    A chain of a million spins:

    >>> from scipy import sparse
    >>> n = 10**6
    >>> chain = sparse.diags_array([0.5, 0.5], offsets=[-1, 1], shape=(n, n))
    >>> mf.BoltzmannMachine(chain, mf.Ising(np.zeros(n)))
    BoltzmannMachine(1000000 Ising, 999999 sparse couplings, float64)
    """

    couplings: np.ndarray
    prior: tuple

    def __post_init__(self):
        couplings = checked_couplings(self.couplings)
        object.__setattr__(self, "couplings", couplings)
        prior = _checks.unit_prior("prior", self.prior, couplings.shape[0], couplings.dtype)
        object.__setattr__(self, "prior", prior)
        if has_groups(prior):
            check_states(couplings, column_sizes(prior), column_is_group(prior))
        elif has_forbidden(couplings):
            raise ValueError("couplings must be finite, got NaN or infinity.")

    @property
    def n_units(self):
        """Number of units."""
        return self.couplings.shape[0]

    @computed_once
    def layers(self):
        """The priors, (prior,)."""
        return (self.prior,)

    @computed_once
    def dtype(self):
        """Floating type of all parameters."""
        return self.couplings.dtype

    def __repr__(self):
        parts = [f"{self.n_units} {type(self.prior).__name__}", f"{self.dtype}"]
        if is_sparse(self.couplings):
            parts.insert(1, f"{self.couplings.nnz // 2} sparse couplings")
        return f"BoltzmannMachine({', '.join(parts)})"

    @refusing_overflow
    def energy(self, x):
        """Compute the energy -x'Jx / 2 - log prior(x); p is proportional to exp(-energy).

        Parameters
        ----------
        x : array of shape (..., n_units)
            Or labels of categorical units, (..., n_groups).

        Returns
        -------
        array of shape (...)
            +inf outside the support, and for forbidden pairs of states.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For units of wrong shapes or types, and overflow.
        """
        x = _checks.states_of("x", self.prior, x)
        return -pair_sums(self.couplings, x) - _checks.log_prob("prior", self.prior, x)


def machine_of_layers(weights, layers):
    """Make a BoltzmannMachine of two layers, with sparse couplings in double precision."""
    weights = scipy.sparse.csr_array(weights.astype(np.float64))
    couplings = scipy.sparse.block_array([[None, weights], [weights.T, None]], format="csr")
    return BoltzmannMachine(couplings, concatenate(list(layers)))


def check_machine(model, solver=None):
    """Raise an error unless the model is an RBM, a DBM or a BoltzmannMachine.

    With the name of a `solver`, also raise if couplings are -inf, for which it has no moments.
    """
    if not (isinstance(model, Model) and hasattr(model, "couplings")):
        advice = ": of an estimator, pass model_" if hasattr(model, "fit") else ""
        raise TypeError(
            "model must be an RBM, a DBM or a BoltzmannMachine, got "
            f"{type(model).__name__}{advice}."
        )
    if solver and isinstance(model, BoltzmannMachine) and has_forbidden(model.couplings):
        raise ValueError(
            f"couplings of -inf forbid pairs of states, and {solver} has no moments for these; "
            "take belief_propagation or exact, or a large negative coupling, such as -30, in "
            "their place."
        )


def dense_machine(name, model):
    """Return the model with dense, finite couplings, for a solver that does not support others."""
    check_machine(model, name)
    if not is_sparse(model.couplings):
        return model
    if model.n_units > MAX_DENSE_UNITS:
        raise ValueError(
            f"{name} takes sparse couplings of at most {MAX_DENSE_UNITS} units, got "
            f"{model.n_units}: it makes them dense. Use tap or belief_propagation."
        )
    return model.rebuilt(couplings=model.couplings.toarray(), prior=model.prior)
