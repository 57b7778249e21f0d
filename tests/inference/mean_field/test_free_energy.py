"""The log-partition of given means and variances, against its formula over all pairs of units."""

import numpy as np
import pytest
from group_models import MODELS, every_order
from kernel_cases.case import Size
from kernel_cases.machines import boltzmann_machine, rbm

import fastmf as mf
from fastmf.inference.mean_field import free_energy
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field.free_energy import log_partition_of_rows
from fastmf.kernels.mean_field.arguments import Tilt
from fastmf.models._layered import Layered
from tests.inference.mean_field.test_sparse_sweeps import MACHINES as SPARSE

# More units than one panel holds and more rows than one task, in no round numbers.
SIZE = Size(60, 31, 50)


def deep(size, dtype):
    """Three layers, of which the last is larger than the one it is coupled to."""
    first, rng = rbm(size, dtype), np.random.default_rng(5)
    weights = (rng.normal(size=(size.n_hidden, 40)) / 9).astype(dtype)
    top = mf.Ising(rng.normal(size=40).astype(dtype))
    return mf.DBM((first.weights, weights), (*first.layers, top))


MACHINES = {"rbm": rbm, "dbm": deep, "fully visible": boltzmann_machine}
TILTS = {
    "plain": {},
    "tilted": {"tilted": SIZE.n_rows},
    "tilted alike": {"tilted": 1},
    "clamped": {"clamped": SIZE.n_rows},
    "tilted and clamped": {"tilted": SIZE.n_rows, "clamped": SIZE.n_rows},
    "clamped alike": {"clamped": 1},
}


def arguments(kind, order, dtype="float64", tilted=0, clamped=0):
    """Random states, not fixed points, with as many rows of tilts and clamped units."""
    model = MACHINES[kind](SIZE, dtype)
    layout = layout_of(model, order, "blocked")
    shape, rng = (SIZE.n_rows, layout.n_units), np.random.default_rng(3)
    state = np.full((4, *shape), np.nan, dtype)
    state[0] = rng.random(shape)
    state[1] = state[0] * (1 - state[0])
    parts = rng.normal(size=shape) / 2, rng.random(shape) / 2, rng.random(shape) < 0.2
    kinds, rows = (dtype, dtype, bool), (tilted, tilted, clamped)
    tilt = (
        (part[:n] if n else 0 * part[:1]).astype(kind)
        for part, kind, n in zip(parts, kinds, rows, strict=True)
    )
    return model, layout, state, order, Tilt(*tilt)


def couplings_of(model, layout):
    """The coupling matrix of all units, in the order of the layout."""
    if isinstance(model, mf.BoltzmannMachine):
        return model.couplings.astype(float)
    J = np.zeros((layout.n_units, layout.n_units))
    for W, below, above in zip(model.couplings, layout.bounds, layout.bounds[1:], strict=False):
        J[below, above] = W
    return J + J.T


def by_unit(model, layout, method, *arrays):
    """method(prior, its units of the arrays), of all layers, in the order of the layout."""
    parts = []
    for prior, units in zip(model.layers, layout.bounds, strict=True):
        found = method(prior, *(array[:, units] for array in arrays))
        parts.append(np.stack(found) if isinstance(found, tuple) else found)
    whole = np.empty((*parts[0].shape[:-1], layout.n_units))
    for part, units in zip(parts, layout.bounds, strict=True):
        whole[..., units] = part
    return whole


def explicit(model, layout, state, order, tilt):
    """Log-partition, every pair of units once, in float64."""
    m, v = state[:2].astype(float)
    J = couplings_of(model, layout)
    a = -v @ J**2 if order > 1 else np.zeros_like(m)
    b = m @ J + a * m
    first, second = np.triu_indices(len(J), 1)
    W = J[first, second]
    pairs = W * m[:, first] * m[:, second]
    if order > 1:
        pairs += W**2 * v[:, first] * v[:, second] / 2
    if order > 2:
        k, derivative = by_unit(model, layout, lambda p, x: p.third_cumulant(x), m)
        pairs += W**3 * k[:, first] * k[:, second] / 6
        b += k @ J**3 * derivative / 6
    sites = a * (m**2 + v) / 2 - b * m
    b, a = b + tilt.field, a + tilt.precision
    sites += by_unit(model, layout, lambda p, *x: p.log_partition(*x), b, a)
    return pairs.sum(1) + np.where(tilt.clamped, 0, sites).sum(1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tilts", TILTS.values(), ids=TILTS)
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", MACHINES)
def test_it_is_the_formula(kind, order, tilts, dtype):
    given = arguments(kind, order, dtype, **tilts)
    values = log_partition_of_rows(*given[1:])
    expected = explicit(*given)
    close = {"float64": 1e-9, "float32": 1e-3}[dtype]
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, expected, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("rows", [[0], [0, 1, 2, 3, 4], [6, 1, 8]])
def test_company_does_not_matter(kind, rows, dtype):
    whole = arguments(kind, 3, dtype, **TILTS["tilted and clamped"])
    _, layout, state, order, tilt = whole
    tilt = Tilt(*(part[rows] for part in tilt))
    alone = log_partition_of_rows(layout, state[:, rows], order, tilt)
    np.testing.assert_array_equal(alone, log_partition_of_rows(*whole[1:])[rows])


@pytest.mark.parametrize("tilts", [TILTS["tilted and clamped"], TILTS["tilted alike"]])
def test_threads_and_blocks_of_rows_do_not_matter(tilts, monkeypatch):
    def run(n_threads):
        given = arguments("rbm", 3, **tilts)
        return log_partition_of_rows(*given[1:], n_threads=n_threads)

    monkeypatch.setattr(free_energy, "workers_for", lambda n_tasks, work, n_threads: n_threads or 1)
    one = run(1)
    n_units = arguments("rbm", 3, **tilts)[1].n_units
    monkeypatch.setattr(free_energy, "CACHED_ENTRIES", 27 * n_units)
    for n_threads in (1, 2, 5):
        np.testing.assert_array_equal(run(n_threads), one)


def test_no_rows_have_no_values():
    _, layout, state, order, tilt = arguments("rbm", 2)
    assert log_partition_of_rows(layout, state[:, :0], order, tilt).shape == (0,)


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
    fields = 0.3 * rng.normal(size=(3, n)), rng.uniform(0, 0.1, (1, n)), np.zeros((1, n), bool)
    layout, state = layout_of(dense, order, "blocked"), np.stack([mean, var])
    expected = log_partition_of_rows(layout, state, order, Tilt(*fields))
    layout = layout_of(machine, order, "blocked")
    tilt = Tilt(*(part[:, layout.units] for part in fields))
    found = log_partition_of_rows(layout, state[..., layout.units], order, tilt)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


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
