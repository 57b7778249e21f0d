"""Fixed points of mean-field equations, against enumeration, limits and published numbers."""

import itertools

import numpy as np
import pytest
from kernel_cases import Size, machines
from kernel_cases.machines import fully_visible, solved_gaussian
from readme import example

import fastmf as mf
from fastmf.inference.mean_field.tap import SweepsFromData, moments_given

W2 = np.array([[0.9, -0.7], [0.4, 0.8]])
FIELDS2 = np.array([0.1, -0.2]), np.array([0.3, -0.4])
BOTH = pytest.mark.parametrize("kind", ["rbm", "fully visible"])
SCHEDULES = pytest.mark.parametrize("schedule", ["blocked", "sequential"])


def binary_rbm(n_visible=7, n_hidden=5, scale=0.5, seed=0, prior=mf.Bernoulli, dtype=float):
    rng = np.random.default_rng(seed)
    weights = scale * rng.standard_normal((n_visible, n_hidden))
    fields = rng.standard_normal(n_visible), rng.standard_normal(n_hidden)
    return mf.RBM(weights.astype(dtype), *(prior(f.astype(dtype)) for f in fields))


def solve(model, kind, init=None, **options):
    """Means of all units and log-partition, whichever way the machine is written."""
    if kind == "rbm":
        result = mf.tap(model, init, **options)
        return np.concatenate(result.mean, axis=-1), result.log_partition
    result = mf.tap(fully_visible(model), init, **options)
    return result.mean, result.log_partition


# Exact log Z of this machine is 0.5410182139574589 (priors normalised).
PUBLISHED = {
    1: (0.4868120378347017, [0.61905352, 0.60613259, 0.75018538, 0.41376286]),
    2: (0.5414877734181851, [0.60823317, 0.60156794, 0.73751368, 0.41997192]),
    3: (0.5420691545430466, [0.609629, 0.601346, 0.737944, 0.419828]),
}


@BOTH
@SCHEDULES
@pytest.mark.parametrize("order", [1, 2, 3])
def test_published_numbers(kind, schedule, order):
    model = mf.RBM(W2, *map(mf.Bernoulli, FIELDS2))
    mean, log_partition = solve(model, kind, order=order, schedule=schedule, tol=1e-14)
    normaliser = np.log1p(np.exp(np.concatenate(FIELDS2))).sum()
    value, means = PUBLISHED[order]
    assert log_partition - normaliser == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(mean, means, atol=5e-7 if order == 3 else 5e-9)


@BOTH
@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_error_vanishes_with_the_next_power_of_the_couplings(kind, prior, order):
    machine = binary_rbm(4, 3, prior=prior)
    errors = []
    for scale in (0.2, 0.1):
        model = mf.RBM(scale * machine.weights, *machine.layers)
        truth = mf.exact(model)
        mean, log_partition = solve(model, kind, order=order, tol=1e-15)
        off = abs(mean - np.concatenate(truth.mean)).max()
        errors.append((abs(log_partition - truth.log_partition), off))
    slopes = np.log2(np.divide(*errors))
    assert slopes.min() > order + 0.7, slopes


def test_naive_mean_field_is_a_lower_bound():
    for seed in range(5):
        model = binary_rbm(scale=1.5, seed=seed)
        bound = mf.tap(model, np.eye(7), order=1).log_partition
        assert (bound <= mf.exact(model).log_partition + 1e-12).all()


@SCHEDULES
@pytest.mark.parametrize("visible", [mf.Bernoulli, lambda field: mf.Gaussian(field, 7.0)])
def test_result_solves_the_equations(schedule, visible):
    """Tramel et al. (2018), Eqs. 33-35, also with the variances of Gaussian units."""
    model = binary_rbm(30, 20, scale=0.4)
    model = mf.RBM(model.weights, visible(model.visible.field), model.hidden)
    result = mf.tap(model, np.eye(30), schedule=schedule, tol=1e-13)
    (a_v, a_h), (c_v, c_h), W = result.mean, result.var, model.weights
    A_h, A_v = -c_v @ W**2, -c_h @ W.T**2
    B_h, B_v = A_h * a_h + a_v @ W, A_v * a_v + a_h @ W.T
    assert result.converged.all()
    for part, expected in [(result.b, (B_v, B_h)), (result.a, (A_v, A_h))]:
        np.testing.assert_allclose(part[0], expected[0], atol=1e-12)
        np.testing.assert_allclose(part[1], expected[1], atol=1e-12)
    np.testing.assert_allclose(a_v, model.visible.moments(B_v, A_v)[0], atol=1e-12)
    np.testing.assert_allclose(c_h, model.hidden.moments(B_h, A_h)[1], atol=1e-12)


