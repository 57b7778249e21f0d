"""Log-partitions by sums over stored entries, at arbitrary means: against dense couplings."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field._sparse_free_energy import log_partition_of_rows
from fastmf.inference.mean_field.free_energy import log_partition_of_rows as of_dense
from fastmf.kernels.mean_field.arguments import Tilt
from tests.inference.mean_field.test_sparse_sweeps import MACHINES


@pytest.mark.parametrize("kind", ["spins", "groups", "mixed"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_any_means(kind, order):
    if order == 3 and kind != "spins":
        pytest.skip("not offered")
    rng = np.random.default_rng(0)
    dense, machine = MACHINES[kind]()
    n = machine.n_units
    mean, var = machine.prior.moments(rng.normal(size=(3, n)), 0.1)
    fields = 0.3 * rng.normal(size=(3, n)), rng.uniform(0, 0.1, (1, n)), np.zeros((1, n), bool)
    layout, state = layout_of(dense, order, "blocked"), np.stack([mean, var])
    expected = of_dense(dense, layout, state, order, Tilt(*fields))
    layout = layout_of(machine, order, "blocked")
    tilt = Tilt(*(part[:, layout.units] for part in fields))
    found = log_partition_of_rows(layout, state[..., layout.units], order, tilt)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_trees_are_exact_to_second_order():
    """The error of the second order is of third order in the couplings."""
    errors = []
    for scale in (0.1, 0.05):
        _, machine = MACHINES["spins"](scale, 3, 14)
        errors.append(abs(mf.tap(machine).log_partition - mf.exact(machine).log_partition))
    assert errors[1] < errors[0] / 6
