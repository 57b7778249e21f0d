import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import comb

import fastmf as mf
from fastmf.evaluation.log_partition import Exploration, _higher
from fastmf.inference.sampling.gibbs import Walks


def machine(visible, hidden, shape=(7, 4), scale=0.8, dtype=float):
    rng = np.random.default_rng(0)

    def prior(kind, n):
        field = rng.normal(size=n).astype(dtype)
        if kind is mf.Gaussian:
            return kind(field, np.full(n, 5.0, dtype))
        if kind is mf.TruncatedGaussian:
            return kind(field, np.full(n, -2.0, dtype), 0.0, 1.0)
        if kind is mf.GaussBernoulli:
            return kind(field, np.full(n, 5.0, dtype), np.full(n, 0.3, dtype))
        return kind(field)

    weights = (scale * rng.normal(size=shape)).astype(dtype)
    return mf.RBM(weights, prior(visible, shape[0]), prior(hidden, shape[1]))


@pytest.mark.parametrize("visible, hidden", [
    (mf.Bernoulli, mf.Ising), (mf.Gaussian, mf.Bernoulli), (mf.Bernoulli, mf.Gaussian),
    (mf.TruncatedGaussian, mf.Bernoulli), (mf.GaussBernoulli, mf.Ising),
])  # fmt: skip
def test_both_directions_agree_with_enumeration(visible, hidden):
    model = machine(visible, hidden)
    truth = mf.exact(model).log_partition
    found = mf.evaluation.annealed_importance_sampling(model, 400, 60, rng=1)
    assert 0 < found.error < 0.05
    assert 0 < found.reverse_error < 0.05
    assert abs(found.log_partition - truth) < 4 * found.error
    assert abs(found.reverse - truth) < 4 * found.reverse_error
    assert found.samples.shape == (400, 7)
    assert (model.visible.log_prob(found.samples) > -np.inf).all()


@pytest.mark.parametrize("kinds", [(mf.Bernoulli, mf.Bernoulli), (mf.Gaussian, mf.Ising)])
def test_expectations_of_weights_are_exact_for_a_single_step(kinds):
    """One step from far away: a wrong weight or transition would show at once."""
    model = machine(*kinds, shape=(4, 3), scale=0.5)
    base = [np.full(4, 0.3), np.full(3, -0.2)]
    start = sum(p.log_partition(c, 0.0).sum() for p, c in zip(model.layers, base, strict=True))
    n = 40000
    rng = np.random.default_rng(2)
    v = model.visible.sample(np.broadcast_to(base[0], (n, 4)), np.zeros((n, 4)), rng)
    for betas in ([0.0, 1.0], [0.0, 0.5, 1.0]):
        weights = np.exp(start + Walks(np.array(betas), base=base)(model, v, rng)[0])
        error = weights.std() / np.sqrt(n)
        assert abs(weights.mean() - np.exp(mf.exact(model).log_partition)) < 4 * error


def two_phases(tilt, n=30, w=0.4):
    """A machine of equal couplings, and its log-partition, a sum over numbers of units."""
    field = np.full(n, -w * n / 2 + tilt)
    model = mf.RBM(np.full((n, n), w), mf.Bernoulli(field), mf.Bernoulli(field))
    k = np.arange(n + 1)
    logs = w * np.outer(k, k) + field[0] * (k[:, None] + k)
    logs += np.log(comb(n, k))[:, None] + np.log(comb(n, k))
    return model, np.logaddexp.reduce(logs.ravel())


def test_strong_machine_with_two_phases():
    # Chains cannot cross between the phases at beta = 1, so that uncoupled chains would be wrong.
    model, truth = two_phases(0.0)
    found = mf.evaluation.annealed_importance_sampling(model, 200, 1000, rng=0)
    assert abs(found.log_partition - truth) < 4 * found.error + 0.02
    assert abs(found.reverse - truth) < 0.5


def test_data_need_not_have_the_weights_of_the_phases(monkeypatch):
    model, truth = two_phases(0.1)
    data = np.repeat([[0.0], [1.0]], 30, axis=1)
    found = mf.evaluation.annealed_importance_sampling(model, 200, 300, data=data, rng=0)
    assert abs(found.log_partition - truth) < 4 * found.error + 0.02
    assert abs(found.reverse - truth) < 0.1
    monkeypatch.setattr("fastmf.evaluation.log_partition._agree", lambda *_: False)
    with pytest.warns(UserWarning, match="not converged"):
        from_data = mf.evaluation.annealed_importance_sampling(model, 200, 300, data=data, rng=0)
    assert abs(from_data.reverse - truth) > 0.3


