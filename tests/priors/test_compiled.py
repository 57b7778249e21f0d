"""The compiled functions of priors: what large arrays and kernels receive."""

import gc
from typing import NamedTuple

import numba
import numpy as np
import pytest

import fastmf as mf
from fastmf import priors
from fastmf._jit.kernel import kernel
from fastmf.priors import _compiled
from fastmf.priors._compiled import TASK_UNITS, tilted_moments, units_of
from fastmf.priors._protocol import as_dtype, n_units
from fastmf.priors._registry import REGISTRY
from fastmf.reference import units as in_numpy
from tests.priors.test_protocol import CASES as ALL

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled"),
]

# Large arrays of ordinal units are computed by NumPy.
CASES = {k: prior for k, prior in ALL.items() if k not in ("ordinal", "concatenated")}
N_UNITS = 100
N_ROWS = 2 * (TASK_UNITS // (2 * N_UNITS) + 1)

every_prior = pytest.mark.parametrize("name", CASES)
both_types = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def units_and_tilts(name, dtype, rows=N_ROWS, n=N_UNITS):
    """Units of all kinds of a prior, and tilts with which every one converges."""
    rng, several = np.random.default_rng(0), np.resize(np.arange(n_units(CASES[name])), n)
    prior = as_dtype(CASES[name]._make(f[several] for f in CASES[name]), dtype)
    shape = rows, n
    b, a = 2 * rng.normal(size=shape), rng.uniform(-0.5, 1.5, size=shape)
    return prior, b.astype(dtype), a.astype(dtype)


@pytest.fixture
def compiled(monkeypatch):
    """The numbers of tilts of the calls that kernels have answered."""
    sizes = []

    def in_parallel(fill, arguments, n_workers):
        assert fill is _compiled._fill_rows
        sizes.append(arguments[2].size)
        return run(fill, arguments, n_workers)

    run = _compiled.in_parallel
    monkeypatch.setattr(_compiled, "in_parallel", in_parallel)
    return sizes


def assert_as_numpy(prior, b, a, compiled):
    """Moments and log-partition are those of NumPy, and compiled; returns the mean."""
    compiled.clear()
    found = *prior.moments(b, a), prior.log_partition(b, a)
    assert compiled == [b.size] * 2
    expected = *in_numpy.moments(prior, b, a), in_numpy.log_partition(prior, b, a)
    close = {np.dtype("f8"): 1e-12, np.dtype("f4"): 1e-5}[b.dtype]
    for got, wanted in zip(found, expected, strict=True):
        assert got.shape == b.shape
        assert got.dtype == b.dtype
        np.testing.assert_allclose(got, wanted, rtol=close, atol=close)
    return found[0]


def test_the_table_covers_the_registry():
    # Groups of states are not computed unit by unit, and ordinal units by NumPy.
    assert {*CASES, "concatenated", "categorical", "ordinal"} == set(REGISTRY)


@every_prior
@both_types
def test_large_arrays_are_compiled(name, dtype, compiled):
    prior, b, a = units_and_tilts(name, dtype)
    mean = assert_as_numpy(prior, b, a, compiled)
    # Each of these tilts is one of the above, in another form.
    one_row = assert_as_numpy(prior, b, a[0], compiled)
    np.testing.assert_array_equal(one_row[0], mean[0])
    assert_as_numpy(prior, b, dtype(0.25), compiled)
    assert_as_numpy(prior, b, 0.25, compiled)
    assert_as_numpy(prior, b, 1, compiled)
    three = (2, N_ROWS // 2, N_UNITS)
    in_three = assert_as_numpy(prior, b.reshape(three), a.reshape(three), compiled)
    np.testing.assert_array_equal(in_three.reshape(mean.shape), mean)


@every_prior
@both_types
def test_one_unit_is_that_of_all_tilts(name, dtype, compiled):
    _, b, a = units_and_tilts(name, dtype)
    one = as_dtype(CASES[name]._make(f[:1] for f in CASES[name]), dtype)
    assert_as_numpy(one, b, a, compiled)
    # One row, longer than the task of a thread, and one whose last axis is the unit's own.
    assert_as_numpy(one, b.ravel(), a.ravel(), compiled)
    assert_as_numpy(one, b.reshape(-1, 1), a.reshape(-1, 1), compiled)


@every_prior
def test_rows_do_not_depend_on_threads(name, monkeypatch):
    prior, b, a = units_and_tilts(name, np.float64)
    found = []
    for n_workers in (1, 3):
        monkeypatch.setattr(_compiled, "workers_for", lambda *_, n=n_workers: n)
        found.append([*prior.moments(b, a), prior.log_partition(b, a)])
    np.testing.assert_array_equal(*found)


@every_prior
def test_tilts_of_other_types_and_shapes(name):
    prior, b, a = units_and_tilts(name, np.float64)
    single = as_dtype(prior, np.float32)
    for units, tilt in (
        (prior, (b.astype(np.float32), a)),
        (prior, (b, a.astype(np.float32))),
        (single, (b, a)),
        (prior, (0.5, a)),  # only `a` has rows
        (prior, (b[0], np.resize(a, (N_ROWS, N_UNITS)))),
        (prior, (b, a[:, :1])),
    ):
        found = *units.moments(*tilt), units.log_partition(*tilt)
        expected = *in_numpy.moments(units, *tilt), in_numpy.log_partition(units, *tilt)
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
            assert got.shape == (N_ROWS, N_UNITS)
            assert got.dtype == wanted.dtype


def test_concatenated_priors_are_compiled_part_by_part(compiled):
    parts = [units_and_tilts(name, np.float64)[0] for name in ("ising", "truncated_gaussian")]
    prior, rng = priors.Concatenated(*parts), np.random.default_rng(1)
    b, a = rng.normal(size=(2, N_ROWS, 2 * N_UNITS))
    a = abs(a)
    found = *prior.moments(b, a), prior.log_partition(b, a)
    assert compiled == [b.size // 2] * 4
    expected = *in_numpy.moments(prior, b, a), in_numpy.log_partition(prior, b, a)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


class Doubled(priors.Bernoulli):
    """Units with values 0 and 2."""

    def moments(self, b, a):
        mean, var = super().moments(2 * b, 4 * a)
        return 2 * mean, 4 * var


def test_a_subclass_with_methods_of_its_own_keeps_them(compiled):
    _, b, a = units_and_tilts("bernoulli", np.float64)
    prior = Doubled(np.linspace(-1, 1, N_UNITS))
    mean, var = prior.moments(b, a)
    expected = priors.Bernoulli(*prior).moments(2 * b, 4 * a)
    np.testing.assert_allclose(mean, 2 * expected[0], rtol=1e-12)
    np.testing.assert_allclose(var, 4 * expected[1], rtol=1e-12, atol=1e-12)
    assert mean.max() > 1.5


class Sorted(NamedTuple):
    """Units whose methods no compiler can follow."""

    field: np.ndarray

    def log_partition(self, b, a):
        return (self.field + b) * len({"one": 1, "two": {}})

    def moments(self, b, a):
        return sorted([self.field + b], key=str)[0], np.vectorize(abs)(a)


@pytest.mark.parametrize("function", ["moments", "log_partition"])
def test_methods_that_cannot_be_compiled_are_a_type_error(function):
    with pytest.raises(TypeError, match=r"units of Sorted: .*what Numba knows"):
        units_of(Sorted(np.zeros(3)), np.float64, (function,))


def test_solvers_say_so_too():
    model = mf.RBM(np.ones((3, 2)), Sorted(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    with pytest.raises(TypeError, match=r"units of Sorted: .*what Numba knows"):
        mf.tap(model, np.zeros(3))


# --- tables ---------------------------------------------------------------------------------------


@kernel(name=None)
def one_mean(units, b, out):
    tilted_moments(units, 1, b, 0 * b, out[0], out[1])


@pytest.mark.parametrize("name", ["bernoulli", "truncated_gauss_bernoulli", "concatenated"])
def test_units_live_as_long_as_their_table(name):
    """Also where only the table is left of what it was made from."""

    def prior():
        if name != "concatenated":
            return CASES[name]
        return priors.Concatenated(CASES["ising"], CASES["gaussian"])

    units = units_of(prior()._make(map(copied, prior())), np.float64)
    gc.collect()
    clutter = [np.full(4, np.nan) for _ in range(1000)]
    out = np.zeros((2, 2))
    one_mean(units, np.array([0.3, -0.2]), out)
    tilts = np.zeros(n_units(prior()))
    tilts[1:3] = 0.3, -0.2
    np.testing.assert_allclose(out, np.stack(prior().moments(tilts, 0 * tilts))[:, 1:3], rtol=1e-13)
    assert len(clutter) == 1000


def copied(field):
    """A copy of a field, or of the parts of a prior, that nothing else holds."""
    if isinstance(field, tuple):
        return tuple(part._make(map(copied, part)) for part in field)
    return np.array(field)