def test_free_energy_is_stationary():
    """To first order the log-partition does not see an error of the state."""
    model = binary_rbm(scale=0.8)
    point = mf.tap(model, tol=1e-14)
    direction = [np.random.default_rng(0).standard_normal(len(m)) for m in point.mean]
    changes = []
    for step in (1e-3, -1e-3):
        start = tuple(m + step * d for m, d in zip(point.mean, direction, strict=True))
        # One sweep damped to almost nothing leaves the state where it was put.
        moved = mf.tap(model, (start, point.var), max_iter=1, damping=1 - 1e-12)
        changes.append(moved.log_partition - point.log_partition)
    assert abs(changes[0] - changes[1]) < 1e-3 * max(map(abs, changes))


def test_affine_change_of_units_changes_nothing():
    """x = (1 + s) / 2 with W' = W / 4: TAP means and log-partition follow exactly."""
    binary = binary_rbm(scale=1.0)
    W = binary.weights
    U, V = binary.visible.field, binary.hidden.field
    spins = mf.RBM(W / 4, mf.Ising(U / 2 + W.sum(1) / 4), mf.Ising(V / 2 + W.sum(0) / 4))
    constant = W.sum() / 4 + U.sum() / 2 + V.sum() / 2
    for order in (1, 2, 3):
        one, other = (mf.tap(m, order=order, tol=1e-13) for m in (binary, spins))
        for a, s in zip(one.mean, other.mean, strict=True):
            np.testing.assert_allclose(a, (1 + s) / 2, atol=1e-10)
        assert one.log_partition == pytest.approx(other.log_partition + constant, abs=1e-9)


def test_gaussian_means_are_exact():
    rng = np.random.default_rng(0)
    weights = 0.3 * rng.standard_normal((6, 4))
    fields = rng.standard_normal(6), rng.standard_normal(4)
    model = mf.RBM(weights, mf.Gaussian(fields[0], 3.0), mf.Gaussian(fields[1], 2.0))
    result = mf.tap(model, order=1, tol=1e-13)
    np.testing.assert_allclose(np.concatenate(result.mean), solved_gaussian(model)[0], atol=1e-11)


# --- tilts and clamps ---------------------------------------------------------------------------


@BOTH
def test_field_is_a_change_of_the_prior(kind):
    model = binary_rbm()
    extra = np.linspace(-1, 1, 7)
    tilted = mf.RBM(model.weights, mf.Bernoulli(model.visible.field + extra), model.hidden)
    field = extra if kind == "rbm" else np.concatenate([extra, np.zeros(5)])
    one = solve(model, kind, field=field, tol=1e-13)
    other = solve(tilted, kind, tol=1e-13)
    np.testing.assert_allclose(one[0], other[0], atol=1e-11)
    assert one[1] == pytest.approx(other[1], abs=1e-10)


def test_precision_is_a_change_of_the_prior():
    weights = 0.2 * np.random.default_rng(1).standard_normal((5, 4))
    field, extra = np.linspace(-1, 1, 5), np.linspace(0.1, 2, 5)
    hidden = mf.Bernoulli(np.zeros(4))
    one = mf.tap(mf.RBM(weights, mf.Gaussian(field, 2.0), hidden), precision=extra, tol=1e-13)
    other = mf.tap(mf.RBM(weights, mf.Gaussian(field, 2.0 + extra), hidden), tol=1e-13)
    np.testing.assert_allclose(one.mean[0], other.mean[0], atol=1e-11)
    np.testing.assert_allclose(one.a[0], other.a[0] + extra, atol=1e-11)
    assert one.log_partition == pytest.approx(other.log_partition, abs=1e-10)


def test_rows_have_their_own_fields():
    model = binary_rbm()
    fields = np.random.default_rng(0).standard_normal((4, 7))
    together = mf.tap(model, field=fields)
    for row, field in enumerate(fields):
        alone = mf.tap(model, field=field)
        assert (together.mean[0][row] == alone.mean[0]).all()
        assert together.log_partition[row] == alone.log_partition