def test_a_single_lucky_chain_does_not_replace_an_estimate():
    rng = np.random.default_rng(0)
    usual = rng.normal(0, 0.5, 100)
    lucky, phase = rng.normal(-6, 1, 100), rng.normal(-6, 1, 100)
    lucky[7], phase[::2] = 9.0, 4.0
    assert _higher(usual, lucky) is usual
    assert _higher(usual, phase) is phase
    assert _higher(phase, usual) is phase
    # Relative errors are those of the mean of 100 weights of standard deviation 0.1.
    for n_errors in (2.5, 3.5):
        other = np.log(1 + np.resize([-0.1, 0.1], 100)) + n_errors * 0.1 / 99**0.5
        assert (_higher(np.zeros(100), other) is other) == (n_errors > 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_matter(dtype):
    model = machine(mf.Bernoulli, mf.Bernoulli, (60, 40), 0.3, dtype)
    one, many = (
        mf.evaluation.annealed_importance_sampling(model, 60, 10, rng=0, n_threads=n)
        for n in (1, 3)
    )
    assert one[:4] == many[:4]
    np.testing.assert_array_equal(one.log_weights, many.log_weights)
    assert one.samples.dtype == dtype


def test_an_estimate_says_whether_it_has_converged():
    model = machine(mf.Bernoulli, mf.Bernoulli, (80, 60), 0.6)
    with pytest.warns(UserWarning, match="n_steps=16") as caught:
        short = mf.evaluation.annealed_importance_sampling(model, 50, 4, rng=0)
    assert short.message in str(caught[0].message) and len(caught) == 1
    assert not short.converged and short.n_steps == 4
    assert short.gap == short.reverse - short.log_partition
    long = mf.evaluation.annealed_importance_sampling(model, 50, 4, max_steps=4096, rng=0)
    assert long.converged and 4 < long.n_steps <= 4096 and "not" not in long.message
    assert abs(long.gap) <= 0.5 == long.tolerance
    assert min(long.effective_size, long.reverse_effective_size) >= 10
    # More steps do not change it.
    more = mf.evaluation.annealed_importance_sampling(model, 100, 512, rng=1)
    assert abs(more.log_partition - long.log_partition) < 4 * np.hypot(more.error, long.error)


def test_effective_sizes_are_of_the_starts_that_contribute():
    found = mf.evaluation.annealed_importance_sampling(machine(mf.Ising, mf.Ising), 400, 100, rng=0)
    for size, logs in (
        (found.effective_size, found.log_weights),
        (found.reverse_effective_size, -found.reverse_log_weights),
    ):
        weights = np.exp(logs - logs.max())
        assert size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
        assert 10 < size <= 400
    # The relative error of a mean: root of (1 / effective size - 1 / n), but for n - 1.
    expected = np.sqrt((1 / found.effective_size - 1 / 400) * 400 / 399)
    assert found.error == pytest.approx(expected, rel=1e-9)
    lucky = found._replace(log_weights=np.where(np.arange(400) == 7, 0.0, -50.0))
    assert lucky.effective_size == pytest.approx(1) and not lucky.converged
    for n in (9, 11):
        few = found._replace(log_weights=np.where(np.arange(400) < n, 0.0, -np.inf))
        assert few.effective_size == pytest.approx(n) and few.converged == (n > 10)
    assert "n_chains=1600" in lucky.message


def test_the_report_says_whether_annealing_has_converged():
    model = machine(mf.Bernoulli, mf.Bernoulli, (80, 60), 0.6)
    report = mf.evaluation.log_partition_report(model, n_chains=20, n_steps=2, include_exact=False)
    assert "not converged" in report["reverse AIS"].remark
    assert "effectively" in report["AIS"].remark


def test_deep_machines_are_annealed_as_their_even_and_odd_layers():
    rng = np.random.default_rng(3)
    layers = [mf.Ising(rng.normal(size=6)), mf.Bernoulli(rng.normal(size=4))]
    layers += [mf.Ising(rng.normal(size=5)), mf.Bernoulli(rng.normal(size=3))]
    sizes = [len(layer.field) for layer in layers]
    weights = [rng.normal(size=pair) / 2 for pair in pairwise(sizes)]
    model = mf.DBM(weights, layers)
    truth = mf.exact(model).log_partition
    data = rng.choice([-1.0, 1.0], (3, 6))
    for start in (None, data):
        found = mf.evaluation.annealed_importance_sampling(model, 200, 100, data=start, rng=0)
        assert abs(found.log_partition - truth) < 5 * found.error < 0.2
        assert abs(found.reverse - truth) < 5 * found.reverse_error < 0.2
        assert found.samples.shape == (200, 6) and set(np.unique(found.samples)) == {-1, 1}
    with pytest.raises(ValueError, match="units can take"):
        mf.evaluation.annealed_importance_sampling(model, data=data / 2)
    with pytest.raises(ValueError, match="data must have shape"):
        mf.evaluation.annealed_importance_sampling(model, data=np.ones((3, 11)))
    report = mf.evaluation.log_partition_report(model, data, n_chains=50, n_steps=20)
    assert report["exact"].log_partition == truth
    assert abs(report["TAP2, log-sum-exp"].log_partition - truth) < 0.5


def test_other_models_and_divergence():
    with pytest.raises(TypeError, match="RBM"):
        mf.evaluation.annealed_importance_sampling(mf.Ising([0, 0]))
    with pytest.raises(ValueError, match="n_chains"):
        mf.evaluation.annealed_importance_sampling(machine(mf.Ising, mf.Ising), 1)
    wild = mf.RBM([[3.0]], mf.Gaussian([0.0], 1.0), mf.Gaussian([0.0], 1.0))
    with pytest.raises(FloatingPointError, match="precisions"):
        mf.evaluation.annealed_importance_sampling(wild, 10, 500, rng=0)


@pytest.mark.parametrize("visible", ["gaussian", "rectified"])
@pytest.mark.parametrize("coupling, n_steps", [(1.5, 50), (1.5, 1000), (5.0, 50), (5.0, 1000)])
def test_samples_that_run_away_are_an_error(visible, coupling, n_steps):
    gaussian = mf.Gaussian([0.0], 1.0)
    rectified = mf.TruncatedGaussian([0.0], 1.0, 0.0, np.inf)
    wild = mf.RBM([[coupling]], rectified if visible == "rectified" else gaussian, gaussian)
    with pytest.raises(FloatingPointError, match="cannot be normalised"):
        mf.evaluation.annealed_importance_sampling(wild, 20, n_steps, rng=0)


def test_a_long_annealing_says_on_stderr_what_it_does(capsys):
    model = machine(mf.Ising, mf.Ising)
    options = dict(n_chains=20, n_steps=2, tolerance=0.0, max_steps=4, rng=0)
    with pytest.warns(UserWarning, match="not converged"):
        silent = mf.evaluation.annealed_importance_sampling(model, **options)
    assert capsys.readouterr().err == ""
    with pytest.warns(UserWarning, match="not converged"):
        found = mf.evaluation.annealed_importance_sampling(model, verbose=True, **options)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["annealing"] * 3
    assert "2 steps" in lines[1] and "4 steps" in lines[2] and " to " in lines[2]
    assert found.log_partition == silent.log_partition


def test_phases_that_chains_cannot_reach_are_found_by_mean_field(monkeypatch):
    """One sparse phase has all the weight, and chains from fair coins end in another."""
    n, hidden = 120, 18
    rng = np.random.default_rng(0)
    model = mf.RBM(
        np.vstack([np.full((20, hidden), 4.0), np.full((n - 20, hidden), -4.0)]),
        mf.Bernoulli(np.r_[np.full(20, -30.0), np.full(n - 20, 1.0)]),
        mf.Bernoulli(rng.normal(size=hidden)),
    )
    truth = mf.exact(model, averages=False).log_partition
    monkeypatch.setattr("fastmf.inference.mean_field.lower_bound.MAX_SUMMED_NUMBERS", 0)
    found = mf.evaluation.annealed_importance_sampling(model, 100, 100, rng=0)
    assert found.converged and abs(found.log_partition - truth) < 0.2
    assert truth - 3 < found.lower_bound <= truth + 1e-9
    # Without the phases the estimate is wrong, both ends agree, and the bound says so.
    monkeypatch.setattr(Exploration, "_anneal_from_phases", lambda *_: None)
    with pytest.warns(UserWarning, match="certain lower bound"):
        wrong = mf.evaluation.annealed_importance_sampling(model, 100, 100, rng=0)
    assert abs(wrong.gap) < 0.5 and wrong.log_partition < truth - 10 and not wrong.converged


def test_strong_machines_are_right_or_not_converged(monkeypatch):
    monkeypatch.setattr("fastmf.inference.mean_field.lower_bound.MAX_SUMMED_NUMBERS", 0)
    n_converged = 0
    for scale in (1.0, 5.0, 30.0):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            priors = (
                mf.Ising(scale * rng.normal(size=40)),
                mf.Bernoulli(scale * rng.normal(size=12)),
            )
            model = mf.RBM(scale * rng.normal(size=(40, 12)), *priors)
            truth = mf.exact(model, averages=False).log_partition
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "annealed importance sampling: not converged")
                found = mf.evaluation.annealed_importance_sampling(model, 100, 100, rng=seed)
            assert not found.converged or abs(found.log_partition - truth) < 0.5
            n_converged += found.converged
    assert n_converged >= 6


