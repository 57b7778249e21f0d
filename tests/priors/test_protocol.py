"""What every unit prior promises, tested on one table of priors."""

import pickle
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fastmf as mf
import fastmf.priors as priors
from fastmf._jit.kernel import kernel, unit
from fastmf.priors._compiled import tilted_draws, tilted_log_partition, tilted_moments, units_of
from fastmf.priors._protocol import (
    as_dtype,
    contains,
    gradient,
    log_prob_gradient,
    map_parameters,
    n_units,
    offers,
    parameter_names,
    project,
    sample,
    take,
)
from fastmf.priors._queries import average_gradient, support
from fastmf.priors._registry import REGISTRY
from fastmf.priors._values import check_support
from fastmf.special import exp, log

pytestmark = pytest.mark.filterwarnings("error")

CASES = {
    "bernoulli": priors.Bernoulli([-3.0, 0.0, 0.7]),
    "ising": priors.Ising([-3.0, 0.0, 0.7]),
    "binomial": priors.Binomial([-2.0, 0.0, 0.7], [3, 12, 1]),
    "ordinal": priors.Ordinal(
        [[0.0, -1.0, 0.5, 2.0], [-0.3, 0.7, 1.5, -np.inf], [0.2, 0.9, -np.inf, -np.inf]]
    ),
    "gaussian": priors.Gaussian([-3.0, 0.0, 0.7], [0.9, 1.0, 7.0]),
    "truncated_gaussian": priors.TruncatedGaussian(
        [2.0, -1.0, 0.0, -2.0, 1.0, 0.5],
        [3.0, -4.0, 0.0, 1.0, 2.0, 1.5],
        [0.0, -1.0, -1.0, 0.0, -np.inf, -np.inf],
        [1.0, 1.0, 2.0, np.inf, -3.0, np.inf],
    ),
    "gauss_bernoulli": priors.GaussBernoulli([-3.0, 0.0, 0.7], [0.9, 1.0, 7.0], [-2.0, 0.0, 1.0]),
    "truncated_gauss_bernoulli": priors.TruncatedGaussBernoulli(
        [2.0, -1.0, 0.0, -2.0],
        [3.0, -4.0, 0.0, 1.0],
        [-1.0, 0.0, 2.0, 0.5],
        [0.0, -1.0, 0.5, 0.0],
        [1.0, 1.0, 2.0, np.inf],
    ),
}
CASES["concatenated"] = priors.Concatenated(
    CASES["ising"], CASES["truncated_gaussian"], CASES["gauss_bernoulli"]
)

every_prior = pytest.mark.parametrize("prior", CASES.values(), ids=CASES.keys())
every_simple_prior = pytest.mark.parametrize(
    "prior", [p for k, p in CASES.items() if k != "concatenated"], ids=[*CASES][:-1]
)
both_types = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def tilts(prior, rows=5, seed=0):
    """Fields of either sign and precisions with which every case converges."""
    rng = np.random.default_rng(seed)
    shape = (rows, n_units(prior))
    return 2 * rng.normal(size=shape), rng.uniform(-0.5, 1.5, size=shape)


def leaves(prior):
    """All parameter arrays of a prior, whether concatenated or not."""
    if hasattr(prior, "parts"):
        return [leaf for part in prior.parts for leaf in leaves(part)]
    return list(prior)


def test_table_covers_the_registry():
    # Groups of states have tests of their own.
    assert {*CASES, "categorical"} == set(REGISTRY)


# --- calculus -------------------------------------------------------------------------------------


@every_prior
def test_moments_are_derivatives_of_the_log_partition(prior):
    b, a = tilts(prior)
    h = 2e-3
    f = {k: prior.log_partition(b + k * h, a) for k in range(-2, 3)}
    mean, var = prior.moments(b, a)
    first = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)
    second = (16 * (f[1] + f[-1]) - (f[2] + f[-2]) - 30 * f[0]) / (12 * h * h)
    np.testing.assert_allclose(mean, first, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(var, second, rtol=1e-6, atol=1e-8)

    f = {k: prior.log_partition(b, a + k * h) for k in (-2, -1, 1, 2)}
    by_a = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)
    np.testing.assert_allclose(-(var + mean**2) / 2, by_a, rtol=1e-7, atol=1e-9)