@pytest.mark.parametrize("layer", [0, 1])
def test_values_may_be_clamped_whatever_the_start(layer):
    model = binary_rbm()
    clamp = [None, None]
    clamp[layer] = np.full(model.weights.shape[layer], np.nan)
    clamp[layer][0] = 1
    expected = mf.tap(model, clamp=tuple(clamp), tol=1e-13)
    for init in (np.zeros(7), (np.full(7, 0.5), (None, np.zeros(5)))):
        result = mf.tap(model, init, clamp=tuple(clamp), tol=1e-13)
        assert result.converged and result.mean[layer][0] == 1
        np.testing.assert_allclose(result.mean[0], expected.mean[0], atol=1e-10)


def test_clamped_data_give_the_exact_unnormalised_likelihood():
    model = binary_rbm()
    data = (np.random.default_rng(0).random((6, 7)) < 0.5).astype(float)
    result = mf.tap(model, clamp=data)
    expected = data @ model.visible.field
    expected += np.log1p(np.exp(data @ model.weights + model.hidden.field)).sum(1)
    np.testing.assert_allclose(result.log_partition, expected, atol=1e-12)
    assert (result.mean[0] == data).all() and (result.var[0] == 0).all()


def test_missing_values_are_those_of_the_smaller_machine():
    model = binary_rbm(scale=0.7)
    values = np.array([1, np.nan, 0, np.nan, np.nan, 1, np.nan])
    free = np.isnan(values)
    held = values[~free]
    smaller = mf.RBM(
        model.weights[free],
        mf.Bernoulli(model.visible.field[free]),
        mf.Bernoulli(model.hidden.field + held @ model.weights[~free]),
    )
    field, precision = np.random.default_rng(1).random((2, 7))
    one = mf.tap(model, clamp=values, field=field, precision=precision, tol=1e-13)
    other = mf.tap(smaller, field=field[free], precision=precision[free], tol=1e-13)
    np.testing.assert_allclose(one.mean[0][free], other.mean[0], atol=1e-11)
    expected = other.log_partition + held @ (model.visible.field + field - precision / 2)[~free]
    assert one.log_partition == pytest.approx(expected, abs=1e-10)


# --- rows, threads, starts ----------------------------------------------------------------------


def test_rows_do_not_see_each_other_or_the_threads():
    model = binary_rbm(60, 40, scale=0.6)
    data = (np.random.default_rng(0).random((90, 60)) < 0.5).astype(float)
    whole = mf.tap(model, data, n_threads=1)
    for other, rows in [
        (mf.tap(model, data, n_threads=2), slice(None)),
        (mf.tap(model, data, n_threads=7), slice(None)),
        (mf.tap(model, data[13:20]), slice(13, 20)),
    ]:
        for name in ("mean", "var", "b", "a"):
            for one, two in zip(getattr(whole, name), getattr(other, name), strict=True):
                assert (one[rows] == two).all(), name
        assert (whole.log_partition[rows] == other.log_partition).all()
        assert (whole.n_iter[rows] == other.n_iter).all()
    alone = mf.tap(model, data[5])
    assert alone.mean[0].shape == (60,) and np.ndim(alone.converged) == 0
    assert (alone.mean[0] == whole.mean[0][5]).all()


def test_starts():
    model = binary_rbm()
    point = mf.tap(model, tol=1e-12)
    again = mf.tap(model, point)
    assert again.n_iter <= 2 and again.converged
    pair = mf.tap(model, (point.mean, point.var))
    assert (pair.mean[0] == again.mean[0]).all()
    visible_only = mf.tap(model, (point.mean[0], None))
    np.testing.assert_allclose(visible_only.mean[0], point.mean[0], atol=1e-7)


def test_types_are_kept():
    model = binary_rbm(dtype=np.float32)
    result = mf.tap(model, np.eye(7))
    assert model.dtype == np.float32
    assert all(m.dtype == np.float32 for m in (*result.mean, *result.var, result.residual))
    assert result.converged.all()
    double = mf.tap(binary_rbm(), np.eye(7))
    np.testing.assert_allclose(result.mean[0], double.mean[0], atol=1e-5)
    with pytest.raises(ValueError, match="field must be finite, got NaN or infinity in float32"):
        mf.tap(model, field=np.full(7, 1e300))


