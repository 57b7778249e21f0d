"""Coordinates of the parameters in which the Hessian is nearly the identity."""

import numpy as np
from scipy import linalg

# Added to the variances of units, the largest of which is 1.
_RIDGE = 1e-3


class SeparateCoordinates:
    """The field is replaced by the one at the mean of the others, and each parameter scaled.

    The Hessian of weakly coupled units is the identity in them; a coupling stays one coordinate.

    Parameters
    ----------
    objective : PseudoLikelihood
    """

    def __init__(self, objective):
        self._d, (self._first, self._second) = objective.n_units, objective.pairs
        mean = objective.mean
        self._mean_first, self._mean_second = mean[self._first], mean[self._second]
        variance = np.maximum(1 - mean**2, _RIDGE)
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


class Coordinates(SeparateCoordinates):
    """Coordinates in which units may also be strongly correlated.

    If tanh eta_j had the same slope s_j in all rows, the second-order term of couplings K, scaled
    by sqrt(s_j s_k), were trace(K A K) with the units' covariance, scaled alike, as A. In the basis
    of A's eigenvectors it is a sum of squares. There are `n_units` more coordinates than
    parameters: the diagonal that couplings have not is free, and ignored.

    Parameters
    ----------
    objective : PseudoLikelihood
    """

    def __init__(self, objective):
        super().__init__(objective)
        covariance = objective.second - np.outer(objective.mean, objective.mean)
        diagonal = np.diag_indices(self._d)
        covariance[diagonal] += _RIDGE
        # What the others leave of a unit's variance, in a linear regression.
        slopes = 1 / linalg.inv(covariance).diagonal()
        covariance[diagonal] += objective.l2 / (2 * slopes)
        of_pairs = slopes[self._first] * slopes[self._second]
        self.scale = np.sqrt(np.concatenate([slopes, of_pairs]))
        scaled = covariance / np.sqrt(np.outer(slopes, slopes))
        values, self._vectors = linalg.eigh(scaled, overwrite_a=True)
        self._triangle = first, second = np.triu_indices(self._d)
        diagonal = first == second
        self._curvature = np.sqrt((values[first] + values[second]) / (1.0 + diagonal))
        self._twice = 1.0 + diagonal

    def _turned(self, pairs):
        """Pairs' triangle, as a symmetric matrix without diagonal, in the basis of eigenvectors."""
        matrix = np.zeros((self._d, self._d))
        matrix[self._first, self._second] = matrix[self._second, self._first] = pairs
        return (self._vectors.T @ matrix @ self._vectors)[self._triangle]

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        first, second = self._triangle
        matrix = np.zeros((self._d, self._d))
        matrix[first, second] = coordinates[self._d :] / self._curvature
        matrix[second, first] = matrix[first, second]
        couplings = (self._vectors @ matrix @ self._vectors.T)[self._first, self._second]
        return super().to_parameters(np.concatenate([coordinates[: self._d], couplings]))

    def from_parameters(self, parameters):
        """Coordinates of some parameters."""
        scaled = super().from_parameters(parameters)
        turned = self._turned(scaled[self._d :]) * self._curvature
        return np.concatenate([scaled[: self._d], turned])

    def gradient(self, slope):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        scaled = super().gradient(slope)
        turned = self._turned(scaled[self._d :]) / (self._curvature * self._twice)
        return np.concatenate([scaled[: self._d], turned])