def weights(prior, b, a):
    """Integral, by plain sum or quadrature, of the first unit of a prior times the tilt."""

    def tilt(x):
        return mpmath.exp(b * x - a * x * x / 2)

    def slab(x):
        return mpmath.exp(parameters["field"] * x - parameters["precision"] * x * x / 2)

    def integral(f):
        lower, upper = parameters.get("lower", -np.inf), parameters.get("upper", np.inf)
        inner = [x for x in (-30, -8, -2, -0.5, 0, 0.5, 2, 8, 30) if lower < x < upper]
        return mpmath.quad(f, [lower, *inner, upper])

    values = support(prior)
    if values is not None:
        terms = [(mpmath.mpf(float(prior.log_prob(x)[0])), x) for x in values[:, 0] if x == x]
        return sum(mpmath.exp(log_weight) * tilt(x) for log_weight, x in terms)
    parameters = {k: mpmath.mpf(float(v[0])) for k, v in prior._asdict().items()}
    if "log_odds" in parameters:
        tilted, plain = integral(lambda x: slab(x) * tilt(x)), integral(slab)
        return 1 + mpmath.exp(parameters["log_odds"]) * tilted / plain
    return integral(lambda x: slab(x) * tilt(x))


@every_simple_prior
def test_log_partition_is_the_log_of_the_integral(prior):
    b, a = tilts(prior, rows=1, seed=3)
    computed = prior.log_partition(b, a)[0]
    for i in range(n_units(prior)):
        b_i, a_i = mpmath.mpf(b[0, i]), mpmath.mpf(a[0, i])
        expected = mpmath.log(weights(take(prior, slice(i, i + 1)), b_i, a_i))
        assert abs(computed[i] - float(expected)) <= 1e-12 * (1 + abs(float(expected)))


@pytest.mark.parametrize("given", [False, True], ids=["from_tilts", "from_moments"])
@every_prior
def test_gradient_is_the_derivative_by_each_parameter(prior, given):
    b, a = tilts(prior)
    moments = prior.moments(b, a) if given else ()
    analytic = leaves(gradient(prior, b, a, *moments))
    for got, expected in zip(
        analytic, differences(prior, lambda p: p.log_partition(b, a)), strict=True
    ):
        np.testing.assert_allclose(got + 0 * expected, expected, rtol=1e-8, atol=1e-8)


@every_prior
def test_log_prob_gradient_is_the_derivative_by_each_parameter(prior):
    b, a = tilts(prior)
    x = prior.sample(b, a, np.random.default_rng(0))
    x[0] = np.where(contains(prior, 0 * x[0]), 0, x[0])
    analytic = leaves(log_prob_gradient(prior, x))
    for got, expected in zip(analytic, differences(prior, lambda p: p.log_prob(x)), strict=True):
        np.testing.assert_allclose(got + 0 * expected, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [k for k in CASES if k != "ordinal"])
