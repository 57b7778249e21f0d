"""The binary symmetric channel: noise, a score, and two baseline estimators.

A binary signal x in {0, 1} is observed as y, each entry flipped with probability p. See Tramel et
al. (2018), section VII.4; Eqs. 43, 44 and 46 are used with their errors corrected.
"""

import numpy as np

from fastmf._common.arguments import generator, number, real_array
from fastmf._common.rows import blocks


def flip(X, p, rng):
    """Flip entries of binary data at random (binary symmetric channel).

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Entries 0 and 1 of any type.
    p : float
        Probability in [0, 1] that an entry is flipped.
    rng : numpy.random.Generator or int
        Source of randomness.

    Returns
    -------
    Y : array like X
        The noisy observation.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = np.zeros((2, 5))
    >>> mf.evaluation.flip(X, 1.0, rng=0)
    array([[1., 1., 1., 1., 1.],
           [1., 1., 1., 1., 1.]])
    >>> float(mf.evaluation.flip(np.zeros(10_000), 0.1, rng=0).mean().round(1))
    0.1
    """
    X = _binary(X, "X")
    rng = generator(rng, optional=True)
    return (X != (rng.random(X.shape) < number("p", p, 0, 1))).astype(X.dtype)


def pointwise_estimate(Y, means, flip_probability):
    """Compute the optimal pointwise estimate P(x_i = 1 | y_i) for independent units.

    Parameters
    ----------
    Y : array of shape (n_samples, n_features)
        Observation, entries 0 and 1.
    means : array of shape (n_features,)
        P(x_i = 1), for instance the column means of the training data.
    flip_probability : float
        Probability in [0, 1] that an entry of Y was flipped.

    Returns
    -------
    estimate : array of shape (n_samples, n_features)
        Posterior means, float32 if `means` are, else float64. If an observation is impossible under
        the prior and the noise, the observation itself.

    Notes
    -----
    Tramel et al. (2018), Eq. 46 with both lines corrected: the log-odds of the prior plus
    ``(2 y - 1) log((1 - p) / p)``, which is evaluated without dividing by zero for p = 0 and p = 1.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> mf.evaluation.pointwise_estimate(np.array([[1, 0]]), np.array([0.5, 0.5]), 0.1)
    array([[0.9, 0.1]])
    """
    Y = _binary(Y, "Y")
    means = real_array("means", means)
    means = means if means.dtype == np.float32 else means.astype(np.float64)
    if not ((means >= 0) & (means <= 1)).all():
        raise ValueError("means must be in [0, 1].")
    p = means.dtype.type(number("flip_probability", flip_probability, 0, 1))
    if Y.ndim == 0 or means.ndim > 1 or (means.ndim and Y.shape[-1:] != means.shape):
        raise ValueError(
            "Y and means must have shapes (n_samples, n_features) and (n_features,), got "
            f"{Y.shape} and {means.shape}."
        )
    seen = Y == 1
    one = means * np.where(seen, 1 - p, p)
    total = one + (1 - means) * np.where(seen, p, 1 - p)
    possible = total > 0
    return np.where(possible, one / np.where(possible, total, 1), seen.astype(means.dtype))


def nearest_neighbour(Y, X):
    """Find the row of X nearest to each row of Y in Hamming distance.

    Parameters
    ----------
    Y : array of shape (n_samples, n_features)
        Observation, entries 0 and 1.
    X : array of shape (n_candidates, n_features)
        Clean data to choose from, entries 0 and 1.

    Returns
    -------
    estimate : array of shape (n_samples, n_features)
        Rows of X, in its dtype; the first one if several have the same distance.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> mf.evaluation.nearest_neighbour(np.array([[1, 1, 0]]), np.array([[1, 1, 1], [0, 0, 0]]))
    array([[1, 1, 1]])
    """
    Y, X = _binary(Y, "Y"), _binary(X, "X")
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1] or len(X) == 0:
        raise ValueError(
            "nearest_neighbour: Y and X must have shapes (n_samples, n_features) and "
            f"(n_candidates, n_features) with at least one candidate, got {Y.shape} and {X.shape}."
        )
    # The distance sum(y) + sum(x) - 2 x.y is an integer, which is exact in float32 up to 2^24.
    candidates = X.astype(np.float32)
    nearest = nearest_rows(2 * Y.astype(np.float32), candidates, candidates.sum(1), 1)
    return X[nearest[:, 0]]


def matthews_correlation(truth, estimate):
    """Compute the Matthews correlation coefficient of a binary signal and its estimate.

    Parameters
    ----------
    truth, estimate : array
        Broadcast against each other; entries above 1/2 count as 1, all other entries as 0.

    Returns
    -------
    coefficient : float or array
        Between -1 and 1, computed along the last axis; 0 if the truth or the estimate is constant.

    Notes
    -----
    ``(TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN))``, where T, F, P and N are for
    true, false, positive and negative: B. W. Matthews, Biochim. Biophys. Acta 405 (1975) 442-451.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> truth = np.array([[1, 1, 0, 0], [1, 1, 0, 0]])
    >>> mf.evaluation.matthews_correlation(truth, [[1, 1, 0, 0], [0, 0, 1, 1]])
    array([ 1., -1.])
    """
    truth, estimate = real_array("truth", truth), real_array("estimate", estimate)
    try:
        truth, estimate = np.broadcast_arrays(truth, estimate)
    except ValueError:
        raise ValueError(
            "matthews_correlation: truth and estimate must have shapes that broadcast, got "
            f"{truth.shape} and {estimate.shape}."
        ) from None
    for name, values in (("truth", truth), ("estimate", estimate)):
        if np.isnan(values).any():
            raise ValueError(f"matthews_correlation: {name} contains NaN.")
    truth, estimate = truth > 0.5, estimate > 0.5
    if not truth.ndim or truth.size == 0:
        raise ValueError(f"truth and estimate must have an axis of entries, got {truth.shape}.")
    counts = (x.sum(-1, dtype=np.float64) for x in (truth, estimate, truth & estimate))
    n, (true, positive, both) = truth.shape[-1], counts
    scale = np.sqrt(positive * true) * np.sqrt((n - true) * (n - positive))
    coefficient = (n * both - true * positive) / np.where(scale > 0, scale, 1)
    return coefficient if coefficient.ndim else float(coefficient)


def nearest_rows(fields, X, costs, n_nearest):
    """Find the rows x of X with the smallest cost(x) - field.x, for each field."""
    nearest = np.empty((len(fields), n_nearest), np.intp)
    for block in blocks(len(fields), len(fields) * len(X)):
        misfit = costs - fields[block] @ X.T
        if n_nearest == 1:
            nearest[block, 0] = misfit.argmin(1)
            continue
        best = np.sort(np.argpartition(misfit, n_nearest - 1, axis=1)[:, :n_nearest], axis=1)
        order = np.argsort(np.take_along_axis(misfit, best, axis=1), axis=1, kind="stable")
        nearest[block] = np.take_along_axis(best, order, axis=1)
    return nearest


def _binary(values, name):
    values = real_array(name, values)
    if not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{name} must have entries 0 and 1 only.")
    return values
