import itertools

import numpy as np
import pytest
from kernel_cases.machines import fully_visible, solved_gaussian

import fastmf as mf
from fastmf._outcomes import DIVERGED, MESSAGES
from fastmf.inference.ep.adaptive_tap import few_iterations, mean_covariance


def machine(n=8, strength=0.4, prior=mf.Ising, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n, n)) * strength / np.sqrt(n), 1)
    return mf.BoltzmannMachine(upper + upper.T, prior(rng.normal(size=n) / 2))


def rbm(shape=(7, 4), strength=1.0):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=shape) * strength / np.sqrt(sum(shape))
    return mf.RBM(weights, *(mf.Bernoulli(rng.normal(size=n) / 2) for n in shape))


@pytest.mark.parametrize("schedule", ["convergent", "auto"])
@pytest.mark.parametrize("prior", [mf.Ising, mf.Bernoulli])
def test_weak_couplings_against_enumeration(schedule, prior):
    model = machine(prior=prior)
    result = mf.adaptive_tap(model, schedule=schedule)
    exact = mf.exact(model)
    assert result.converged
    np.testing.assert_allclose(result.mean, exact.mean, atol=5e-3)
    np.testing.assert_allclose(result.log_partition, exact.log_partition, atol=3e-3)


def test_published_example():
    """Computed independently, for normalised priors; the exact log Z is known for both kinds."""
    model = mf.RBM([[0.9, -0.7], [0.4, 0.8]], mf.Bernoulli([0.1, -0.2]), mf.Bernoulli([0.3, -0.4]))
    result = mf.adaptive_tap(model)
    means = [0.608709, 0.601803, 0.738136, 0.419712]
    np.testing.assert_allclose(np.concatenate(result.mean), means, atol=1e-6)
    normaliser = 3.250924240281101 - 0.5410182139574589
    np.testing.assert_allclose(result.log_partition, 0.540125655050459 + normaliser, atol=1e-9)


def test_an_rbm_is_a_boltzmann_machine():
    model = rbm()
    other = mf.adaptive_tap(fully_visible(model))
    for schedule in ("auto", "convergent"):
        result = mf.adaptive_tap(model, schedule=schedule)
        np.testing.assert_allclose(np.concatenate(result.mean), other.mean, atol=1e-7)
        np.testing.assert_allclose(result.log_partition, other.log_partition, atol=1e-7)


def test_a_deep_machine_is_an_rbm_of_its_even_and_odd_layers():
    rng = np.random.default_rng(4)
    layers = [mf.Bernoulli(rng.normal(size=n) / 2) for n in (5, 4, 3, 2)]
    model = mf.DBM([rng.normal(size=shape) / 2 for shape in ((5, 4), (4, 3), (3, 2))], layers)
    starts = rng.integers(0, 2, (3, 5)).astype(float)
    field = [rng.normal(size=n) for n in (5, 4, 3, 2)]
    result = mf.adaptive_tap(model, starts, field=tuple(field))
    assert result.converged.all() and [part.shape for part in result.mean] == [
        (3, 5), (3, 4), (3, 3), (3, 2)
    ]  # fmt: skip
    sides = [np.concatenate(field[side::2]) for side in (0, 1)]
    other = mf.adaptive_tap(model.bipartite(), field=tuple(sides))
    for side in (0, 1):
        one = np.hstack(result.mean[side::2])[0]
        np.testing.assert_allclose(one, other.mean[side], atol=1e-7)
    tilted = [mf.Bernoulli(prior.field + f) for prior, f in zip(layers, field, strict=True)]
    exact = mf.exact(mf.DBM(model.weights, tilted))
    np.testing.assert_allclose(result.log_partition, exact.log_partition, atol=0.02)
    for mine, theirs in zip(result.mean, exact.mean, strict=True):
        np.testing.assert_allclose(mine[0], theirs, atol=0.02)