def strong_spins(seed, n=80, hidden=12, scale=20.0):
    """Strong spins: one of many states that are stable has all the weight."""
    rng = np.random.default_rng(seed)
    weights = scale * rng.normal(size=(n, hidden))
    return mf.RBM(weights, *(mf.Ising(scale * rng.normal(size=size)) for size in (n, hidden)))


def test_the_state_of_most_weight_is_found_where_chains_and_mean_field_miss_it(monkeypatch):
    monkeypatch.setattr("fastmf.inference.mean_field.lower_bound.MAX_SUMMED_NUMBERS", 0)
    for seed in (3, 5, 7, 8):
        model = strong_spins(seed)
        truth = mf.exact(model, averages=False).log_partition
        found = mf.evaluation.annealed_importance_sampling(model, 50, 50, rng=seed)
        assert found.converged and abs(found.log_partition - truth) < 0.1
        assert truth - 0.1 < found.lower_bound <= truth + 1e-9 * abs(truth)
    # Without these starts the estimate is wrong, and nothing says so.
    monkeypatch.setattr("fastmf.evaluation.log_partition.starts_of_bound", lambda *_: [])
    wrong = mf.evaluation.annealed_importance_sampling(model, 50, 50, rng=seed)
    assert wrong.converged and wrong.log_partition < truth - 20


