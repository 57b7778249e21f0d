"""Layered machines, RBMs and DBMs, and exact integration over their Gaussian units.

An RBM has two layers. Solvers and learning read `couplings` and `layers`, and make a machine of the
same kind by `rebuilt`, whatever the names of the fields of its class.

Given all other units h, Gaussian units x with fields f are jointly Gaussian. With the precision
matrix L = diag(p) - (couplings among x) and the couplings C between x and h,

    p(h) ~ prior(h) exp(h' J h / 2 + h' C' L^-1 f) exp(other couplings),     J = C' L^-1 C

is a fully visible machine of the other units, without units of unbounded variance, which mean-field
iterations handle badly. The diagonal of J changes the precisions of its units. All moments follow:

    E x = L^-1 (f + C E h),    Cov(x, h) = L^-1 C Cov(h),    Cov x = L^-1 + L^-1 C Cov(h) C' L^-1

and log Z is the log-partition of this machine plus f' L^-1 f / 2 - log det(L / 2 pi) / 2. Without
other units everything is exact. Cov(h) has the variances on its diagonal, and elsewhere the
derivative of the approximate log Z by J: J v v', and in third order also J^2 k k' / 2.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastmf._common.arguments import refusing_overflow
from fastmf._common.linalg import LinAlgError, cholesky
from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models.boltzmann import BoltzmannMachine, Machine
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._queries import fields_of, gaussian_units, precisions, unbounded, without_units
from fastmf.priors.concatenated import concatenate


class Layered(Machine):
    """Common parts of RBMs and DBMs.

    Attributes
    ----------
    couplings : tuple of arrays
        Couplings of neighbouring layers, from the visible one up: (n_0, n_1), (n_1, n_2), ...
    layers : tuple of unit priors
        One more than couplings; the first is of the visible units.
    """

    @computed_once
    def sizes(self):
        """Units of each layer."""
        return (self.couplings[0].shape[0], *(w.shape[1] for w in self.couplings))

    @computed_once
    def bounds(self):
        """Slices of the layers in arrays of all units, even layers before odd ones."""
        bounds, n_even = places_on_sides(self.sizes), sum(self.sizes[::2])
        bounds[1::2] = [slice(n_even + odd.start, n_even + odd.stop) for odd in bounds[1::2]]
        return tuple(bounds)

    @computed_once
    def dtype(self):
        """Floating type of all parameters."""
        return self.couplings[0].dtype

    @computed_once
    def gaussian(self):
        """Mask of the Gaussian units, even layers before odd ones: bool array (n_units,)."""
        even_first = (*self.layers[::2], *self.layers[1::2])
        return np.concatenate([gaussian_units(layer) for layer in even_first])

    @computed_once
    def is_integrated(self):
        """Whether mean-field solvers integrate out Gaussian units: if other units are bounded."""
        alike = all((unbounded(layer) == gaussian_units(layer)).all() for layer in self.layers)
        return bool(self.gaussian.any()) and alike and not any(map(has_groups, self.layers))

    @property
    def deep(self):
        """Whether there is more than one hidden layer: then sums given data are not exact."""
        return len(self.couplings) > 1

    def parameters(self):
        """Couplings and layers, by these names."""
        return {"couplings": self.couplings, "layers": self.layers}

    def rebuilt(self, couplings, layers):
        """Make a machine of the same kind with these couplings and layers."""
        return type(self)(**self._named(couplings, layers))

    def moved(self, couplings, layers):
        """Make a machine with parameters that are known to be valid, without checks."""
        model = object.__new__(type(self))
        named = self._named(couplings, layers)
        model.__dict__.update(named | {"couplings": tuple(couplings), "layers": tuple(layers)})
        # The kinds of units do not change.
        for name in ("sizes", "bounds", "dtype", "gaussian", "is_integrated"):
            if name in self.__dict__:
                model.__dict__[name] = self.__dict__[name]
        return model

    def _named(self, couplings, layers):
        """Return the fields of the class by name."""
        raise NotImplementedError

    def bipartite(self):
        """Return the machine as an RBM, with even layers as visible and odd ones as hidden."""
        raise NotImplementedError

    @refusing_overflow
    def integrate_gaussians(self):
        """Integrate out the Gaussian units exactly, which leaves a machine of the other units.

        Mean-field iterations may not converge with unbounded variances, and errors grow with them:
        solutions of the resulting machine are more accurate, and exist for stronger couplings.

        Returns
        -------
        IntegratedMachine
            `machine`, a BoltzmannMachine, with the tilts `field` and `precision` of its units, the
            constant `log_partition` and a method `moments`, which restores the Gaussian units.

        Raises
        ------
        TypeError, FloatingPointError
            If there are categorical units, or numbers overflow.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> units = mf.Gaussian(np.zeros(3), np.ones(3)), mf.Bernoulli(np.zeros(1))
        >>> rest = mf.RBM(np.ones((3, 1)), *units).integrate_gaussians()
        >>> result = mf.tap(rest.machine, field=rest.field, precision=rest.precision)
        >>> visible, hidden = rest.moments(result.mean, result.var)[0]
        >>> np.allclose(visible, hidden)
        True
        """
        if any(map(has_groups, self.layers)):
            raise TypeError("integrate_gaussians: not available for machines of categorical units.")
        return self._integrated

    @computed_once
    def _integrated(self):
        return IntegratedMachine(self)

    def _layer_names(self):
        return [f"layer {k}" for k in range(len(self.layers))]

    @refusing_overflow
    def _energy(self, states):
        """Compute the energy, given states of each layer; +inf outside the support."""
        names = self._layer_names()
        states = list(map(_checks.states_of, names, self.layers, states))
        pairs = sum(
            ((lower @ w) * upper).sum(-1)
            for lower, w, upper in zip(states[:-1], self.couplings, states[1:], strict=True)
        )
        return -pairs - sum(map(_checks.log_prob, names, self.layers, states))


def check_layered(model):
    """Raise a TypeError unless the model is an RBM or a DBM."""
    if not isinstance(model, Layered):
        raise TypeError(f"model must be an RBM or a DBM, got {type(model).__name__}.")


class IntegratedMachine:
    """A layered machine without its Gaussian units: see `integrate_gaussians`.

    Parameters
    ----------
    model : RBM or DBM
    clamped : bool array of shape (n_units,), optional
        Clamped units, of which Gaussian ones are not integrated out. Even layers come first.
    precision : array of shape (n_units,), optional
        External precisions.

    Attributes
    ----------
    machine : BoltzmannMachine
        The other units of all layers, even layers before odd ones; None without any.
    field, precision : array of shape (n_rest,)
        External tilt of the units of `machine`, to be passed to a solver.
    log_partition : float
        Constant to be added to the log-partition of `machine`; inf if the Gaussian units
        have no proper distribution.
    gaussian, rest, clamped : int array
        Indices of the units that are integrated out, of units of other kinds, and of clamped
        Gaussian units.
    means : array of shape (n_gaussian, n_rest)
        L^-1 C, the derivatives of means of Gaussian units by means of other units.
    covariance : array of shape (n_gaussian, n_gaussian), or (n_gaussian,)
        L^-1, or its diagonal if L is diagonal.
    half_log_determinant : float
        Half the logarithm of det(L / 2 pi).
    couplings : array of shape (n_rest, n_rest)
        J without its diagonal, plus the couplings among the other units.
    exists : bool
        Whether L is positive definite.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.array([[1.0, 0.5], [-0.5, 1.0]])
    >>> units = mf.Gaussian(np.zeros(2), np.full(2, 2.0)), mf.Bernoulli(np.zeros(2))
    >>> model = mf.RBM(weights, *units)
    >>> rest = model.integrate_gaussians()
    >>> result = mf.tap(rest.machine, field=rest.field, precision=rest.precision)
    >>> (visible, hidden), _ = rest.moments(result.mean, result.var)
    >>> np.allclose(visible, mf.exact(model).mean[0], atol=0.01)
    True
    >>> log_partition = result.log_partition + rest.log_partition
    >>> bool(abs(log_partition - mf.exact(model).log_partition) < 0.01)
    True
    """

    def __init__(self, model, clamped=None, precision=None):
        bipartite = model.bipartite()
        self.dtype, self._model, self._layers = model.dtype, model, bipartite.layers
        gaussian = model.gaussian
        free = gaussian if clamped is None else gaussian & ~clamped
        self.gaussian, self.rest = np.flatnonzero(free), np.flatnonzero(~gaussian)
        self.clamped = np.flatnonzero(gaussian & ~free)
        self.fields = np.concatenate([fields_of(layer) for layer in self._layers])
        self.precisions = np.concatenate([precisions(layer) for layer in self._layers])
        self._weights = bipartite.weights.astype(np.float64)
        diagonal = self.precisions[free]
        if precision is not None:
            diagonal = diagonal + precision[free]
        self.exists = bool((diagonal > 0).all())
        # Units of one side are not coupled to each other.
        n_below = np.searchsorted(self.gaussian, len(self._weights))
        on_both_sides = self.gaussian if 0 < n_below < len(self.gaussian) else self.gaussian[:0]
        among = self.between(on_both_sides, on_both_sides)
        if among.any():
            self._invert(np.diag(diagonal) - among)
        elif self.exists:
            self.covariance = 1 / diagonal
            self.half_log_determinant = np.log(diagonal / (2 * np.pi)).sum() / 2
        if not self.exists:
            self.covariance, self.half_log_determinant = np.ones(len(diagonal)), -np.inf
        to_rest = self.between(self.gaussian, self.rest)
        of_units = self.covariance.ndim == 1
        self.means = self.covariance[:, None] * to_rest if of_units else self.covariance @ to_rest
        couplings = self.between(self.rest, self.rest) + to_rest.T @ self.means
        self.precision = -couplings.diagonal()
        np.fill_diagonal(couplings, 0)
        self.couplings = (couplings + couplings.T) / 2
        field = self.fields[self.gaussian]
        self.field = field @ self.means
        self.log_partition = self.times_covariance(field) @ field / 2 - self.half_log_determinant

    def _invert(self, matrix):
        try:
            factor = cholesky(matrix)
        except LinAlgError:
            self.exists = False
            return
        self.covariance = factor.inverse()
        of_constant = len(matrix) * np.log(2 * np.pi) / 2
        self.half_log_determinant = factor.half_log_determinant - of_constant

    def between(self, rows, columns):
        """Return the couplings between units of the model, given by their indices."""
        n = len(self._weights)
        below, above = rows < n, columns >= n
        if below.all() and above.all():
            return self._weights[run_of(rows)][:, run_of(columns - n)]
        out = np.zeros((len(rows), len(columns)))
        if below.any() and above.any():
            out[np.ix_(below, above)] = self._weights[np.ix_(rows[below], columns[above] - n)]
        if not (below.all() or above.all()):
            out[np.ix_(~below, ~above)] = self._weights[np.ix_(columns[~above], rows[~below] - n)].T
        return out

    def times_covariance(self, rows):
        """Multiply rows of the Gaussian units by L^-1."""
        return rows * self.covariance if self.covariance.ndim == 1 else rows @ self.covariance

    @computed_once
    @refusing_overflow
    def machine(self):
        """The fully visible machine of the other units; None without any."""
        if not len(self.rest):
            return None
        couplings = self.couplings.astype(self.dtype)
        return BoltzmannMachine(couplings, without_units(self._layers, self._model.gaussian))

    def moments(self, mean, var, order=2):
        """Compute means and variances of all units from the results of a solver for `machine`.

        Parameters
        ----------
        mean, var : array of shape (n_rest,) or (n_rows, n_rest)
        order : {1, 2, 3}, default 2
            Order of the solver, which is used for covariances between the units.

        Returns
        -------
        mean, var : tuple of arrays
            By layer.
        """
        mean, var = (np.asarray(part, np.float64) for part in (mean, var))
        out = np.zeros((2, *mean.shape[:-1], len(self.fields)))
        out[0][..., self.rest], out[1][..., self.rest] = mean, var
        rows = np.atleast_2d(mean), np.atleast_2d(var)
        uncoupled = self.times_covariance(self.fields[self.gaussian])
        out[0][..., self.gaussian] = uncoupled + mean @ self.means.T
        out[1][..., self.gaussian] = self.variances(*rows, order).reshape(*mean.shape[:-1], -1)
        return tuple(tuple(part[..., units] for units in self._model.bounds) for part in out)

    def mean_covariance(self, mean, var, order):
        """Average the covariance of the other units over rows with these means and variances."""
        n_rows, out = len(var), np.zeros(self.couplings.shape)
        if order > 1:
            out += self.couplings * (var.T @ var) / n_rows
        if order == 3:
            third = self.machine.prior.third_cumulant(mean)[0]
            out += self.couplings**2 * (third.T @ third) / (2 * n_rows)
        out[np.diag_indices_from(out)] = var.mean(0)
        return out

    def variances(self, mean, var, order):
        """Compute variances of the Gaussian units: O(n_gaussian n_rest^2) for each row."""
        conditional = self.covariance if self.covariance.ndim == 1 else self.covariance.diagonal()
        out = conditional + var @ np.square(self.means).T
        if order == 1 or not self.couplings.any():
            return out
        for row in range(len(var)):
            covariance = self.mean_covariance(mean[row : row + 1], var[row : row + 1], order)
            products = self.means @ covariance
            out[row] = conditional + np.einsum("ij,ij->i", products, self.means)
        return np.maximum(out, conditional)

    def average_products(self, mean, var, order):
        """Average covariances of coupled layers, and x^2 of each layer, over rows of all units."""
        bounds, n_units = self._model.bounds, mean.shape[1]
        of_rest = self.mean_covariance(mean[:, self.rest], var[:, self.rest], order)
        responses, conditional = np.zeros((n_units, len(self.rest))), np.zeros(n_units)
        responses[self.rest, np.arange(len(self.rest))] = 1
        responses[run_of(self.gaussian)] = self.means
        products, covariances = responses @ of_rest, []
        for below, above in pairwise(bounds):
            first, last = np.searchsorted(self.rest, (above.start, above.stop))
            # Units that are not integrated out respond only to themselves.
            all_of_rest = last - first == above.stop - above.start
            covariances.append(
                products[below, first:last] if all_of_rest else products[below] @ responses[above].T
            )
        if self.covariance.ndim == 1:
            conditional[self.gaussian] = self.covariance
        else:
            conditional = np.zeros((n_units, n_units))
            conditional[np.ix_(self.gaussian, self.gaussian)] = self.covariance
            for covariance, (below, above) in zip(covariances, pairwise(bounds), strict=True):
                covariance += conditional[below, above]
            conditional = conditional.diagonal()
        squares = np.einsum("ij,ij->i", products, responses) + np.square(mean).mean(0) + conditional
        return covariances, [squares[units] for units in bounds]


def run_of(numbers):
    """Convert ascending integers to an index: a slice, which avoids a copy, if consecutive."""
    n = len(numbers)
    if n and numbers[-1] - numbers[0] == n - 1:
        return slice(numbers[0], numbers[0] + n)
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class RBM(Layered):
    """Two layers of units, coupled across: p(v, h) proportional to exp(v'Wh) prior(v) prior(h).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Couplings; column j is the receptive field of hidden unit j. For categorical visible units
        also (n_groups, q, n_hidden). With n_hidden = 0 the visible units are independent.
    visible, hidden : unit prior
        Priors of the units of each layer (unnormalised, see `fastmf.priors`).

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

    @computed_once
    def _max_weight(self):
        """Largest absolute weight."""
        return float(max(self.weights.max(initial=0), -self.weights.min(initial=0)))

    @computed_once
    def _column_sums(self):
        """Sums of the weights over the visible units, (n_hidden,)."""
        return self.weights.sum(0)

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
        """Return the RBM itself."""
        return self

    def _layer_names(self):
        return ["visible", "hidden"]

    def __repr__(self):
        visible, hidden = (type(layer).__name__ for layer in self.layers)
        return f"RBM({self.n_visible} {visible} x {self.n_hidden} {hidden}, {self.dtype})"

    def energy(self, visible, hidden):
        """Compute the energy -v'Wh - log prior(v) - log prior(h); p is exp(-energy) / Z.

        Parameters
        ----------
        visible : array of shape (..., n_visible)
            Or one label for each group of categorical units; the same holds for `hidden`.
        hidden : array of shape (..., n_hidden)

        Returns
        -------
        array of shape (...)
            +inf outside the support.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For units of wrong shapes or types, and overflow.
        """
        return self._energy((visible, hidden))


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
        """Compute the energy: minus coupling terms, minus log-weights of the priors.

        Parameters
        ----------
        *states : array of shape (..., n_units)
            One for each layer.

        Returns
        -------
        array of shape (...)
            +inf outside the support.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For units of wrong shapes or types, and overflow.
        """
        if len(states) != len(self.layers):
            raise ValueError(f"energy needs the states of {len(self.layers)} layers.")
        return self._energy(states)

    def bipartite(self):
        """Return the machine as an RBM, with even layers as visible and odd ones as hidden.

        Returns
        -------
        RBM
            With zeros between layers that are not neighbours, which `tap` of the DBM does not
            multiply.
        """
        return self._bipartite

    @computed_once
    def _bipartite(self):
        couplings = between_sides(self.weights, self.sizes, self.dtype)
        return RBM(couplings, *(concatenate(self.layers[side::2]) for side in (0, 1)))


def places_on_sides(sizes):
    """Return the slice of each layer among the units of all even layers, or of all odd ones."""
    places, ends = [], [0, 0]
    for k, size in enumerate(sizes):
        ends[k % 2] += size
        places.append(slice(ends[k % 2] - size, ends[k % 2]))
    return places


def between_sides(couplings, sizes, dtype):
    """Return the couplings of all even and all odd layers, given those of neighbouring layers."""
    places = places_on_sides(sizes)
    matrix = np.zeros((sum(sizes[::2]), sum(sizes[1::2])), dtype)
    for k, block in enumerate(couplings):
        if k % 2 == 0:
            matrix[places[k], places[k + 1]] = block
        else:
            matrix[places[k + 1], places[k]] = block.T
    return matrix


def machine_of(couplings, layers):
    """Make an RBM of two layers, or a DBM of more."""
    if len(couplings) == 1:
        return RBM(*couplings, *layers)
    return DBM(tuple(couplings), tuple(layers))
