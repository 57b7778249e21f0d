"""Categorical units: against sums over states, Bernoulli units and finite differences."""

import copy
import pickle

import numpy as np
import pytest
from differences import differences

import fastmf as mf
from fastmf._jit.kernel import kernel
from fastmf.priors._compiled import tilted_log_partition, tilted_moments, units_of
from fastmf.priors._groups import as_states, column_sizes, groups
from fastmf.priors._protocol import as_dtype, gradient, take
from fastmf.priors._queries import independent_units
from fastmf.priors.concatenated import concatenate

UNITS = mf.Categorical([[-0.3, 0.2, 0.9], [1.0, 0.0], [0.3, -2.0, 0.1, 0.4]])
MIXED = mf.Concatenated(mf.Ising([0.3]), UNITS, mf.Gaussian([0.1, 0.2], 1.5))


@kernel
def moments_and_log_partition(units, b, a, mean, var, out):
    tilted_moments(units, 0, b, a, mean, var)
    tilted_log_partition(units, 0, b, a, out)


def tilts(n, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(rows, n)), rng.uniform(-0.5, 1.5, size=(rows, n))


def test_sums_over_states():
    b, a = tilts(9)
    for log_z, mean, var, t in zip(
        np.split(UNITS.log_partition(b, a), 3, axis=1),
        UNITS.by_group(UNITS.moments(b, a)[0]),
        UNITS.by_group(UNITS.moments(b, a)[1]),
        UNITS.by_group(UNITS.field + b - a / 2),
        strict=True,
    ):
        weights = np.exp(t)
        np.testing.assert_allclose(log_z[:, 0], np.log(weights.sum(1)), rtol=1e-13)
        np.testing.assert_allclose(mean, weights / weights.sum(1)[:, None], rtol=1e-13)
        np.testing.assert_allclose(var, mean * (1 - mean), rtol=1e-13)


def test_gradient_is_the_derivative_of_the_log_partition():
    b, a = tilts(9, rows=1)
    slope = differences(lambda f: UNITS._replace(field=f).log_partition(b, a).sum(), UNITS.field)
    np.testing.assert_allclose(gradient(UNITS, b, a).field[0], slope, atol=1e-9)


def test_two_states_are_a_bernoulli_unit():
    binary = mf.Bernoulli([0.4, -1.2])
    pair = mf.Categorical([[0.0, 0.4], [0.0, -1.2]])
    b, a = tilts(2)
    both = np.zeros((2, 4, 4))
    both[0, :, 1::2], both[1, :, 1::2] = b, a
    mean, var = pair.moments(*both)
    expected = binary.moments(b, a)
    np.testing.assert_allclose(mean[:, 1::2], expected[0], rtol=1e-14)
    np.testing.assert_allclose(var[:, 1::2], expected[1], rtol=1e-14)
    log_partition = pair.log_partition(*both)
    np.testing.assert_allclose(log_partition, binary.log_partition(b, a), rtol=1e-13)


