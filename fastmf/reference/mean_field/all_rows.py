"""NumPy twin of `fastmf.kernels.mean_field.all_rows`."""

from fastmf.priors._protocol import take
from fastmf.reference.linear.product import unpacked
from fastmf.reference.mean_field.units import onsager_of, tilt_of
from fastmf.reference.units import moments

# As in the kernel's file, which a reference does not import.
ROWS_PER_TASK = 32


def sweep_all_rows(layers, order, n_sweeps, tilt, work, queue, state):
    """Sweep rows so many times, one unit after another."""
    layer, (field, precision) = layers.of_model[0], tilt
    first, n = layer.source, layer.n_units
    mean, var, b, a = (part[:, first : first + n] for part in state)
    couplings, squares = (unpacked(p, n) if len(p) else None for p in layer[4:6])
    for i in list(range(n)) * n_sweeps:
        prior = take(layer.prior, slice(i * ROWS_PER_TASK, i * ROWS_PER_TASK + 1))
        onsager = onsager_of(var @ squares[:, i]) if order == 2 else 0
        b[:, i] = tilt_of(mean @ couplings[:, i], onsager, mean[:, i], field[:, i])
        a[:, i] = onsager + precision[i]
        new = moments(prior, b[:, i : i + 1], a[:, i : i + 1])
        mean[:, i : i + 1], var[:, i : i + 1] = new