def test_averages_give_the_average_gradient(name):
    """Of differences between rows of values and tilted distributions, too."""
    prior = CASES[name]
    b, a = tilts(prior, rows=6)
    x = prior.sample(b, a, np.random.default_rng(0))
    x[0] = np.where(contains(prior, 0 * x[0]), 0, x[0])
    b, a = b[:4], a[:4]
    mean, var = prior.moments(b, a)
    nonzero = -np.expm1(-prior.log_partition(b, a))
    of_rows = [part.mean(0) for part in (x, x**2, x != 0)]
    of_tilts = [part.mean(0) for part in (mean, var + mean**2, nonzero)]
    found = average_gradient(prior, np.subtract(of_rows, of_tilts))
    pairs = zip(leaves(log_prob_gradient(prior, x)), leaves(gradient(prior, b, a)), strict=True)
    expected = [np.mean(at_x, 0) - np.mean(tilted, 0) for at_x, tilted in pairs]
    for got, wanted in zip(leaves(found), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


def differences(prior, function):
    """Central differences by every learned parameter, zero for the bounds."""
    if not hasattr(prior, "parts"):
        return _differences(prior, function)
    total, start = [], 0
    for k, part in enumerate(prior.parts):
        own_units = slice(start, start + n_units(part))

        def within(p, k=k, units=own_units):
            parts = list(prior.parts)
            parts[k] = p
            return function(prior._make((tuple(parts),)))[..., units]

        total += _differences(part, within)
        start = own_units.stop
    return total


def _differences(prior, function):
    result = []
    for name in prior._fields:
        value, h = getattr(prior, name), 1e-3
        if name not in parameter_names(prior):
            result.append(0 * function(prior))
            continue
        # A number a unit, or a row of which each column is moved by itself.
        steps = [h] if value.ndim == 1 else h * np.eye(value.shape[1])
        found = [_difference(prior, name, step, function) / h for step in steps]
        result.append(found[0] if value.ndim == 1 else np.stack(found, axis=-1))
    return result


def _difference(prior, name, step, function):
    """Central difference of a function of the prior by a step of one of its fields."""
    value = getattr(prior, name)
    f = {k: function(prior._replace(**{name: value + k * step})) for k in (-2, -1, 1, 2)}
    return (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / 12


# --- regimes --------------------------------------------------------------------------------------


@every_prior
@both_types
def test_extreme_tilts_stay_finite(prior, dtype):
    prior = as_dtype(prior, dtype)
    largest = 1e30 if dtype == np.float64 else 1e9
    for size in (0.0, 1e-30, 1e3, 1e6, largest):
        for sign in (1, -1):
            for precision in (0.0, 1.0, size):
                b = np.full(n_units(prior), sign * size, dtype)
                a = np.full(n_units(prior), precision, dtype)
                mean, var = prior.moments(b, a)
                assert np.isfinite(mean).all()
                assert np.isfinite(var).all()
                assert (var >= 0).all()
                assert np.isfinite(prior.log_partition(b, a)).all()


@every_prior
def test_divergence_is_signalled_by_infinities(prior):
    b, a = np.zeros(n_units(prior)), np.full(n_units(prior), -10.0)
    mean, var = prior.moments(b, a)
    log_partition = prior.log_partition(b, a)
    assert np.isfinite(mean).all()
    assert not np.isnan(var).any()
    np.testing.assert_array_equal(np.isinf(var), log_partition == np.inf)
    if "upper" in prior._fields:
        np.testing.assert_array_equal(var == np.inf, np.isinf(prior.lower) | np.isinf(prior.upper))
        nearest = np.clip(0, prior.lower, prior.upper)
        np.testing.assert_array_equal(mean[var == np.inf], nearest[var == np.inf])
    elif "precision" in prior._fields:
        assert (var == np.inf).all()


# --- three ways to run it -------------------------------------------------------------------------


@kernel(name=None)
def row_moments(units, start, b, a, mean, var):
    tilted_moments(units, start, b, a, mean, var)


@kernel(name=None)
def row_log_partition(units, start, b, a, out):
    tilted_log_partition(units, start, b, a, out)


@kernel(name=None)
def moments_one_by_one(units, b, a, mean, var):
    for i in range(b.shape[0]):
        one = slice(i, i + 1)
        tilted_moments(units, i, b[one], a[one], mean[one], var[one])


def table(prior, dtype=np.float64):
    """What kernels need to know of a prior."""
    return units_of(prior, dtype, ("moments", "log_partition"))


@every_prior
@both_types
def test_compiled_and_numpy_agree(prior, dtype):
    prior = as_dtype(prior, dtype)
    b, a = (t[0].astype(dtype) for t in tilts(prior))
    tolerance = dict(rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)
    mean, var, logs = np.empty((3, *b.shape), dtype)
    units = table(prior, dtype)
    expected = prior.moments(b, a)
    log_partition = prior.log_partition(b, a)
    for start in (0, 2):
        part = slice(start, None)
        row_moments(units, start, b[part], a[part], mean[part], var[part])
        np.testing.assert_allclose(mean[part], expected[0][part], **tolerance)
        np.testing.assert_allclose(var[part], expected[1][part], **tolerance)
        row_log_partition(units, start, b[part], a[part], logs[part])
        np.testing.assert_allclose(
            logs[part].sum(), log_partition[part].sum(), rtol=1e-5 if dtype == np.float32 else 1e-13
        )


# Units of scores are computed for arrays and for blocks of units.
@pytest.mark.parametrize(
    "name", [k for k in CASES if k not in ("binomial", "ordinal", "concatenated")]
)
def test_scalar_form_is_the_definition(name):
    prior = CASES[name]
    b, a = (t[0] for t in tilts(prior))
    mean, var = np.empty_like(b), np.empty_like(b)
    moments_one_by_one(table(prior), b, a, mean, var)
    tolerance = dict(rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose((mean, var), prior.moments(b, a), **tolerance)
    undecorated = [unit(prior, i).moments(b[i], a[i]) for i in range(len(b))]
    np.testing.assert_allclose(np.transpose(undecorated), (mean, var), **tolerance)


@every_prior
@both_types
def test_precision_and_shape_are_kept(prior, dtype):
    prior = as_dtype(prior, dtype)
    b, a = (t.astype(dtype) for t in tilts(prior, rows=3))
    shape = b.shape
    rng = np.random.default_rng(0)
    x = prior.sample(b, a, rng)
    results = [
        prior.log_partition(b, a),
        *prior.moments(b, a),
        x,
        prior.log_prob(x),
        *leaves(log_prob_gradient(prior, x)),
        *leaves(gradient(prior, b, a)),
    ]
    assert {r.dtype for r in results} == {np.dtype(dtype)}
    assert {r.shape for r in results[:5]} == {shape}
    assert {leaf.dtype for leaf in leaves(project(prior))} == {np.dtype(dtype)}
    # One of the tilts with rows is enough, and so is a number.
    for tilt in ((b, a[0]), (b[0], a), (b, 0.0), (0.0, a)):
        assert all(m.shape == shape for m in prior.moments(*tilt))
        assert prior.log_partition(*tilt).shape == shape
        assert prior.sample(*tilt, rng).shape == shape
        assert prior.sample(*tilt, rng).dtype == dtype


# --- draws ----------------------------------------------------------------------------------------


@every_prior
def test_draws_have_the_moments(prior):
    b, a = (t[0] for t in tilts(prior, seed=7))
    n = 20_000
    x = sample(prior, np.broadcast_to(b, (n, len(b))), a, np.random.default_rng(11))
    assert contains(prior, x).all()
    mean, var = prior.moments(b, a)
    z = (x.mean(0) - mean) / np.sqrt(var / n)
    fourth = ((x - mean) ** 4).mean(0)
    z_var = ((x - mean) ** 2).mean(0) - var
    z_var = z_var / np.sqrt((fourth - var**2) / n + 1e-30)
    assert abs(z).max() < 4.5
    assert abs(z_var).max() < 4.5


def evenly(n_draws, n):
    """Numbers from 0 to 1 in equal steps, for each of n units."""
    return np.repeat(((np.arange(n_draws) + 0.5) / n_draws)[:, None], n, axis=1)


@both_types
@every_prior
def test_draws_of_numbers_from_0_to_1_have_the_distribution(prior, dtype):
    """An average over uniform numbers is an integral, and needs no luck."""
    prior = as_dtype(prior, dtype)
    b, a = (t[:1].astype(dtype) for t in tilts(prior, seed=7))
    x = prior.draw(b, a, evenly(20_000, n_units(prior)))
    assert x.dtype == dtype
    assert contains(prior, x).all()
    mean, var = prior.moments(b[0], a[0])
    np.testing.assert_allclose(x.mean(0, dtype=float), mean, atol=1e-3)
    np.testing.assert_allclose(x.var(0, dtype=float), var, rtol=2e-3, atol=1e-4)
    nonzero = -np.expm1(-prior.log_partition(b[0], a[0]))
    for units in (offset for part, offset in _parts(prior) if hasattr(part, "log_odds")):
        np.testing.assert_allclose((x[:, units] != 0).mean(0), nonzero[units], atol=1e-4)


def _parts(prior):
    """The parts of a prior, and where their units are."""
    start = 0
    for part in getattr(prior, "parts", (prior,)):
        yield part, slice(start, start + n_units(part))
        start += n_units(part)


@kernel
def draw_rows(units, b, a, u, out, scratch):
    for row in range(b.shape[0]):
        tilted_draws(units, 0, b[row], a[row], u[row], out[row], scratch)


@both_types
@every_prior
def test_kernels_draw_what_numpy_does(prior, dtype):
    prior = as_dtype(prior, dtype)
    n = n_units(prior)
    b, a = (t.astype(dtype) for t in tilts(prior, rows=500, seed=8))
    a[::2] = 0
    u = np.random.default_rng(1).random(b.shape)
    u[0] = 0
    expected, out = prior.draw(b, a, u), np.empty_like(b)
    draw_rows(units_of(prior, dtype, ("draws",)), b, a, u, out, np.empty(n, dtype))
    close = {"rtol": 1e-9, "atol": 1e-10} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
    # A draw that is on the edge between two values may fall on either side, one in 1e7.
    np.testing.assert_allclose(out, expected, **close)


@pytest.mark.parametrize("name", ["gaussian", "truncated_gaussian", "gauss_bernoulli"])
def test_divergent_tilts_cannot_be_sampled(name):
    with pytest.raises(ValueError, match=r"precision \+ a must be positive"):
        CASES[name].sample(0.0, -10.0, np.random.default_rng(0))


# --- parameters -----------------------------------------------------------------------------------


@every_prior
def test_slices_and_steps_of_parameters(prior):
    assert n_units(take(prior, slice(1, 3))) == 2
    b, a = tilts(prior)
    np.testing.assert_array_equal(
        take(prior, slice(1, 3)).log_partition(b[:, 1:3], a[:, 1:3]),
        prior.log_partition(b, a)[:, 1:3],
    )
    step = gradient(prior, b[0], a[0])
    moved = map_parameters(lambda p, g: p + 1e-6 * g, prior, step)
    assert (moved.log_partition(b[0], a[0]) >= prior.log_partition(b[0], a[0])).all()
    assert leaves(project(prior))[0].shape == leaves(prior)[0].shape
    again = pickle.loads(pickle.dumps(step))
    assert type(again) is type(step)
    for one, other in zip(leaves(again), leaves(step), strict=True):
        np.testing.assert_array_equal(one, other)


@every_simple_prior
def test_projection_ends_inside_the_domain(prior):
    far = map_parameters(lambda p: p - 1e3, prior)
    type(prior)(*project(far))  # checks its parameters


@settings(max_examples=60, deadline=None)
@given(
    # Tables of log-weights have tests of their own.
    name=st.sampled_from([k for k in CASES if k not in ("ordinal", "concatenated")]),
    position=st.integers(0, 4),
    bad=st.sampled_from([np.nan, "text", None, 1j, np.zeros((2, 2)), np.zeros(0)]),
)
def test_bad_parameters_are_named(name, position, bad):
    prior = CASES[name]
    field = prior._fields[position % len(prior._fields)]
    parameters = {**prior._asdict(), field: bad}
    if np.size(bad) == 0 and len(prior._fields) == 1:
        assert type(prior)(**parameters).field.shape == (0,)  # a layer without units
        return
    with pytest.raises((TypeError, ValueError), match=type(prior).__name__):
        type(prior)(**parameters)


@settings(max_examples=60, deadline=None)
@given(
    lower=st.floats(-10, 10),
    width=st.floats(-5, 0),
    precision=st.floats(-10, 10),
    spike=st.booleans(),
)
def test_empty_intervals_are_refused(lower, width, precision, spike):
    class_ = priors.TruncatedGaussBernoulli if spike else priors.TruncatedGaussian
    parameters = dict(field=0.0, precision=precision, lower=lower, upper=lower + width)
    if spike:
        parameters["log_odds"] = 0.0
    with pytest.raises(ValueError, match="lower must be below upper"):
        class_(**parameters)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["Gaussian", "GaussBernoulli", "TruncatedGaussian"]),
    precision=st.floats(-1e6, 0),
)
def test_improper_precisions_are_refused(name, precision):
    extra = {
        "Gaussian": {},
        "GaussBernoulli": {"log_odds": 0.0},
        "TruncatedGaussian": {"lower": 0.0, "upper": np.inf},
    }[name]
    with pytest.raises(ValueError, match=f"{name}: precision must be positive"):
        getattr(priors, name)(field=1.0, precision=precision, **extra)


# --- a user's own prior ---------------------------------------------------------------------------


class Ternary(NamedTuple):
    """Values -1, 0 and 1 with weights exp(field x - cost |x|)."""

    field: np.ndarray
    cost: np.ndarray

    def log_partition(self, b, a):
        t = self.field + b
        return log(1.0 + exp(t - self.cost - 0.5 * a) + exp(-t - self.cost - 0.5 * a))

    def moments(self, b, a):
        t = self.field + b
        up, down = exp(t - self.cost - 0.5 * a), exp(-t - self.cost - 0.5 * a)
        total = 1.0 + up + down
        mean = (up - down) / total
        return mean, (up + down) / total - mean * mean


def test_users_prior():
    prior = Ternary(np.array([0.3, -1.0, 2.0]), np.array([0.0, 1.0, -0.5]))
    b, a = tilts(prior)
    x = np.array([-1.0, 0.0, 1.0])[:, None, None]
    weight = np.exp(prior.field * x - prior.cost * abs(x) + b * x - a * x * x / 2)
    total = weight.sum(0)
    mean = (weight * x).sum(0) / total
    var = (weight * x * x).sum(0) / total - mean**2
    np.testing.assert_allclose(prior.log_partition(b, a), np.log(total), rtol=1e-13)
    got, row = np.empty((2, 3)), np.empty(3)
    row_moments(table(prior), 0, b[0], a[0], *got)
    np.testing.assert_allclose(got, (mean[0], var[0]), rtol=1e-12)
    row_log_partition(table(prior), 0, b[0], a[0], row)
    np.testing.assert_allclose(row, np.log(total[0]), rtol=1e-13, atol=1e-15)

    assert contains(prior, np.zeros((4, 3))).all()
    with pytest.raises(TypeError, match="Ternary cannot be sampled"):
        sample(prior, b, a, np.random.default_rng(0))
    # Parameters are differentiated numerically.
    derivative = gradient(prior, b, a)
    np.testing.assert_allclose(derivative.field, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(derivative.cost, -(var + mean**2), rtol=1e-9, atol=1e-10)


def test_parameters_are_copied():
    field = np.zeros(3)
    field.flags.writeable = False
    prior = priors.Bernoulli(field)
    assert prior.field.flags.writeable
    assert not np.shares_memory(prior.field, field)


# --- what users type, and what they build upon ----------------------------------------------------


@every_prior
def test_lists_and_seeds_do(prior):
    n = n_units(prior)
    tilt, states = [0.25] * n, [1.0] * n
    array = np.array(tilt)
    np.testing.assert_array_equal(prior.moments(tilt, tilt), prior.moments(array, array))
    np.testing.assert_array_equal(
        prior.log_partition(b=tilt, a=tilt), prior.log_partition(array, array)
    )
    np.testing.assert_array_equal(prior.log_prob(states), prior.log_prob(np.ones(n)))
    np.testing.assert_array_equal(
        prior.sample(tilt, tilt, 3), prior.sample(array, array, np.random.default_rng(3))
    )
    np.testing.assert_array_equal(prior.draw(tilt, tilt, tilt), prior.draw(array, array, array))


class Halved(priors.TruncatedGaussian):
    """Truncated Gaussians whose tilts count half."""

    def log_partition(self, b, a):
        return super().log_partition(b / 2, a / 2)

    def moments(self, b, a):
        mean, var = super().moments(b / 2, a / 2)
        return mean / 2, var / 4


def test_a_subclass_stays_one_and_what_it_outdates_is_not_used():
    prior, parent = Halved(0.5, [1.0, 2.0], 0.0, 1.0), priors.TruncatedGaussian
    assert type(prior) is Halved
    zero, one = np.zeros(2), np.ones(2)
    exact = parent(0.5, [1.0, 2.0], 0.0, 1.0).gradient(one / 2, zero)
    found = gradient(prior, one, zero, *prior.moments(one, zero))
    np.testing.assert_allclose(found.field, exact.field, rtol=1e-8)
    assert offers(parent, "fill_block")
    assert not offers(Halved, "fill_block")


def test_learning_needs_log_prob():
    class WithoutLogProb(NamedTuple):
        field: np.ndarray

    with pytest.raises(TypeError, match=r"WithoutLogProb cannot be learned.*log_prob"):
        log_prob_gradient(WithoutLogProb(np.zeros(2)), np.zeros(2))


# --- data where they meet their prior -------------------------------------------------------------


X = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


def test_values_outside_the_support_are_named():
    binary = mf.Bernoulli(np.zeros(3))
    check_support(binary, X / 2)
    with pytest.raises(ValueError, match=r"got 0\.5 in row 0, column 1"):
        check_support(binary, X / 2, means=False)
    for form in (np.array, csr_array, lambda x: np.where(np.eye(2, 3, 1), np.nan, x)):
        check_support(mf.Ising(np.zeros(3)), form(2 * X - 1))  # -1 and 1
        check_support(mf.Ising(np.zeros(3)), form(X / 2))  # means
        with pytest.raises(ValueError, match=r"0 and 1, .*give 2 \* X - 1, or .*'bernoulli'"):
            check_support(mf.Ising(np.zeros(3)), form(X))
    both = mf.Concatenated(mf.Gaussian(np.zeros(2), 1.0), mf.Ising(np.zeros(1)))
    check_support(both, np.array([[7.0, -3.0, 1.0]]))
    with pytest.raises(ValueError, match="got 3 in row 0, column 2"):
        check_support(both, np.array([[7.0, -3.0, 3.0]]))


def test_bounds_belong_to_the_support():
    prior = mf.TruncatedGaussian([0.0, 0.0], 1.0, 0.0, 1.0)
    check_support(prior, np.eye(2))
    for beyond in (-1e-9, 1 + 1e-9):
        with pytest.raises(ValueError, match="between the bounds"):
            check_support(prior, np.array([[0.5, beyond]]))


def test_zeros_that_are_not_stored_are_values():
    with pytest.raises(ValueError, match=r"got 0 \(a zero that is not stored\) in row 0, column 1"):
        check_support(mf.Ising(np.zeros(2)), csr_array([[1.0, 0.0], [-1.0, 1.0]]), means=False)
    check_support(mf.Bernoulli(np.zeros(2)), csr_array([[1.0, 0.0], [0.0, 1.0]]))


@pytest.mark.parametrize("solve", [mf.tap, mf.belief_propagation, mf.log_partition_bounds])
def test_values_that_clamped_units_cannot_take_are_named(solve):
    model = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    for clamp in ([np.nan, 1, 0.5], [[1, np.nan, 1], [np.nan, -1, 0.5]]):
        with pytest.raises(ValueError, match=r"one of \(-1.0, 1.0\).* got 0.5 for unit 2"):
            solve(model, clamp=np.array(clamp))
