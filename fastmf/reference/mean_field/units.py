"""NumPy twin of `fastmf.kernels.mean_field.units`: some units of all rows."""

import numpy as np

from fastmf._outcomes import SMALLEST_NORMAL
from fastmf.reference.units import moments


def update_units(rows, units, prior, products, order, alone=1):
    """Update some units of all rows from the products W' m, (W^2)' v and (W^3)' k.

    `alone` is 0 for states of a group, and 1 for other units.
    """
    mean, a, b = rows.mean[:, units], rows.a[:, units], rows.b[:, units]
    if order >= 2:
        a[:] = -products[1]
    implicit = alone * a
    b[:] = products[0] + implicit * mean + rows.field[:, units]
    if order == 3:
        b += products[2] * prior.third_cumulant(mean)[1] / 6
    relax(rows, units, moments(prior, b, a + rows.precision[:, units]), implicit)
    if order == 3:
        rows.third[:, units] = prior.third_cumulant(mean)[0]


def relax(rows, units, new, a):
    """Move some units of all rows towards new means and variances, and measure the change."""
    mean, var, (new_mean, new_var) = rows.mean[:, units], rows.var[:, units], new
    clamped = rows.clamped[:, units]
    new_mean, new_var = np.where(clamped, mean, new_mean), np.where(clamped, var, new_var)

    ok = np.isfinite(new_mean).all(1) & np.isfinite(new_var).all(1)
    rows.finite &= ok
    new_mean = np.where(ok[:, None], new_mean, mean)
    new_var = np.where(ok[:, None], new_var, var)
    step_size = (1 - rows.damping)[:, None].astype(mean.dtype)
    step_size = np.where(rows.confirms[:, None], mean.dtype.type(1), step_size)
    implicit = ((rows.accelerated | rows.oscillating) & ~rows.confirms)[:, None]
    step_size = np.where(implicit, step_size / (1 - a * new_var / 2), step_size)
    change, var_change = new_mean - mean, new_var - var
    precision = 1 / np.maximum(new_var, SMALLEST_NORMAL)
    per_var = np.minimum(1, precision)
    per_sd = np.sqrt(per_var)
    for largest, of_units in (
        (rows.residual, per_sd * change),
        (rows.scale, np.maximum(per_sd * abs(new_mean), np.minimum(new_var, 1))),
        (rows.var_residual, per_var * var_change),
        (rows.effect, precision * change**2),
        (rows.var_effect, (a * var_change) ** 2),
    ):
        np.maximum(largest, abs(of_units).max(1), out=largest)
    change *= step_size
    step = rows.step[:, units]
    rows.squared_change += np.einsum("ij,ij->i", change, change)
    rows.step_dot += np.einsum("ij,ij->i", change, step)
    step *= rows.momentum[:, None].astype(mean.dtype)
    step += change
    mean += change
    var += np.where(rows.settled[:, None], 1, step_size) * var_change