def test_gaussian_units_are_exact():
    rng = np.random.default_rng(0)
    weights, fields = rng.normal(size=(5, 3)) / 3, [rng.normal(size=n) for n in (5, 3)]
    model = mf.RBM(weights, *(mf.Gaussian(field, 2.0) for field in fields))
    mean, covariance, log_partition = solved_gaussian(model)
    result = mf.adaptive_tap(model)
    assert result.converged
    np.testing.assert_allclose(np.concatenate(result.mean), mean, atol=1e-9)
    np.testing.assert_allclose(np.concatenate(result.var), covariance.diagonal(), atol=1e-9)
    np.testing.assert_allclose(result.log_partition, log_partition, rtol=1e-10)


def test_missing_moments_are_said_at_once():
    strong = mf.RBM(np.full((3, 2), 2.0), mf.Gaussian([0.0] * 3, 1.0), mf.Gaussian([0.0] * 2, 1.0))
    result = mf.adaptive_tap(strong)
    assert result.message == MESSAGES[DIVERGED] and result.n_iter == 0
    held = mf.adaptive_tap(strong, precision=np.outer([0, 30], np.ones(3)))
    assert held.converged.tolist() == [False, True] and held.n_iter[0] == 0
    # Bounded units may have any couplings and any external precision.
    for bounded in (mf.Bernoulli(np.zeros(3)), mf.TruncatedGaussian(np.zeros(3), -2.0, -1.0, 1.0)):
        for layers in ((bounded, strong.hidden), (mf.Gaussian(np.zeros(3), 1.0), bounded)):
            weights = np.full((3, len(layers[1].field)), 3.0)
            tilt = tuple(np.full(len(unit.field), -9.0 * (unit is bounded)) for unit in layers)
            result = mf.adaptive_tap(mf.RBM(weights, *layers), precision=tilt)
            assert result.message != MESSAGES[DIVERGED]


def test_rows_are_what_they_are_alone():
    """Starts and fields of their own, with weights at which damping is needed."""
    rng = np.random.default_rng(3)
    model = rbm((40, 20), 2.5)
    fields, starts = rng.normal(size=(30, 40)), rng.integers(0, 2, (30, 40)).astype(float)
    options = {"history": True}
    result = mf.adaptive_tap(model, starts, field=fields, **options)
    assert [part.shape for part in (*result.mean, *result.a)] == [(30, 40), (30, 20)] * 2
    assert result.sites.shape == (30, 2, 60)
    assert result.history.shape == (30, result.n_iter.max())
    assert result.log_partition.shape == result.converged.shape == result.message.shape == (30,)
    assert result.converged.all()
    for row in (0, 7, 29):
        alone = mf.adaptive_tap(model, starts[row], field=fields[row], **options)
        assert alone.mean[0].shape == (40,) and np.ndim(alone.log_partition) == 0
        for layer in (0, 1):
            np.testing.assert_allclose(result.mean[layer][row], alone.mean[layer], atol=1e-7)
            np.testing.assert_allclose(result.b[layer][row], alone.b[layer], atol=1e-5)
        np.testing.assert_allclose(result.log_partition[row], alone.log_partition, rtol=1e-10)
        moved = model.visible._replace(field=model.visible.field + fields[row])
        inside = mf.adaptive_tap(mf.RBM(model.weights, moved, model.hidden))
        np.testing.assert_allclose(inside.log_partition, alone.log_partition, rtol=1e-8)
        np.testing.assert_allclose(inside.mean[1], alone.mean[1], atol=1e-6)


def test_results_do_not_depend_on_threads():
    model, starts = rbm((600, 13)), np.eye(600)[:14]
    one, two = (mf.adaptive_tap(model, starts, n_threads=n) for n in (1, 2))
    for part, same in zip((*one.mean, one.sites), (*two.mean, two.sites), strict=True):
        np.testing.assert_array_equal(part, same)