def slow_machine(dtype):
    """Planted patterns near the point where they lose to noise: rows crawl, and pass saddles."""
    return machines.rbm(Size(100, 50, 0), dtype, patterns=5.0, noise=4.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_momentum_saves_sweeps(dtype):
    model = slow_machine(dtype)
    starts = machines.data(model, 100)
    plain, result = (mf.tap(model, starts, acceleration=a) for a in (False, True))
    assert plain.converged.all() and result.converged.all()
    assert result.n_iter.sum() < 0.8 * plain.n_iter.sum()
    assert len(np.unique(plain.mean[0].round(2), axis=0)) > 1
    close = 1e-5 if dtype == "float64" else 1e-3
    assert (abs(plain.mean[0] - result.mean[0]).max(1) < close).mean() >= 0.98
    again = mf.tap(model, result, acceleration=False, max_iter=100)
    np.testing.assert_allclose(again.mean[0], result.mean[0], atol=close)


def test_momentum_leaves_clamped_units_alone():
    model = slow_machine("float64")
    starts, rng = machines.data(model, 20), np.random.default_rng(2)
    held = rng.random(starts.shape) < 0.2
    options = {"clamp": np.where(held, starts, np.nan), "field": rng.normal(size=100)}
    result = mf.tap(model, starts, **options)
    plain = mf.tap(model, starts, acceleration=False, **options)
    assert (result.mean[0][held] == starts[held]).all() and (result.var[0][held] == 0).all()
    np.testing.assert_allclose(result.mean[0], plain.mean[0], atol=1e-6)
    np.testing.assert_allclose(result.log_partition, plain.log_partition, atol=1e-10)


def test_history_and_cap():
    model = binary_rbm(scale=1.0)
    result = mf.tap(model, np.eye(7), history=True)
    assert result.history.shape == (7, result.n_iter.max())
    np.testing.assert_array_equal(result.history[:, -1], result.residual)
    first = mf.tap(model, np.eye(7), history=True, max_iter=3, tol=0)
    np.testing.assert_array_equal(first.history, result.history[:, :3])
    assert not first.converged.any() and (first.n_iter == 3).all()
    assert all("max_iter" in message for message in first.message)


# --- difficult machines -------------------------------------------------------------------------


def oscillating():
    """Strong couplings with fields that centre the units: undamped sweeps cycle."""
    weights = 1.8 * np.random.default_rng(0).standard_normal((16, 8))
    return mf.RBM(weights, mf.Bernoulli(-weights.sum(1) / 2), mf.Bernoulli(-weights.sum(0) / 2))


def test_oscillating_rows_are_damped_and_only_those():
    model = oscillating()
    data = (np.random.default_rng(0).random((100, 16)) < 0.5).astype(float)
    undamped = mf.tap(model, data, damping=0.0, max_iter=2000)
    assert 0 < undamped.converged.sum() < 100
    assert all("cycling" in m for m in undamped.message[~undamped.converged])
    result = mf.tap(model, data, max_iter=2000)
    assert result.converged.all()
    early = undamped.n_iter < 16
    assert (result.mean[0][early] == undamped.mean[0][early]).all()
    again = mf.tap(model, result, damping=0.95, max_iter=3)
    np.testing.assert_allclose(again.mean[0], result.mean[0], atol=1e-6)


def test_many_strong_couplings_converge():
    """Undamped none does; damping alone would take most rows more sweeps than this."""
    rng = np.random.default_rng(0)
    weights = 0.5 * rng.standard_normal((784, 16))
    model = mf.RBM(weights, mf.Bernoulli(-weights.sum(1) / 2), mf.Bernoulli(-weights.sum(0) / 2))
    data = (rng.random((30, 784)) < 0.5).astype(float)
    options = {"acceleration": False, "log_partition": False}
    assert not mf.tap(model, data, damping=0.0, max_iter=300, **options).converged.any()
    result = mf.tap(model, data, log_partition=False)
    assert result.converged.all()
    again = mf.tap(model, result, damping=0.95, max_iter=3, **options)
    np.testing.assert_allclose(again.mean[0], result.mean[0], atol=1e-6)


@pytest.mark.parametrize("scale", [10.0, 50.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extreme_weights_stay_finite(scale, dtype):
    model = binary_rbm(scale=scale, dtype=dtype)
    for order, acceleration in itertools.product((1, 2, 3), (False, True)):
        options = {"order": order, "acceleration": acceleration}
        result = mf.tap(model, np.eye(7), max_iter=60, **options)
        for part in (*result.mean, *result.var, *result.b, *result.a, result.residual):
            assert np.isfinite(part).all()
        assert not np.isnan(result.log_partition).any()


def test_weights_whose_squares_overflow_diverge():
    result = mf.tap(binary_rbm(scale=1e160), np.eye(7)[:3])
    assert not result.converged.any()
    assert all(np.isfinite(part).all() for part in (*result.mean, *result.var))


def test_divergence_is_reported():
    weights = np.array([[3.0, 0.0], [0.0, 0.1]])
    rectified = mf.TruncatedGaussian(np.zeros(2), 1.0, 0.0, np.inf)
    model = mf.RBM(weights, mf.Bernoulli(np.zeros(2)), rectified)
    result = mf.tap(model, np.array([[0.5, 0.5], [1.0, 1.0]]))
    assert not result.converged.any()
    assert all(message.startswith("diverged") for message in result.message)
    assert (result.log_partition == -np.inf).all()
    assert all(np.isfinite(part).all() for part in (*result.mean, *result.var))


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1)])
def test_one_unit_and_no_couplings(shape):
    model = mf.RBM(np.zeros(shape), *(mf.Ising(np.full(n, 0.3)) for n in shape))
    result = mf.tap(model, np.ones((1, shape[0])))
    assert result.log_partition[0] == pytest.approx(sum(shape) * np.log(2 * np.cosh(0.3)))
    np.testing.assert_allclose(result.mean[1], np.tanh(0.3), rtol=1e-14)


