"""NumPy twin of `fastmf.kernels.training.groups`, where the equations are."""

import numpy as np

from fastmf.reference.mean_field.groups import GROUP, covariance_times


def second_moments(states, layers, bounds):
    """Second moments of all units: variances, and the means of states of groups."""
    second = states[1].copy()
    for units, groups in zip(bounds, layers.groups, strict=True):
        of_groups = groups.alone == 0
        second[:, units][:, of_groups] = states[0][:, units][:, of_groups]
    return second


def effects(weights, states, second, layers, bounds):
    """What groups add to the gradient, averaged over solutions."""
    total, (visible, hidden) = np.zeros_like(weights), bounds
    (mean, mean_hidden), var_hidden = (
        (states[0][:, units] for units in bounds),
        states[1][:, hidden],
    )
    targets, sources, *_ = layers.groups[0]
    for first, n, _, own, *_ in targets:
        group = slice(first, first + n)
        if own >= 0:
            s = mean[:, group] @ weights[group]
            total[group] += mean[:, group].T @ covariance_times(mean_hidden, var_hidden, sources, s)
    for first, n, kind, *_ in sources:
        group = slice(first, first + n)
        if kind == GROUP:
            fields = mean_hidden[:, group] @ weights[:, group].T
            total[:, group] += (second[:, visible] * fields).T @ mean_hidden[:, group]
    return total / len(mean)


def repack(weights, layers, order):
    """Fill in the packed couplings of each target, and their squares."""
    for layer, groups, matrix in zip(
        layers.of_model, layers.groups, (weights.T, weights), strict=True
    ):
        panels = layer.couplings
        for first, n, panel, *_ in groups.targets:
            _fill(matrix[:, first : first + n], panels[panel:])
        if order > 1:
            _fill(matrix**2, layer.squares)


def _fill(matrix, panels):
    """Set the first panels to the columns of a matrix."""
    width = panels.shape[2]
    for k, column in enumerate(range(0, matrix.shape[1], width)):
        here = matrix[:, column : column + width]
        panels[k, :, : here.shape[1]] = here