def test_rows_of_fields_and_precisions_in_a_fully_visible_machine():
    model = machine(prior=mf.Ising)
    fields = np.random.default_rng(4).normal(size=(3, 8))
    for schedule in ("auto", "convergent"):
        result = mf.adaptive_tap(model, field=fields, precision=np.full(8, 0.3), schedule=schedule)
        assert result.mean.shape == (3, 8) and result.converged.all()
        for field, mean, log_partition in zip(
            fields, result.mean, result.log_partition, strict=True
        ):
            moved = mf.BoltzmannMachine(model.couplings, mf.Ising(model.prior.field + field))
            alone = mf.adaptive_tap(moved)
            np.testing.assert_allclose(mean, alone.mean, atol=1e-6)
            # The square of a spin is 1.
            np.testing.assert_allclose(log_partition, alone.log_partition - 8 * 0.15, rtol=1e-8)


def test_pairs_against_enumeration():
    model = rbm((6, 4), 0.8)
    result = mf.adaptive_tap(model, np.eye(6)[:2])
    exact = mf.exact(model)
    means = np.concatenate(result.mean, axis=1)
    np.testing.assert_allclose(means, [np.concatenate(exact.mean)] * 2, atol=2e-3)
    np.testing.assert_allclose(result.log_partition, exact.log_partition, atol=2e-3)
    pairs = np.einsum("ri,rj->ij", *result.mean) / 2 + mean_covariance(model, result)
    np.testing.assert_allclose(pairs, exact.pairwise, atol=2e-3)
    # The term of second order, the first of the covariance, is larger than what may be missing.
    assert abs(mean_covariance(model, result)).max() > 0.015


def test_pairs_are_the_derivative_of_the_log_partition():
    rng, hidden = np.random.default_rng(5), mf.Gaussian([0.1, -0.2, 0.3], 3.0)
    weights, visible = rng.normal(size=(5, 3)) * 0.4, mf.Bernoulli(rng.normal(size=5))
    field, precision = rng.normal(size=(2, 5)), np.full(5, 0.2)

    def solve(weights):
        model = mf.RBM(weights, visible, hidden)
        return mf.adaptive_tap(model, field=field, precision=precision, tol=1e-13)

    result = solve(weights)
    pairs = np.einsum("ri,rj->ij", *result.mean) / 2
    added = np.concatenate([precision, np.zeros(3)])
    pairs += mean_covariance(mf.RBM(weights, visible, hidden), result, added)
    for place in ((0, 0), (4, 2)):
        step = np.zeros((5, 3))
        step[place] = 1e-4
        up, down = (solve(weights + s * step).log_partition.mean() for s in (1, -1))
        assert pairs[place] == pytest.approx((up - down) / 2e-4, abs=1e-8)


def test_what_does_not_converge_says_so():
    rng = np.random.default_rng(6)
    model = mf.RBM(rng.normal(size=(30, 20)) * 2, *(mf.Bernoulli(np.zeros(n)) for n in (30, 20)))
    starts = rng.integers(0, 2, (13, 30)).astype(float)
    result = mf.adaptive_tap(model, starts, schedule="parallel", max_iter=5)
    assert not result.converged.any()
    assert all(message.startswith("not converged") for message in result.message)
    assert (result.n_iter <= 5).all() and (result.residual > 1e-8).all()
    assert np.isfinite(result.log_partition).all() and np.isfinite(result.mean[0]).all()


def test_a_result_is_a_start():
    model = rbm((15, 14))
    for starts in (None, np.eye(15)[:13]):
        result = mf.adaptive_tap(model, starts)
        again = mf.adaptive_tap(model, result, tol=1e-6)
        assert np.max(again.n_iter) == 1 and np.all(again.converged)
        np.testing.assert_allclose(again.log_partition, result.log_partition, rtol=1e-9)
    # From the solutions of TAP.
    assert mf.adaptive_tap(model, mf.tap(model)).converged


def test_improbable_scores():
    units = mf.Ordinal([[0.0, -712.0]]), mf.Bernoulli(np.zeros(2))  # e^-712 has few digits
    result = mf.adaptive_tap(mf.RBM(np.ones((1, 2)), *units))
    assert result.converged and result.log_partition == pytest.approx(2 * np.log(2))