# --- a user's own prior -------------------------------------------------------------------------


@SCHEDULES
@pytest.mark.parametrize("order", [1, 2])
def test_own_prior(schedule, order):
    """A three-valued unit, that of CONTRIBUTING.md, coupled to a binary one, by hand."""
    three_levels, errors = example("CONTRIBUTING.md", 0)["ThreeLevels"], []
    for coupling in (0.1, 0.05):
        priors = three_levels(np.array([0.3])), mf.Bernoulli([0.5])
        model = mf.RBM(np.full((1, 1), coupling), *priors)
        x, y = np.array([[-1], [0], [1]]), np.array([0, 1])
        weight = np.exp(coupling * x * y + 0.3 * x + 0.5 * y)
        result = mf.tap(model, order=order, schedule=schedule, tol=1e-14)
        errors.append(abs(result.log_partition - np.log(weight.sum())))
    assert np.log2(errors[0] / errors[1]) > order + 0.7


@pytest.mark.slow
def test_own_prior_in_a_fully_visible_machine():
    priors = [example("CONTRIBUTING.md", 0)["ThreeLevels"](np.full(1, 0.3))] * 2
    rbm = mf.RBM(np.full((1, 1), 0.1), *priors)
    whole, expected = mf.tap(fully_visible(rbm), tol=1e-14), mf.tap(rbm, tol=1e-14)
    assert whole.log_partition == pytest.approx(expected.log_partition, rel=1e-12)