@pytest.mark.parametrize("prior", [UNITS, MIXED], ids=["groups", "mixed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_and_numpy_agree(prior, dtype):
    prior, n = as_dtype(prior, dtype), sum(column_sizes(prior))
    b, a = (part[0].astype(dtype) for part in tilts(n))
    mean, var, out = np.empty((3, n), dtype)
    units = units_of(prior, dtype, ("moments", "log_partition"))
    moments_and_log_partition(units, b, a, mean, var, out)
    tol = 20 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose((mean, var), prior.moments(b, a), rtol=tol, atol=tol)
    assert out.sum() == pytest.approx(prior.log_partition(b, a).sum(), rel=tol)
    assert prior.moments(b, a)[0].dtype == dtype


def test_extreme_tilts_stay_finite():
    b = np.array([1e6, -1e6, 0, 3e4, 3e4, -1e300, 0, 1e300, 2.0])
    mean, var = UNITS.moments(b, 0.0)
    assert np.isfinite(mean).all() and np.isfinite(UNITS.log_partition(b, 0.0)).all()
    np.testing.assert_allclose(np.add.reduceat(mean, UNITS.starts), 1)
    assert (var >= 0).all()


def test_draws_have_the_moments():
    b, a = tilts(9, rows=1)
    mean, _ = UNITS.moments(b, a)
    draws = UNITS.sample(np.repeat(b, 20_000, 0), np.repeat(a, 20_000, 0), 3)
    assert np.isfinite(UNITS.log_prob(draws)).all()
    np.testing.assert_allclose(draws.mean(0), mean[0], atol=5 * 0.5 / np.sqrt(20_000))


def test_labels_and_flat_values():
    labels = np.array([[2, 0, 3], [-1, 1, 0]])
    x = UNITS.one_hot(labels)
    np.testing.assert_array_equal(UNITS.labels(x), labels)
    np.testing.assert_array_equal(UNITS.one_hot([2.0, 0.0, 3.0]), x[0])
    assert np.isnan(x[1, :3]).all() and not np.isnan(x[1, 3:]).any()
    assert UNITS.log_prob(x[0]).sum() == pytest.approx(0.9 + 1.0 + 0.4)
    assert UNITS.contains(x[0]).all() and not UNITS.contains(np.full(9, 0.5)).any()
    rows = as_states("X", MIXED, [[1, 2, 0, 3, 0.5, -0.5]])
    np.testing.assert_array_equal(rows[0], [1, *x[0], 0.5, -0.5])
    assert [(g.start, g.stop) for g in groups(MIXED)] == [(1, 4), (4, 6), (6, 10)]
    assert mf.Categorical(np.zeros((2, 3))).by_group(np.zeros((5, 6))).shape == (5, 2, 3)


@pytest.mark.parametrize(
    "labels", [[3, 0, 0], [0, 0.5, 0], [0, 0], [[0, 0, 9]], ["a", "b", "c"]], ids=str
)
def test_bad_labels_are_named(labels):
    with pytest.raises((ValueError, TypeError), match="labels"):
        UNITS.one_hot(labels)
    with pytest.raises(ValueError, match="one column for each group"):
        as_states("X", UNITS, np.zeros((2, 5)))


@pytest.mark.parametrize(
    "field",
    [[[1.0]], [1.0, 2.0], np.zeros((0, 3)), np.zeros((2, 0)), [[np.nan, 0]], [], "ab", None,
     [["a", "b"]], [[np.inf, 0]], [[-np.inf, -np.inf], [0, 0]]],
)  # fmt: skip
def test_bad_fields_are_named(field):
    with pytest.raises((ValueError, TypeError), match="Categorical: "):
        mf.Categorical(field)


@pytest.mark.parametrize("state", [[0, 1], [1, 2, 3], [0, 0, 1], [0, 1, 3]])
def test_bad_states_are_named(state):
    with pytest.raises(ValueError, match="Categorical: "):
        mf.Categorical(np.zeros(3), state)


def test_groups_cannot_be_divided():
    np.testing.assert_array_equal(take(UNITS, slice(3, 9)).sizes, [2, 4])
    with pytest.raises(ValueError, match="divided"):
        take(UNITS, slice(1, 9))


def test_copies_files_and_types(tmp_path):
    for copied in (pickle.loads(pickle.dumps(UNITS)), copy.deepcopy(UNITS)):
        np.testing.assert_array_equal(copied, UNITS)
        assert type(copied) is mf.Categorical
    assert concatenate([UNITS, UNITS]).n_groups == 6
    machine = mf.RBM(np.zeros((9, 2), np.float32), UNITS, mf.Bernoulli(np.zeros(2)))
    machine.save(tmp_path / "machine.npz")
    loaded = mf.load(tmp_path / "machine.npz")
    assert loaded.visible.field.dtype == np.float32
    np.testing.assert_array_equal(loaded.visible.sizes, [3, 2, 4])


def test_fits_to_data_have_its_frequencies():
    X = np.array([[0, 1, 3], [2, 1, -1], [2, 0, 3]])
    fitted = independent_units(UNITS, X)
    counts = np.array([1, 0, 2, 1, 2, 0, 0, 0, 2]) + 1.0
    expected = np.concatenate([p / p.sum() for p in np.split(counts, [3, 5])])
    np.testing.assert_allclose(fitted.moments(0.0, 0.0)[0], expected, rtol=1e-13)
    np.testing.assert_allclose(np.add.reduceat(fitted.field, fitted.starts), 0, atol=1e-14)
    with pytest.raises(ValueError, match="pseudocount"):
        mf.Categorical.from_data(X, 4, pseudocount=0)
    found = mf.Categorical.from_data(X)
    np.testing.assert_array_equal(found.sizes, [3, 2, 4])
    # States that no row has are never drawn, and get no pseudocount where rows are fitted again.
    for units in (found, found.refit(X[:2]), independent_units(found, X)):
        mean = units.moments(0.0, 0.0)[0]
        assert mean[[1, 5, 6, 7]].max() < 1e-30 and np.isfinite(units.field).all()
        np.testing.assert_allclose(np.add.reduceat(mean, units.starts), 1)
    np.testing.assert_allclose(found.moments(0.0, 0.0)[0][:3], [2 / 5, 0, 3 / 5], atol=1e-30)


def test_states_that_do_not_occur():
    """A field of -inf is the same as a group without that state."""
    never, without = (
        mf.Categorical([[0.3, -np.inf, 0.1], [0.0, 0.5]]),
        mf.Categorical([[0.3, 0.1], [0.0, 0.5]]),
    )
    kept = [0, 2, 3, 4]
    rng = np.random.default_rng(0)
    b, a = rng.normal(size=(2, 6, 5))
    for scale in (1.0, 200.0):
        mean, var = never.moments(scale * b, a)
        expected = without.moments(scale * b[:, kept], a[:, kept])
        np.testing.assert_allclose(mean[:, kept], expected[0], rtol=1e-12)
        np.testing.assert_allclose(var[:, kept], expected[1], rtol=1e-12)
        assert (mean[:, 1] == 0).all() and (var[:, 1] == 0).all()
        found = never.log_partition(scale * b, a)
        expected = without.log_partition(scale * b[:, kept], a[:, kept])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    draws = never.sample(np.zeros((500, 5)), 0.0, 1)
    assert not draws[:, 1].any() and never.contains(draws).all()
    labels = never.one_hot([[0, 1], [1, 1], [2, 0]])
    assert never.log_prob(labels).sum(1).tolist() == [0.8, -np.inf, 0.1]
    assert never.contains(labels).all(1).tolist() == [True, False, True]
    np.testing.assert_allclose(never.project().field, [0.1, -np.inf, -0.1, -0.25, 0.25])


def test_states_that_do_not_occur_in_solvers():
    """Also in kernels, in annealing and in files."""
    rng = np.random.default_rng(1)
    never, without = mf.Categorical([[0.3, -np.inf, 0.1]]), mf.Categorical([[0.3, 0.1]])
    hidden, weights = mf.Ising(np.array([0.2, -0.1])), rng.normal(size=(3, 2))
    machine = mf.RBM(weights, never, hidden)
    smaller = mf.RBM(weights[[0, 2]], without, hidden)
    found, expected = mf.tap(machine), mf.tap(smaller)
    np.testing.assert_allclose(found.log_partition, expected.log_partition, rtol=1e-10)
    np.testing.assert_allclose(found.mean[0], np.insert(expected.mean[0], 1, 0), atol=1e-8)
    exact = mf.exact(machine).log_partition
    np.testing.assert_allclose(exact, mf.exact(smaller).log_partition, rtol=1e-12)
    annealed = mf.evaluation.annealed_importance_sampling(machine, 50, 50, rng=0)
    assert abs(annealed.log_partition - exact) < 0.05 and not annealed.samples[:, 1].any()