def test_type_is_kept():
    model = rbm()
    single = mf.RBM(model.weights.astype(np.float32), model.visible, model.hidden)
    result = mf.adaptive_tap(single)
    assert {part.dtype for part in (*result.mean, *result.var)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(result.mean[0], mf.adaptive_tap(model).mean[0], atol=1e-6)


def test_bad_arguments():
    with pytest.raises(TypeError, match="model must be an RBM, a DBM or a BoltzmannMachine"):
        mf.adaptive_tap(np.ones((2, 2)))
    with pytest.raises(ValueError, match="schedule must be one of"):
        mf.adaptive_tap(rbm(), schedule="sequential")
    with pytest.raises(ValueError, match=r"init must have shape \(7,\)"):
        mf.adaptive_tap(rbm(), np.ones((2, 6)))
    with pytest.raises(ValueError, match="init has sites of 8 units, not 11"):
        mf.adaptive_tap(rbm(), mf.adaptive_tap(rbm((5, 3))))
    with pytest.raises(ValueError, match="numbers of rows differ"):
        mf.adaptive_tap(rbm(), np.ones((2, 7)), field=np.ones((3, 7)))


@pytest.mark.parametrize("schedule", ["auto", "parallel"])
@pytest.mark.parametrize("lower", [-np.inf, 0.0])
def test_moments_of_strongly_coupled_units_do_not_exist(lower, schedule):
    units, outcomes = mf.TruncatedGaussian(np.zeros(4), 1.0, lower, np.inf), set()
    for seed in range(12):
        J = np.random.default_rng(seed).normal(size=(4, 4)) * (0.2 + 0.1 * (seed % 5))
        J, exist = (J + J.T) * (1 - np.eye(4)), True
        result = mf.adaptive_tap(mf.BoltzmannMachine(J, units), schedule=schedule)
        for subset in itertools.product([False, True], repeat=4):
            values, vectors = np.linalg.eigh((np.eye(4) - J)[np.ix_(subset, subset)])
            same_sign = (vectors > 0).all(0) | (vectors < 0).all(0) | np.isinf(lower)
            exist &= not (same_sign & (values < 0)).any()
        outcomes.add((exist, "do not exist" in result.message))
    assert outcomes - {(False, False)} == {(True, False), (False, True)}


def test_units_held_by_large_fields_keep_their_cavities():
    """The sum over the states of the visible units is one term, of which the integral is known."""
    weights = np.array([[-1170.0], [1739.0], [-496.0], [329.0], [-259.0]])
    visible = mf.Bernoulli([1583.0, 1320.0, 633.0, -2204.0, 52.0])
    model = mf.RBM(weights, visible, mf.TruncatedGaussian([684.0], [1.0], [0.0], [np.inf]))
    found = mf.adaptive_tap(model, max_iter=100)
    assert found.converged
    # Terms of 1e15 cancel.
    assert found.log_partition == pytest.approx(mf.exact(model).log_partition, rel=1e-7)
    np.testing.assert_allclose(found.mean[0], [0, 1, 0, 1, 0], atol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [30.0, 1e3, 1e5])
def test_large_weights_and_fields_converge_to_numbers_or_say_why_not(size, dtype):
    rng = np.random.default_rng(int(size))
    for k in range(4):
        field, odds = size * rng.normal(size=(2, 2))
        one = np.ones(2)
        hidden = (
            mf.Bernoulli(field),
            mf.TruncatedGaussian(field, one, 0 * one, np.full(2, np.inf)),
            mf.GaussBernoulli(field, size**2 * 10 * one, odds),
            mf.TruncatedGaussBernoulli(field, one, odds, 0 * one, 3 * one),
        )[k]
        weights = (size * rng.normal(size=(5, 2))).astype(dtype)
        model = mf.RBM(weights, mf.Bernoulli(size * rng.normal(size=5)), hidden)
        try:
            found = mf.adaptive_tap(model, max_iter=100)
        except ValueError as error:  # from the start on there is no proper Gaussian
            assert "smaller" in str(error)
            continue
        parts = [np.concatenate(part) for part in (found.mean, found.var, found.b, found.a)]
        assert not np.isnan(parts).any()
        if found.converged:
            assert np.isfinite(parts).all() and np.isfinite(found.log_partition)
            assert found.log_partition < mf.exact(model).log_partition * (1 + 1e-4) + 10
        else:
            assert found.message.startswith("not converged")


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("schedule", ["auto", "convergent"])
def test_the_scale_of_units_does_not_matter(schedule, scale):
    weights = 0.45 * np.random.default_rng(0).normal(size=(6, 4))

    def solve(scale):
        units = (
            mf.TruncatedGaussian(np.zeros(n), np.full(n, scale**-2.0), -3 * scale * np.ones(n),
                                 3 * scale * np.ones(n))
            for n in (6, 4)
        )  # fmt: skip
        return mf.adaptive_tap(mf.RBM(weights / scale**2, *units), schedule=schedule)

    expected, found = solve(1.0), solve(scale)
    assert found.converged
    value = found.log_partition - 10 * np.log(scale)
    assert value == pytest.approx(expected.log_partition, abs=1e-6)
    np.testing.assert_allclose(found.var[0] / scale**2, expected.var[0], rtol=1e-3)


def damped(model, sites, n_iter, damping):
    """Sites, means and covariances after iterations of Algorithm 3 in plain NumPy, of one row."""
    n = model.n_visible
    J = np.zeros((sites.shape[-1],) * 2)
    J[:n, n:] = model.weights
    field = np.concatenate([model.visible.field, model.hidden.field])
    for k in range(n_iter + 1):
        C = np.linalg.inv(np.diag(sites[1]) - J - J.T)
        v, a = np.diag(C), C @ sites[0]
        A, B = 1 / v - sites[1], a / v - sites[0]
        mean = 1 / (1 + np.exp(A / 2 - B - field))
        var = mean * (1 - mean)
        if k == n_iter:
            return sites, mean, C[:n, n:]
        sites = damping * sites + (1 - damping) * np.stack([mean / var - B, 1 / var - A])


@pytest.mark.parametrize("damping", [0.0, 0.5, 0.8])
def test_few_iterations_are_those_of_algorithm_3_with_a_damping(damping):
    model = rbm(strength=2.0)
    starts = np.random.default_rng(3).integers(0, 2, (3, 7)).astype(float)
    first, last = (few_iterations(model, starts, n, damping) for n in (1, 4))
    steps = [damped(model, sites, 3, damping) for sites in first.sites]
    sites, means, covariances = map(np.stack, zip(*steps, strict=True))
    np.testing.assert_allclose(last.sites, sites, rtol=1e-10)
    np.testing.assert_allclose(np.concatenate(last.mean, axis=1), means, rtol=1e-10)
    np.testing.assert_allclose(mean_covariance(model, last), covariances.mean(0), rtol=1e-9)


def test_few_iterations_of_a_machine_of_single_precision():
    model = rbm((30, 20))
    parts = [
        part.astype(np.float32) for part in (model.weights, model.visible.field, model.hidden.field)
    ]
    machines = [
        mf.RBM(weights, mf.Bernoulli(visible), mf.Bernoulli(hidden))
        for weights, visible, hidden in (parts, [part.astype(float) for part in parts])
    ]
    starts = np.random.default_rng(3).integers(0, 2, (13, 30)).astype(np.float32)
    one, other = (few_iterations(m, starts, 4, 0.5) for m in machines)
    assert one.mean[0].dtype == np.float32
    for part, of_double in zip((*one.mean, *one.var), (*other.mean, *other.var), strict=True):
        np.testing.assert_allclose(part, of_double, atol=1e-5)
    pairs = [mean_covariance(m, found) for m, found in zip(machines, (one, other), strict=True)]
    np.testing.assert_allclose(*pairs, atol=1e-5)
    # The solver finds fixed points of such machines in double precision.
    assert mf.adaptive_tap(machines[0], starts, tol=1e-10).converged.all()