# --- bad input ----------------------------------------------------------------------------------

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("options, error, words", [
    ({"init": np.zeros((3, 6))}, ValueError, r"init must have shape \(7,\) or \(n_rows, 7\)"),
    ({"init": np.zeros((0, 7))}, ValueError, "at least one row"),
    ({"init": np.full(7, NAN)}, ValueError, "init must be finite"),
    ({"init": np.zeros((2, 2, 7))}, ValueError, "init must have shape"),
    ({"init": np.zeros(7) + 1j}, TypeError, "init must be an array of real numbers"),
    ({"init": (np.zeros(7), np.full(7, -1.0))}, ValueError, "not negative"),
    ({"init": (np.zeros(7),) * 3}, ValueError, "pair"),
    ({"field": np.zeros(5)}, ValueError, "field must have shape"),
    ({"field": (np.zeros(7),) * 3}, ValueError, "field must be an array or a tuple of 2"),
    ({"field": np.zeros((2, 7)), "init": np.zeros((3, 7))}, ValueError, "rows differ"),
    ({"precision": np.full(7, NAN)}, ValueError, "precision must be finite"),
    ({"clamp": np.full(7, 0.5)}, ValueError, "support"),
    ({"clamp": np.full(7, INF)}, ValueError, "clamp must be finite"),
    ({"order": 4}, ValueError, "order must be one of 1, 2, 3"),
    ({"schedule": "parallel"}, ValueError, "schedule must be one of"),
    ({"damping": 1.0}, ValueError, r"damping must be in \[0, 1\)"),
    ({"tol": -1.0}, ValueError, "tol"),
    ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    ({"max_iter": 10**30}, ValueError, "max_iter must be below"),
    ({"n_threads": 0}, ValueError, "n_threads"),
    ({"acceleration": "anderson"}, TypeError, "acceleration"),
])  # fmt: skip
def test_bad_input(options, error, words):
    with pytest.raises(error, match=words):
        mf.tap(binary_rbm(), **options)


def test_bad_model():
    with pytest.raises(TypeError, match="model must be an RBM, a DBM or a BoltzmannMachine"):
        mf.tap(W2)
    bounded = mf.TruncatedGaussian(np.zeros(2), 1.0, 0.0, 1.0)
    for visible in (bounded, mf.Gaussian(np.zeros(2), 1.0)):
        with pytest.raises(ValueError, match="order=3 needs binary units"):
            mf.tap(mf.RBM(W2 / 9, visible, bounded), order=3)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_few_sweeps_from_data_are_those_of_tap(order):
    rng = np.random.default_rng(8)
    weights = rng.normal(0, 0.2, (60, 40))
    model = mf.RBM(weights, mf.Bernoulli(rng.normal(size=60)), mf.Bernoulli(rng.normal(size=40)))
    # More rows than two workers hold at a time.
    X = (rng.random((230, 60)) < 0.3).astype(float)
    for n_sweeps in (1, 2, 5):
        options = {"max_iter": n_sweeps, "acceleration": False, "log_partition": False}
        expected = mf.tap(model, X, order=order, **options)
        for n_threads in (1, 2):
            sweeps = SweepsFromData(order, n_sweeps, n_threads)
            found = sweeps(model, X, moments_given(model, X, order))
            for name in ("mean", "var", "b", "a"):
                for ours, theirs in zip(getattr(found, name), getattr(expected, name), strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_booleans_are_refused_as_clamps():
    """They may be values, or a mask of the clamped units."""
    model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    values = np.array([True, False, True])
    for clamp in (values, np.array([values, ~values]), (None, values[:2])):
        for solve in (mf.tap, mf.belief_propagation):
            with pytest.raises(ValueError, match=r"clamp.*got booleans.*astype"):
                solve(model, clamp=clamp)


# --- starts, fields and clamped units of RBMs without hidden units; see also `models` -------------


FIELD = np.array([0.3, -1.0, 2.0])
MODEL = mf.RBM(np.zeros((3, 0)), mf.Ising(FIELD), mf.Ising(np.zeros(0)))


def test_what_is_given_for_each_layer():
    rng = np.random.default_rng(0)
    b, none = rng.normal(size=(4, 3)), np.zeros((4, 0))
    expected = np.tanh(FIELD + b)
    log_partition = np.log(2 * np.cosh(FIELD + b)).sum(1)
    first = mf.tap(MODEL, field=b)
    starts = [None, b, (b, None), (np.tanh(b), b * 0), ((np.tanh(b), none), (b * 0, none)), first]
    for field in (b, (b, None), (b, none)):
        for init in starts:
            result = mf.tap(MODEL, init, field=field)
            assert result.mean[1].shape == result.b[1].shape == (4, 0)
            np.testing.assert_allclose(result.mean[0], expected, atol=1e-12)
            np.testing.assert_allclose(result.log_partition, log_partition, atol=1e-12)
    values = np.array([1.0, np.nan, np.nan])
    for clamp in (values, (values, None), (values, np.zeros(0))):
        result = mf.tap(MODEL, clamp=clamp)
        np.testing.assert_allclose(result.mean[0], [1, *np.tanh(FIELD[1:])], atol=1e-12)
    assert mf.tap(MODEL, log_partition=False).log_partition is None
