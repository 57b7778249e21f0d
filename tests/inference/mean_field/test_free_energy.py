"""The log-partition of given means and variances; its formula is the twin of the kernel."""

import numpy as np
import pytest
from group_models import MODELS, every_order

import fastmf as mf
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field._rows import record_from
from fastmf.inference.mean_field.tap import log_partition_of_rows
from fastmf.kernels.mean_field.arguments import TapSettings, Tilt
from fastmf.models._layered import Layered
from tests.inference.mean_field.test_sparse_sweeps import MACHINES as SPARSE


def log_partitions(model, order, mean, var, field, precision):
    """Log-partitions at any means and variances, by the layout of the model."""
    layout = layout_of(model, order, "blocked")
    state = np.zeros((4, len(mean), layout.n_units))
    for part, values in zip(state, (mean, var), strict=False):
        layout.join([values], part)
    tilt = [layout.join([part], np.zeros(part.shape)) for part in (field, precision)]
    settings = TapSettings(order, 0.0, 1, **layout.addresses)
    tilt = Tilt(*tilt, np.zeros((1, layout.n_units), bool))
    return log_partition_of_rows(layout, record_from(state, 1, False), tilt, settings)


def test_third_order_of_layers_in_parts():
    rng = np.random.default_rng(4)
    weights, field = rng.normal(size=(6, 4)) / 2, rng.normal(size=6)
    hidden = mf.Ising(rng.normal(size=4))
    whole = mf.RBM(weights, mf.Bernoulli(field), hidden)
    parts = mf.RBM(
        weights, mf.Concatenated(mf.Bernoulli(field[:2]), mf.Bernoulli(field[2:])), hidden
    )
    found, expected = (mf.tap(m, order=3, tol=1e-13) for m in (parts, whole))
    assert found.converged
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-12)
    np.testing.assert_allclose(found.mean[0], expected.mean[0], atol=1e-13)


@pytest.mark.parametrize("kind", ["spins", "groups", "mixed"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_sparse_couplings_at_any_means(kind, order):
    if order == 3 and kind != "spins":
        pytest.skip("not offered")
    rng = np.random.default_rng(0)
    dense, machine = SPARSE[kind]()
    n = machine.n_units
    mean, var = machine.prior.moments(rng.normal(size=(3, n)), 0.1)
    state = mean, var, 0.3 * rng.normal(size=(3, n)), rng.uniform(0, 0.1, (1, n))
    expected = log_partitions(dense, order, *state)
    np.testing.assert_allclose(log_partitions(machine, order, *state), expected, rtol=1e-12)


def test_trees_are_exact_to_second_order():
    """The error of the second order is of third order in the couplings."""
    errors = []
    for scale in (0.1, 0.05):
        _, machine = SPARSE["spins"](scale, 3, 14)
        errors.append(abs(mf.tap(machine).log_partition - mf.exact(machine).log_partition))
    assert errors[1] < errors[0] / 6


@every_order
def test_error_of_groups_falls_with_the_couplings(name, order):
    model = MODELS[name]

    def scaled(scale):
        couplings = tuple(scale * w for w in model.couplings)
        return model.rebuilt(couplings, model.layers)

    if not isinstance(model, Layered):

        def scaled(scale):
            return mf.BoltzmannMachine(scale * model.couplings, model.prior)

    errors = []
    for scale in (0.1, 0.05):
        smaller = scaled(scale)
        found = mf.tap(smaller, order=order, tol=1e-14, max_iter=3000).log_partition
        errors.append(abs(found - mf.exact(smaller, averages=False).log_partition))
    assert np.log2(errors[0] / errors[1]) > order + 0.6
