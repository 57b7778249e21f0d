"""Sparse regressions from moments and from summary statistics, in place of rows."""

import numpy as np

from fastmf._common.arguments import doubles
from fastmf._common.names import check_order, names_along
from fastmf._common.warning import warn_user
from fastmf.estimators.sparse_regression import _moments
from fastmf.estimators.sparse_regression._credible_sets import FittedPart
from fastmf.estimators.sparse_regression._reports import MIN_REPORTED_WEIGHT
from fastmf.estimators.sparse_regression._unpenalised import projected_parts
from fastmf.inference.gaussian.blocks import n_elements
from fastmf.learning.evidence import Regression, Task


def _names(name, matrix, other, vector):
    """Names of the features, if the vector or the matrix has some, in the same order."""
    parts = matrix if isinstance(matrix, list | tuple) else [matrix]
    names = names_along(other, [vector])
    check_order(name, parts, names, other)
    return names_along(name, parts) if names is None else names


class FromMoments:
    """Methods of `SpikeSlabRegressor` that need no rows, and the parts of its data."""

    def fit_moments(self, gram, moment, y_square, n):
        """Learn from moments: the posterior needs no more of the rows.

        Parameters
        ----------
        gram : array of shape (n_features, n_features), list of arrays, or SciPy sparse matrix
            X'X, of columns as they are: `standardize` has no effect. A list holds blocks of
            features that are orthogonal to all others; they are found in a sparse matrix.
        moment : array of shape (n_features,)
            X'y.
        y_square : float
            y'y.
        n : float
            Number of rows. With `fit_intercept` columns and y are taken to be centred.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If no data have these moments.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> model = mf.SpikeSlabRegressor(fit_intercept=False)
        >>> model.fit_moments(X.T @ X, X.T @ y, y @ y, 40).coef_[[3, 7]].round(1)
        array([ 2., -1.])
        """
        blocks, names = _moments.blocks_of(gram), _names("gram", gram, "moment", moment)
        moment = doubles("moment", moment)
        n_features = sum(len(units) for units, _ in blocks)
        if moment.shape != (n_features,):
            raise ValueError(f"moment must have shape {(n_features,)}, X'y, got {moment.shape}.")
        units, rows = [], []
        for features, block in blocks:
            block, of_block, y_square, n = _moments.checked_moments(
                block, moment[features], y_square, n
            )
            units.append(features)
            rows.append(_moments.rows_of_moments(block, of_block, y_square)[:2])
        return self._fit_parts(units, rows, y_square, n, names)

    def fit_summary(self, z, R, n):
        """Learn from z-scores of single features and the correlations of the features.

        Parameters
        ----------
        z : array of shape (n_features,)
            z-scores (t-statistics) of the regressions on each feature alone, with a constant.
        R : array of shape (n_features, n_features), list of arrays, or SciPy sparse matrix
            Correlations of the features. A series z or data frames R of pandas name the features,
            which must be in the same order. A list holds blocks that are not correlated with each
            other, which are found in a sparse matrix. Blocks share the parameters only,
            and cost little: take one for each locus.
        n : float
            Number of rows.

        Returns
        -------
        self
            Coefficients and variances refer to standardised features and y.

        Warns
        -----
        UserWarning
            If R does not fit z, scores have the wrong sign, z are too small for z-scores, as
            p-values are, R seems to be rounded to one decimal or to hold squares, or a feature
            whose z-score chance explains seems to have an effect.

        Notes
        -----
        `mismatch_` is the share s of the variance of z that is no correlation of the features, by
        maximum likelihood: the noise of z has covariance (1 - s) R + s I, negative eigenvalues
        are cut, and scores of the wrong sign are turned. Rounding of z and R is such a share.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> R = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> model = mf.SpikeSlabRegressor().fit_summary([9.0, 8.1, 0.3], R, 1000)
        >>> model.inclusion_probability_.round()
        array([1., 0., 0.])
        """
        names = _names("R", R, "z", z)
        summary = _moments.summary_of(z, R, n, names)
        if (message := summary.message(names)) is not None:
            warn_user(message)
        self._fit_parts(summary.units, summary.rows, float(n), float(n), names)
        self.mismatch_ = summary.share
        included = self.inclusion_probability_.copy()
        included[self._unpenalised] = 0
        message = summary.message_of_hidden(included, self.noise_variance_, names)
        if message is not None:
            warn_user(message)
        return self

    def _fit_parts(self, units, rows, y_square, n, names):
        """Fit to rows with the moments of the data, of independent parts of the features."""
        self.n_features_in_ = sum(map(len, units))
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        self._check_options()
        groups, n_groups = self._groups(self.n_features_in_)
        self._offset, self._scale = np.zeros(self.n_features_in_), np.ones(self.n_features_in_)
        unit = float(np.sqrt(y_square / n)) or 1.0
        for (X, _), features in zip(rows, units, strict=True):
            X[:, self._excluded()[features]] = 0
        flat, n_free, columns = 0.0, n, self._columns()
        if len(columns):
            explained = sum(float(y @ y) for _, y in rows)
            rows, flat, unpenalised = projected_parts(rows, units, columns)
            flat = flat / unit
            self._keep_unpenalised(unpenalised)
            n_free = self._rows_left(n, unpenalised)
            y_square -= explained - sum(float(y @ y) for _, y in rows)
        # What no part explains, and the rows that it has too few of, is in the first.
        total, absent = _moments.absent_of([y for _, y in rows], y_square, n_free)
        n_rows, absent = total - sum(len(y) for _, y in rows[1:]), absent / unit**2
        parts = [Regression(rows[0][0], rows[0][1] / unit, groups[units[0]], n_rows, absent)]
        for features, (X, y) in zip(units[1:], rows[1:], strict=True):
            parts.append(Regression(X, y / unit, groups[features]))
        task = Task(tuple(parts), tuple(units), groups)
        fit = self._fit_task(task, n_groups, 0.0, unit, flat, centred=self.fit_intercept)
        self._keep([fit], True)
        self._keep_parts([(features, X) for features, (X, _) in zip(units, rows, strict=True)])
        self._keep_noises(n, self.fit_intercept)
        return self

    def _keep_parts(self, parts):
        """The features and rows of each part, as arrays that go to files."""
        self._features = np.concatenate([units for units, _ in parts])
        self._shapes = np.array([rows.shape for _, rows in parts])
        self._rows = parts[0][1]
        if len(parts) > 1:
            self._rows = np.concatenate([np.ravel(rows) for _, rows in parts])
        self.mismatch_ = 0.0

    def _parts_at(self, point):
        """The parts of the model at a value of the hyper-parameters."""
        target, sizes = self._target_of_point[point], np.prod(self._shapes, axis=1)
        unit, labels = np.atleast_1d(self._unit)[target], np.atleast_2d(self.blocks_)
        y = np.split(np.atleast_2d(self._targets)[target], np.cumsum(self._shapes[:-1, 0]))
        features = np.split(self._features, np.cumsum(self._shapes[:-1, 1]))
        rows = [self._rows]
        if len(sizes) > 1:
            rows = np.split(self._rows, np.cumsum(sizes)[:-1])
            rows = [x.reshape(shape) for x, shape in zip(rows, self._shapes, strict=True)]
        mean = self._point_coef[point] * self._scale / unit
        mean[self._unpenalised] = 0
        var = np.atleast_2d(self.coef_var_)[target] * (self._scale / unit) ** 2
        first = sum(n_elements(labels[k]) for k in self._target_of_point[:point])
        parts, noise = [], self._point_noise[point] / unit**2
        precision, labels = unit**2 / self._point_slab[point], labels[target]
        for units, X, y_of_part in zip(features, rows, y, strict=True):
            last = first + n_elements(labels[units])
            part = FittedPart(
                units, X, y_of_part, noise, self._point_odds[point, units],
                np.full(len(units), precision), mean[units], var[units], labels[units],
                self._point_sites[point][:, units], self._point_matrices[first:last],
            )  # fmt: skip
            parts.append(part)
            first = last
        return parts

    def _fitted_parts(self, target):
        """Weights of values of the hyper-parameters, and the parts of the model at each of them."""
        points = np.flatnonzero(self._target_of_point == target)
        weights = self._point_weights[points]
        for k in points[weights >= MIN_REPORTED_WEIGHT * weights.max()]:
            yield self._point_weights[k], self._parts_at(k)
