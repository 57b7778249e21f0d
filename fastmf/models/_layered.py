"""One view of all layered machines: couplings between neighbouring layers, and the layers.

An RBM is the case of two layers. Solvers and learning read `couplings` and `layers`, and make a
machine of the same kind by `rebuilt`, whatever the names of its own fields.
"""

import numpy as np

from fastmf._threads.workers import computed_once
from fastmf.models import _checks
from fastmf.models._integrated import IntegratedMachine
from fastmf.models._pairwise import Machine
from fastmf.priors._groups import has_groups
from fastmf.priors._queries import gaussian_units, unbounded


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
        """Where each layer is among all units, even layers before odd ones: a tuple of slices."""
        sizes, n_even = self.sizes, sum(self.sizes[::2])
        starts = [sum(sizes[k % 2 : k : 2]) + k % 2 * n_even for k in range(len(sizes))]
        return tuple(slice(start, start + n) for start, n in zip(starts, sizes, strict=True))

    @computed_once
    def dtype(self):
        """Floating type of all parameters."""
        return self.couplings[0].dtype

    @computed_once
    def gaussian(self):
        """Which units are Gaussian ones, even layers before odd ones: bool array (n_units,)."""
        even_first = (*self.layers[::2], *self.layers[1::2])
        return np.concatenate([gaussian_units(layer) for layer in even_first])

    @computed_once
    def is_integrated(self):
        """Whether mean-field solvers integrate units out: Gaussian ones, if others are bounded."""
        even_first = (*self.layers[::2], *self.layers[1::2])
        without_bounds = np.concatenate([unbounded(layer) for layer in even_first])
        alike = self.gaussian.any() and (without_bounds == self.gaussian).all()
        return bool(alike) and not any(map(has_groups, self.layers))

    @property
    def deep(self):
        """Whether there is more than one hidden layer: their sum given data is then not exact."""
        return len(self.couplings) > 1

    def parameters(self):
        """Couplings and layers, by these names."""
        return {"couplings": self.couplings, "layers": self.layers}

    def rebuilt(self, couplings, layers):
        """A machine of the same kind with these couplings and layers."""
        return type(self)(**self._named(couplings, layers))

    def moved(self, couplings, layers):
        """The machine after a step, whose parameters are known to be finite and to fit."""
        model = object.__new__(type(self))
        model.__dict__.update(self._named(couplings, layers))
        # The kinds of units do not change.
        for name in ("sizes", "bounds", "dtype", "gaussian", "is_integrated"):
            if name in self.__dict__:
                model.__dict__[name] = self.__dict__[name]
        return model

    def _named(self, couplings, layers):
        """Fields of the class, by name."""
        raise NotImplementedError

    def bipartite(self):
        """The same machine as an RBM: even layers are visible there, odd ones hidden."""
        raise NotImplementedError

    def integrate_gaussians(self):
        """Integrate the Gaussian units out, exactly, which leaves a machine of the other units.

        Mean-field iterations need bounded variances to converge, and their errors grow with them:
        solutions of the machine that is left are more accurate, and exist for stronger couplings.

        Returns
        -------
        IntegratedMachine
            `machine`, a BoltzmannMachine, with the tilts `field` and `precision` of its units, the
            constant `log_partition` and a method `moments`, which adds the Gaussian units again.

        Raises
        ------
        TypeError
            If there are categorical units.

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

    def _energy(self, states):
        """Energy of one array of states for each layer; +inf outside the support."""
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
