"""Cases of `sweep_all_rows`."""

import numpy as np

from fastmf.inference.mean_field.few_sweeps import repeated
from fastmf.kernels.linear.product import pack, panel_width
from fastmf.kernels.mean_field.all_rows import ROWS_PER_TASK, RowsMemory
from fastmf.kernels.mean_field.arguments import Layer, Layers
from kernel_cases.case import Case, chosen, with_options
from kernel_cases.machines import boltzmann_machine

# No test or benchmark has more workers; the units of a layer before them are not touched.
N_WORKERS, SOURCE = 16, 3


def arguments(size, dtype, rows=None, *, order=2, n_sweeps=3, tilted=False):
    """A few sweeps of a fully visible machine from random rows without variances."""
    model, rng, rows = (
        boltzmann_machine(size, dtype),
        np.random.default_rng(7),
        chosen(rows, size.n_rows),
    )
    n, shape = model.n_units, (size.n_rows, model.n_units)
    field = rng.normal(size=shape)[rows] / 3 if tilted else np.zeros((1, n))
    precision = rng.random(n) / 2
    couplings = pack(model.couplings)
    powers = couplings, couplings**2, couplings[:0]
    layers = Layers([Layer(repeated(model.prior, ROWS_PER_TASK), n, SOURCE, SOURCE, *powers)])
    state = np.zeros((4, len(rows), n + SOURCE), dtype)
    state[0, :, SOURCE:] = rng.choice([-1, 1], shape)[rows]
    shapes = (2, ROWS_PER_TASK, panel_width(dtype)), (4, ROWS_PER_TASK)
    memory = RowsMemory(*(np.full((N_WORKERS, *shape), np.nan, dtype) for shape in shapes))
    tilt = field.astype(dtype), precision.astype(dtype)
    return layers, order, n_sweeps, tilt, memory, np.zeros(2, np.int64), state


def _case(name, large=False, **options):
    return Case(
        "mean_field.all_rows.sweep_all_rows", name, with_options(arguments, **options),
        lambda arguments: dict(zip(("mean", "var", "b", "a"), arguments[-1], strict=True)),
        {"float64": 1e-12, "float32": 2e-5}, large=large,
    )  # fmt: skip


CASES = [_case("tap", large=True), _case("mean_field", order=1, tilted=True), _case("once",
    n_sweeps=1, tilted=True)]  # fmt: skip
