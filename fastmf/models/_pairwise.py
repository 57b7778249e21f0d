"""Base class of the machines: couplings of pairs of units, and unit priors."""

import numpy as np

from fastmf._common.arguments import number
from fastmf.models._couplings import with_entries
from fastmf.models._io import Model
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._scaling import at_temperature


class Machine(Model):
    """Common parts of RBMs, DBMs and fully visible machines."""

    def at_temperature(self, temperature):
        """Divide couplings, fields, precisions and log-weights by a temperature.

        The distribution is p^(1 / T), normalised; multiplicities of `Binomial` units stay.

        Parameters
        ----------
        temperature : float
            Above 0.

        Returns
        -------
        RBM, DBM or BoltzmannMachine

        Raises
        ------
        TypeError
            For spike-and-slab units, and users' own: p^(1 / T) is of another family.

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
