"""Coordinates of the parameters in which weakly coupled units have the identity as Hessian."""

import numpy as np


class Coordinates:
    """The field is replaced by the one at the mean of the others, and all is scaled.

    Parameters are `matrix @ coordinates` of a matrix that is never made.

    Parameters
    ----------
    objective : PseudoLikelihood
    """

    def __init__(self, objective):
        self._d, (self._first, self._second) = objective.n_units, objective.pairs
        mean = objective.mean
        self._mean_first, self._mean_second = mean[self._first], mean[self._second]
        variance = np.maximum(1 - mean**2, 1e-3)
        pairs = 2 * variance[self._first] * variance[self._second]
        self.scale = np.sqrt(np.concatenate([variance, pairs]))

    def _shift(self, couplings):
        """Field by the other units at their mean."""
        shift = np.bincount(self._first, couplings * self._mean_second, self._d)
        return shift + np.bincount(self._second, couplings * self._mean_first, self._d)

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        parameters = coordinates / self.scale
        parameters[: self._d] -= self._shift(parameters[self._d :])
        return parameters

    def from_parameters(self, parameters):
        """Coordinates of some parameters."""
        coordinates = np.array(parameters)
        coordinates[: self._d] += self._shift(coordinates[self._d :])
        return coordinates * self.scale

    def gradient(self, slope):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        slope = np.array(slope)
        slope[self._d :] -= self._mean_second * slope[self._first]
        slope[self._d :] -= self._mean_first * slope[self._second]
        return slope / self.scale
