"""Coordinates of the parameters in which the Hessian is nearly the identity."""

import numpy as np
from scipy import linalg

# Added to the variances of units, which are at most 1.
_VARIANCE_RIDGE = 1e-3


class SeparateCoordinates:
    """The field is replaced by the one at the mean of the others, and each parameter scaled.

    The Hessian of weakly coupled units is the identity in them; a coupling stays one coordinate.
    Where the penalty of fields outweighs the data, fields stay those at zero of the others.
    """

    def __init__(self, objective):
        self._d, (self._first, self._second) = objective.n_units, objective.pairs
        mean = objective.mean
        self._mean_first, self._mean_second = mean[self._first], mean[self._second]
        variance = np.maximum(1 - mean**2, _VARIANCE_RIDGE)
        pairs = 2 * variance[self._first] * variance[self._second]
        self.scale = np.sqrt(np.concatenate([variance, pairs]) + objective.l2)
        self._centring = variance / (variance + objective.l2)

    def _shift(self, couplings):
        """Field by the other units at their mean, as far as fields follow it."""
        shift = np.bincount(self._first, couplings * self._mean_second, self._d)
        shift += np.bincount(self._second, couplings * self._mean_first, self._d)
        return self._centring * shift

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

    def gradient(self, by_parameters):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        out = np.array(by_parameters)
        of_fields = self._centring * out[: self._d]
        out[self._d :] -= self._mean_second * of_fields[self._first]
        out[self._d :] -= self._mean_first * of_fields[self._second]
        return out / self.scale


# L-BFGS takes a third of the time with them for 200 correlated units.
class Coordinates(SeparateCoordinates):
    """Coordinates in which units may also be strongly correlated.

    If sech^2 eta_j were the same s_j in all rows, the second-order term of couplings K, scaled by
    sqrt(s_j s_k), would be trace(K A K), where A is the covariance of the units scaled in the same
    way. In the basis of the eigenvectors of A it is a sum of squares. There are `n_units` more
    coordinates than parameters, for the diagonal of K, which is ignored.
    """

    def __init__(self, objective):
        super().__init__(objective)
        covariance = objective.second - np.outer(objective.mean, objective.mean)
        diagonal = np.diag_indices(self._d)
        covariance[diagonal] += _VARIANCE_RIDGE
        # Residual variance of each unit in its linear regression on the others.
        sech2 = 1 / linalg.inv(covariance).diagonal()
        covariance[diagonal] += objective.l2 / (2 * sech2)
        pair_sech2 = sech2[self._first] * sech2[self._second]
        self.scale = np.sqrt(np.concatenate([sech2 + objective.l2, pair_sech2]))
        self._centring = sech2 / (sech2 + objective.l2)
        scaled = covariance / np.sqrt(np.outer(sech2, sech2))
        values, self._vectors = linalg.eigh(scaled, overwrite_a=True)
        self._triangle = first, second = np.triu_indices(self._d)
        diagonal = first == second
        self._curvature = np.sqrt((values[first] + values[second]) / (1.0 + diagonal))
        self._multiplicity = 1.0 + diagonal

    def _rotated(self, pairs):
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
        rotated = self._rotated(scaled[self._d :]) * self._curvature
        return np.concatenate([scaled[: self._d], rotated])

    def gradient(self, by_parameters):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        scaled = super().gradient(by_parameters)
        rotated = self._rotated(scaled[self._d :]) / (self._curvature * self._multiplicity)
        return np.concatenate([scaled[: self._d], rotated])
