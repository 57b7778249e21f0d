"""Coordinates of couplings and fields in which the Hessian is nearly the identity."""

import numpy as np
from scipy import linalg

# Variance below which a unit is not distinguished from a constant one.
MIN_SPIN_VARIANCE = 1e-3


class SeparateCoordinates:
    """Fields at the mean of all other units, whitened, and scaled couplings.

    The Hessian of weakly coupled units is the identity in them; a coupling stays one coordinate.
    Where the penalty of fields outweighs the data, fields stay those at zero of the other units.
    """

    def __init__(self, objective):
        mean, variance, hessian, slope = objective.independent_curvature()
        first, second = objective.pairs
        ridge = np.broadcast_to(objective.ridge, objective.n_parameters)[objective.n_fields :]
        scale = np.sqrt(2 * variance[first] * variance[second] + ridge)
        self._set(objective, mean, hessian, slope, scale)

    def _set(self, objective, mean, hessian, slope, scale):
        """Set means, the Hessian and slopes of fields, and the scale of couplings."""
        self._n, self._objective, self._mean = objective.n_fields, objective, mean
        ridge = np.broadcast_to(objective.ridge, objective.n_parameters)
        self._factor = linalg.cholesky(hessian + np.diag(ridge[: self._n]), lower=True)
        # How fields follow the sum of all neighbours.
        self._slope = linalg.cho_solve((self._factor, True), hessian @ slope)
        # Scale of couplings; fields are whitened by the factor.
        self.scale = np.append(np.ones(self._n), scale)

    def _whitened(self, vector, trans):
        return linalg.solve_triangular(
            self._factor, vector, lower=True, trans=trans, check_finite=False
        )

    def _shift(self, couplings):
        """Changes of fields by the other units at their means."""
        objective, (first, second) = self._objective, self._objective.pairs
        field = np.bincount(first, couplings * self._mean[second], objective.n_units)
        field += np.bincount(second, couplings * self._mean[first], objective.n_units)
        return self._slope * field[objective.item_of_field]

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        parameters = coordinates / self.scale
        fields = self._whitened(parameters[: self._n], "T")
        parameters[: self._n] = fields - self._shift(parameters[self._n :])
        return parameters

    def from_parameters(self, parameters):
        """Coordinates of some parameters."""
        coordinates = parameters * self.scale
        fields = parameters[: self._n] + self._shift(parameters[self._n :])
        coordinates[: self._n] = self._factor.T @ fields
        return coordinates

    def gradient(self, by_parameters):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        objective, (first, second) = self._objective, self._objective.pairs
        out, along = by_parameters / self.scale, by_parameters[: self._n] * self._slope
        out[: self._n] = self._whitened(by_parameters[: self._n], "N")
        along = np.bincount(objective.item_of_field, along, objective.n_units)
        change = self._mean[second] * along[first] + self._mean[first] * along[second]
        out[self._n :] -= change / self.scale[self._n :]
        return out


# L-BFGS takes a third of the time with them for 200 correlated units.
class Coordinates(SeparateCoordinates):
    """Coordinates in which spins may also be strongly correlated.

    If sech^2 eta_j were the same s_j in all rows, the second-order term of couplings K, scaled by
    sqrt(s_j s_k), would be trace(K A K), where A is the covariance of the units scaled in the same
    way. In the basis of the eigenvectors of A it is a sum of squares. There are `n_units` more
    coordinates than parameters, for the diagonal of K, which is ignored.
    """

    def __init__(self, objective):
        d, (first, second), l2 = objective.n_units, objective.pairs, objective.l2
        self._d, self._pairs = d, (first, second)
        covariance = objective.second - np.outer(objective.mean, objective.mean)
        diagonal = np.diag_indices(d)
        covariance[diagonal] += MIN_SPIN_VARIANCE
        # Residual variance of each unit in its linear regression on all others.
        sech2 = 1 / linalg.inv(covariance).diagonal()
        covariance[diagonal] += l2 / (2 * sech2)
        scale = np.sqrt(sech2[first] * sech2[second])
        self._set(objective, objective.mean, np.diag(sech2), np.ones(d), scale)
        scaled = covariance / np.sqrt(np.outer(sech2, sech2))
        values, self._vectors = linalg.eigh(scaled, overwrite_a=True)
        self._triangle = first, second = np.triu_indices(d)
        self._multiplicity = 1.0 + (first == second)
        self._curvature = np.sqrt((values[first] + values[second]) / self._multiplicity)

    def _rotated(self, couplings):
        """Triangle of couplings, a symmetric matrix without diagonal, in the basis."""
        matrix = np.zeros((self._d, self._d))
        matrix[self._pairs] = matrix.T[self._pairs] = couplings
        return (self._vectors.T @ matrix @ self._vectors)[self._triangle]

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        matrix = np.zeros((self._d, self._d))
        matrix[self._triangle] = coordinates[self._d :] / self._curvature
        matrix.T[self._triangle] = matrix[self._triangle]
        couplings = (self._vectors @ matrix @ self._vectors.T)[self._pairs]
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
