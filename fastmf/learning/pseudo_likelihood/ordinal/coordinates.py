"""Coordinates of ordinal machines in which the Hessian of weakly coupled items is the identity."""

import numpy as np
from scipy import linalg


class ItemCoordinates:
    """Thresholds at the mean of the other items, whitened for each item, and scaled couplings."""

    def __init__(self, objective):
        self._objective, self._n = objective, objective.n_fields
        f = objective.smoothed_frequencies()
        c = np.arange(len(f))[:, None]
        self._mean = (c * f).sum(0)
        variance = (c**2 * f).sum(0) - self._mean**2
        first, second = objective.pairs
        curvature = 2 * variance[first] * variance[second] + objective.ridge[self._n :]
        # Scale of couplings; fields are whitened by the factor below.
        self.scale = np.append(np.ones(self._n), np.sqrt(curvature))
        thresholds = objective.thresholds
        flat = f[thresholds.category, thresholds.item]
        covariance = np.diag(flat) - np.outer(flat, flat) * (
            thresholds.item[:, None] == thresholds.item
        )
        hessian = thresholds.matrix.T @ covariance @ thresholds.matrix
        hessian[np.diag_indices(self._n)] += objective.ridge[: self._n]
        self._factor = linalg.cholesky(hessian, lower=True)

    def _whitened(self, vector, trans):
        return linalg.solve_triangular(self._factor, vector, lower=True, trans=trans)

    def _shift(self, couplings):
        """Change of threshold parameters by the other items at their means."""
        objective, (first, second) = self._objective, self._objective.pairs
        field = np.bincount(first, couplings * self._mean[second], objective.n_units)
        field += np.bincount(second, couplings * self._mean[first], objective.n_units)
        thresholds = objective.thresholds
        return thresholds.slope * field[thresholds.item_of_parameter]

    def of_item(self, i):
        """Derivatives of the parameters of an item's regression on the others by coordinates."""
        _, fields, _ = self._objective.thresholds.of_item(i)
        neighbours = np.flatnonzero(self._objective.index[i] >= 0)
        scale, n = self.scale[self._objective.index[i, neighbours]], len(fields)
        out = np.zeros((n + len(neighbours), n + len(neighbours)))
        out[:n, :n] = linalg.inv(self._factor[np.ix_(fields, fields)]).T
        slope = self._objective.thresholds.slope[fields]
        out[:n, n:] = -np.outer(slope, self._mean[neighbours] / scale)
        out[n:, n:] = np.diag(1 / scale)
        return out

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
        thresholds, out = objective.thresholds, by_parameters / self.scale
        out[: self._n] = self._whitened(by_parameters[: self._n], "N")
        along = by_parameters[: self._n] * thresholds.slope
        along = np.bincount(thresholds.item_of_parameter, along, objective.n_units)
        change = self._mean[second] * along[first] + self._mean[first] * along[second]
        out[self._n :] -= change / self.scale[self._n :]
        return out