def test_fields_that_decide_units_may_be_of_any_size():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 5))
    field, decided = rng.normal(size=8), np.arange(8) < 2
    large = np.where(decided, [1e30, -1e35, 0, 0, 0, 0, 0, 0], field)
    model = mf.RBM(weights, mf.Bernoulli(large), mf.Bernoulli(np.zeros(5)))
    rest = mf.RBM(weights[2:], mf.Bernoulli(field[2:]), mf.Bernoulli(weights[0]))
    found = mf.evaluation.annealed_importance_sampling(model, 100, 50, rng=0)
    assert found.log_partition == 1e30 and found.converged
    model = mf.RBM(weights, mf.Bernoulli(np.minimum(large, 900.0)), mf.Bernoulli(np.zeros(5)))
    found = mf.evaluation.annealed_importance_sampling(model, 100, 50, rng=0)
    assert found.log_partition - 900 == pytest.approx(mf.exact(rest).log_partition, abs=0.1)
    potts = mf.RBM(weights[:6], mf.Categorical(np.full((2, 3), 1e30)), mf.Bernoulli(np.zeros(5)))
    with pytest.raises(ValueError, match="at most 1e\\+12"):
        mf.evaluation.annealed_importance_sampling(potts, 10, 10, rng=0)
    spins = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising([1e30, 0.0, 0.0]))
    with pytest.raises(ValueError, match="log_partition_bounds"):
        mf.evaluation.log_partition_report(spins, include_exact=False)


def test_estimates_say_whether_they_have_converged():
    weights = np.array([-0.5, 0.5])
    found = mf.evaluation.AnnealedEstimate(2.0, 0.1, 2.25, 0.2, weights, weights, None, 50)
    expected = "AnnealedEstimate(log-partition 2 +- 0.1, reverse 2.25 +- 0.2, converged)"
    assert repr(found) == expected
    assert repr(found._replace(reverse=9.0)).endswith(", not converged)")
    # One below a certain bound has not.
    found = found._replace(tolerance=0.5, lower_bound=2.4)
    assert found.converged and abs(found.lacking - 0.4) < 1e-12
    wrong = found._replace(lower_bound=7.0)
    assert not wrong.converged and wrong.lacking == 5.0
    assert "5 nats below 7, a certain lower bound" in wrong.message
    assert found._replace(lower_bound=1.0).lacking == 0


def test_ends_that_agree_by_chance_are_not_closed():
    weights = np.zeros(300)
    found = mf.evaluation.AnnealedEstimate(
        2.0, 0.1, 2.1, 0.1, weights, weights, None, 50, tolerance=0.2
    )
    assert found.converged
    for uncertain in ({"error": 0.3}, {"reverse_error": 0.3}, {"error": np.nan}):
        assert not found._replace(**uncertain).converged
    assert "errors of 0.3 and 0.1 (tolerance 0.2)" in found._replace(error=0.3).message
