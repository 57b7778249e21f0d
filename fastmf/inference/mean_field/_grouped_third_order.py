"""The third order in the couplings of models with groups of states.

The log-partition has the sum over pairs of <C^3> / 6, with C the couplings of a pair centred over
independent states. A unit that is no group has its third cumulant k in place of the average over
its states: k <(W - s)^3> / 6 with a group, of field s, and W^3 k k' / 6 with another unit. The
derivatives by the means add to the fields b: see `fastmf.kernels.mean_field.groups_third`.
"""

import numpy as np

from fastmf.priors._groups import groups


def third_cumulant(prior, mean):
    """Third cumulants of units that are no groups, 0 in groups."""
    third = prior.third_cumulant(mean)[0]
    for group in groups(prior):
        third[:, group] = 0
    return third


def third_cumulants(model, layout, means):
    """`third_cumulant` of all layers, an array like `means`."""
    parts = zip(model.layers, layout.bounds, strict=True)
    third = [third_cumulant(prior, means[:, units]) for prior, units in parts]
    return layout.join(third, np.empty_like(means))


def third_order(layout, k, means, third):
    """Terms of the third order in the fields of layer k, and half of the terms of its pairs.

    Parameters
    ----------
    layout : GroupedLayout
    k : int
    means, third : arrays of shape (n_rows, n_units)
        Means and third cumulants of all units of the model; third cumulants are 0 in groups.

    Returns
    -------
    fields : array of shape (n_rows, n_units of the layer)
    pairs : float64 array of shape (n_rows,)
    """
    couplings, prior, units = layout.couplings[k], layout.priors[k], layout.bounds[k]
    sources = slice(layout.source[k], layout.source[k] + len(couplings))
    mean, source_mean, source_third = means[:, units], means[:, sources], third[:, sources]
    cubic = source_third @ couplings**3
    for group in layout.groups_of_sources[k]:
        cubic += moments_of_field(source_mean[:, group], couplings[group])[2]
    fields = cubic * prior.third_cumulant(mean)[1] / 6
    pairs = np.einsum("ij,ij->i", third[:, units], cubic, dtype=np.float64) / 12
    for group in groups(prior):
        m, w = mean[:, group], couplings[:, group]
        s, v, cubed = moments_of_field(m, w.T)
        fields[:, group] = (
            source_third * (s**2 - v) @ w - source_third * s @ w**2 + source_third @ w**3 / 3
        ) / 2
        pairs += np.einsum("ij,ij->i", source_third, cubed, dtype=np.float64) / 12
        for other in layout.groups_of_sources[k]:
            h = source_mean[:, other]
            c = centred(w[other].T, m, h)
            v = np.einsum("ra,rab->rb", m, c**2)
            added = np.einsum("rb,rab->ra", h, c * (c**2 - 3 * v[:, None])) / 6
            fields[:, group] += added
            # As the average of c over either group is 0, this is half of <c^3> / 6.
            pairs += np.einsum("ra,ra->r", m, added, dtype=np.float64) / 2
    return fields, pairs


def moments_of_field(mean, weights):
    """Mean, variance and third cumulant of the fields of one group, (n_rows, n) each.

    Parameters
    ----------
    mean : array of shape (n_rows, n_states)
    weights : array of shape (n_states, n)
    """
    s, second, third = mean @ weights, mean @ weights**2, mean @ weights**3
    return s, second - s**2, third - 3 * s * second + 2 * s**3


def centred(weights, mean, other):
    """Couplings of two groups less their averages over independent states of each.

    Parameters
    ----------
    weights : array of shape (n_states, n_other)
    mean : array of shape (n_rows, n_states)
    other : array of shape (n_rows, n_other)

    Returns
    -------
    array of shape (n_rows, n_states, n_other)
    """
    s, r = mean @ weights, other @ weights.T
    t = np.einsum("ra,ra->r", mean, r)
    return weights - s[:, None, :] - r[:, :, None] + t[:, None, None]
