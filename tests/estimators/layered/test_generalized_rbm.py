from copy import deepcopy
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fastmf.estimators import GeneralizedRBM
from fastmf.evaluation import log_likelihood
from fastmf.models import RBM, exact, load
from fastmf.priors import Bernoulli, Concatenated, Gaussian, Ising

PATTERNS = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0, 1, 0]])


def patterns(n_rows=90, dtype=float, flip=0.02):
    rng = np.random.default_rng(0)
    X = PATTERNS[rng.integers(0, 3, n_rows)]
    return np.where(rng.random(X.shape) < flip, 1 - X, X).astype(dtype)


def small(**options):
    options = {"n_epochs": 5, "batch_size": 20, "learning_rate": 0.2} | options
    options = {"gradient": "tap", "random_state": 0} | options
    return GeneralizedRBM(4, **options)


@pytest.fixture(scope="module")
def trained():
    return small(n_epochs=100, l2=0.0, n_starts=60, n_sweeps=5).fit(patterns())


def test_attributes(trained):
    assert trained.weights_.shape == (8, 4)
    np.testing.assert_array_equal(trained.components_, trained.weights_.T)
    assert isinstance(trained.model_, RBM)
    assert type(trained.visible_) is type(trained.hidden_) is Bernoulli
    assert trained.n_features_in_ == 8
    assert trained.n_iter_ == 100
    assert len(trained.history_["log_likelihood"]) == 100
    assert trained.get_feature_names_out().tolist()[0] == "generalizedrbm0"


def test_transform_gives_hidden_means(trained):
    X = patterns()
    b = X @ trained.weights_ + trained.hidden_.field
    np.testing.assert_allclose(trained.transform(X), 1 / (1 + np.exp(-b)), atol=1e-14)


def test_scores_are_close_to_exact_ones(trained):
    X = patterns()
    log_partition = exact(trained.model_).log_partition
    right = trained.score_samples(X, log_partition=log_partition)
    states = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(float)
    everything = trained.score_samples(states, log_partition=log_partition)
    assert np.exp(everything).sum() == pytest.approx(1, abs=1e-12)
    best, paper = (trained.score_samples(X, how).mean() for how in ("log_sum_exp", "mean"))
    assert best == pytest.approx(right.mean(), abs=0.3)
    assert trained.score(X) == pytest.approx(right.mean(), abs=1e-12)
    assert abs(trained.score(X) - best) > 0.01  # few states are enumerated
    # The mean over solutions underestimates the log-partition, and so flatters the model.
    assert paper > best + 0.3


def test_arguments_of_scores_and_solutions_are_checked(trained):
    with pytest.raises(ValueError, match="log_partition must be a number"):
        trained.score_samples(patterns(), np.nan)
    for merge_tol in (-1.0, np.nan):
        with pytest.raises(ValueError, match="merge_tol must be in"):
            trained.solutions(merge_tol=merge_tol)


def test_probabilities_are_data_too(trained):
    X = np.clip(patterns(), 0.1, 0.9)
    rbm = small(n_epochs=2).fit(X)
    assert np.isfinite(rbm.history_["log_likelihood"]).all()
    # Linear in the visible part of the energy, exact in the hidden one.
    half = np.full((1, 8), 0.5)
    expected = (
        trained.visible_.field.sum() / 2
        + np.logaddexp(0, half @ trained.weights_ + trained.hidden_.field).sum()
    )
    assert trained.score_samples(half, log_partition=0.0)[0] == pytest.approx(expected)
    # MinMaxScaler leaves [0, 1] by rounding, in single precision by up to 2e-6.
    scaled = small(n_epochs=2).fit(np.where(patterns() > 0.5, 1 + 4e-16, -1e-17))
    expected = small(n_epochs=2).fit(patterns()).score(patterns())
    assert scaled.score(patterns().astype(np.float32) * (1 + 2e-6)) == pytest.approx(expected, 1e-5)


def test_solutions_are_distinct_and_ordered(trained):
    found = trained.solutions(patterns())
    assert 3 <= len(found.visible) < 20
    assert (np.diff(found.free_energy) >= 0).all()
    assert found.converged.all()
    assert found.members.shape == (90,)
    # The three patterns are among the solutions.
    for pattern in PATTERNS:
        assert abs(found.visible - pattern).max(1).min() < 0.2
    assert trained.solutions(PATTERNS[:1].astype(float)).members.tolist() == [0]


def test_chains_begin_at_given_rows(trained):
    start = np.zeros((5, 8))
    assert trained.sample(5, n_sweeps=1, init=start, random_state=0).shape == (5, 8)
    np.testing.assert_array_equal(trained.sample(5, n_sweeps=0, init=start), start)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_starts": 5},
        {"n_starts": 5, "candidates": patterns(2)},  # fewer than starts
        {"candidates": patterns(50).astype(bool)},
    ],
)
def test_denoising_corrects_flips(trained, options):
    rng = np.random.default_rng(1)
    clean = patterns(300, flip=0.0)
    noisy = np.where(rng.random(clean.shape) < 0.1, 1 - clean, clean)
    restored = trained.denoise(noisy, flip_probability=0.1, random_state=0, **options)
    pointwise = trained.pointwise_.moments(np.where(noisy == 1, 1, -1) * np.log(9.0), 0.0)[0]
    errors = ((restored > 0.5) != clean).mean()
    assert errors < 0.5 * ((pointwise > 0.5) != clean).mean()
    assert errors < 0.04


def test_starts_near_data_help_against_strong_noise(trained):
    clean = patterns(400, flip=0.0)
    p = 0.35
    noisy = np.where(np.random.default_rng(2).random(clean.shape) < p, 1 - clean, clean)
    wrong = [
        ((trained.denoise(noisy, flip_probability=p, **options) > 0.5) != clean).mean()
        for options in ({}, {"n_starts": 5, "candidates": patterns(400)})
    ]
    assert wrong[1] < wrong[0]


def test_denoising_of_spins_is_that_of_bits():
    # x = (1 + s) / 2 maps one machine to the other.
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 4))
    bits, spins = small(n_epochs=0), small(n_epochs=0, visible="ising", hidden="ising")
    X = patterns()
    bits.fit(X)
    spins.fit(2 * X - 1)
    visible, hidden = rng.normal(size=8), rng.normal(size=4)
    bits.model_ = RBM(weights, Bernoulli(visible), Bernoulli(hidden))
    fields = visible / 2 + weights.sum(1) / 4, hidden / 2 + weights.sum(0) / 4
    spins.model_ = RBM(weights / 4, *map(Ising, fields))
    restored = bits.denoise(X[:9], flip_probability=0.2)
    as_spins = spins.denoise(2 * X[:9] - 1, flip_probability=0.2)
    np.testing.assert_allclose((1 + as_spins) / 2, restored, atol=1e-4)


def test_learning_begins_with_a_given_model(trained, tmp_path):
    X = patterns()
    for dtype in ("float64", "float32"):
        still = small(init=trained.model_, n_epochs=0).fit(X.astype(dtype)).model_
        assert still.dtype == dtype
        np.testing.assert_array_equal(still.weights, trained.weights_.astype(dtype))
        np.testing.assert_array_equal(still.visible.field, trained.visible_.field.astype(dtype))
    stepped = GeneralizedRBM(7, init=trained.model_, learning_rate=1e-9).partial_fit(X)
    np.testing.assert_allclose(stepped.weights_, trained.weights_, atol=1e-6)
    # Chains from what mean field has learned: better after an epoch than from small weights.
    chains = {"gradient": "pcd", "n_sweeps": 1, "learning_rate": 0.02, "n_epochs": 1}
    first, later = (small(init=model, **chains).fit(X) for model in (None, trained.model_))
    before, after = (
        log_likelihood(rbm.model_, X, exact(rbm.model_, averages=False).log_partition).mean()
        for rbm in (first, later)
    )
    assert after > before + 1
    later.save(tmp_path / "later.npz")
    assert GeneralizedRBM.load(tmp_path / "later.npz").init is None


def test_a_given_model_must_fit_the_data(trained):
    with pytest.raises(TypeError, match="init must be of type RBM, or None, got Gener"):
        small(init=trained).fit(patterns())
    with pytest.raises(ValueError, match="got 8 units and 5 columns"):
        small(init=trained.model_).fit(patterns()[:, :5])


def test_gaussian_noise_on_gaussian_units():
    # Without couplings the posterior is known: precisions and fields add.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) * [1, 2, 3]
    rbm = small(visible="gaussian", n_epochs=0, weight_scale=0.0).fit(X)
    noisy = X + rng.normal(size=X.shape)
    prior = rbm.visible_
    expected = (prior.field + noisy / 0.5) / (prior.precision + 1 / 0.5)
    np.testing.assert_allclose(rbm.denoise(noisy, noise_variance=0.5), expected, atol=1e-9)


def test_rows_that_do_not_converge_are_told(trained, monkeypatch):
    monkeypatch.setattr(trained, "_solve", partial(trained._solve, max_iter=1))
    with pytest.warns(ConvergenceWarning, match="3 of 3 rows did not converge"):
        trained.denoise(PATTERNS, flip_probability=0.3)
    holes = np.where(np.eye(3, 8) > 0, np.nan, PATTERNS)
    with pytest.warns(ConvergenceWarning, match="3 of 3 rows did not converge"):
        assert np.isfinite(trained.impute(holes, method="tap")).all()


def test_partial_fit_learns_step_by_step():
    rbm, X = small(learning_rate=0.25), patterns()
    for _ in range(60):
        rbm.partial_fit(X[:45]).partial_fit(X[45:])
    assert rbm.n_iter_ == 120
    assert rbm.score(X) > 8 * np.log(0.5) + 1.5
    first, second = (small(random_state=seed).partial_fit(X[:1]) for seed in (1, 2))
    assert not np.array_equal(first.weights_, second.weights_)


def test_partial_fit_goes_on_from_a_fit(trained):
    X = patterns()
    more = deepcopy(trained).partial_fit(X[:2])
    assert more.n_iter_ == trained.n_iter_ + 1
    # What is known of all data is not forgotten for those of a batch.
    np.testing.assert_array_equal(more.starts_, trained.starts_)
    np.testing.assert_array_equal(more.pointwise_.field, trained.pointwise_.field)


@pytest.mark.parametrize(
    ("given", "kept"), [("f4", "f4"), ("f8", "f8"), ("i8", "f8"), ("bool", "f8"), ("f2", "f8")]
)
def test_any_array_is_accepted(given, kept):
    X = np.asfortranarray(patterns(dtype=given))
    X.setflags(write=False)
    rbm = small(n_epochs=1).fit(X)
    assert rbm.weights_.dtype == rbm.visible_.field.dtype == kept
    for result in (
        rbm.transform(X),
        rbm.sample(3, n_sweeps=2, random_state=0),
        rbm.denoise(X, flip_probability=0.1),
        rbm.impute(X),
        rbm.solutions(X).visible,
    ):
        assert result.dtype == kept
    rows = np.ascontiguousarray(X.astype(kept))
    plain = small(n_epochs=1).fit(rows)
    np.testing.assert_array_equal(plain.weights_, rbm.weights_)
    assert not np.shares_memory(plain.starts_, rows)  # which may change afterwards


def test_saved_and_loaded(tmp_path, trained):
    path = tmp_path / "rbm"
    trained.save(path)
    back = GeneralizedRBM.load(path)
    X = patterns()
    np.testing.assert_array_equal(back.transform(X), trained.transform(X))
    np.testing.assert_array_equal(back.score_samples(X), trained.score_samples(X))
    noisy = 1 - X[:3]
    np.testing.assert_array_equal(
        back.denoise(noisy, flip_probability=0.2), trained.denoise(noisy, flip_probability=0.2)
    )
    assert back.history_ == trained.history_
    assert back.get_params()["learning_rate"] == 0.2
    back.partial_fit(X)
    # The model alone, for solvers.
    assert isinstance(load(path), RBM)
    np.testing.assert_array_equal(load(path).weights, trained.weights_)


def test_early_stopping_sets_validation_data_aside():
    rbm = small(early_stopping=1, n_epochs=60, learning_rate=2.0)
    with pytest.warns(ConvergenceWarning, match="of epoch 2, .* is below that of the independent"):
        rbm.fit(patterns())  # the best epoch on these few rows, and none is good
    scores = rbm.history_["validation_log_likelihood"]
    assert len(scores) < 60
    given = small(n_epochs=2).fit(patterns(), validation_data=patterns(20))
    assert len(given.history_["validation_log_likelihood"]) == 2


@pytest.mark.parametrize("random_state", range(5))
def test_rows_set_aside_are_within_the_bounds(random_state):
    X = np.random.default_rng(0).random((4, 3))
    options = {"visible": "truncated_gaussian", "n_epochs": 0, "random_state": random_state}
    rbm = small(early_stopping=True, **options).fit(X)
    np.testing.assert_array_equal(rbm.visible_.lower, X.min())
    np.testing.assert_array_equal(rbm.visible_.upper, X.max())


def test_validation_data_are_checked_against_the_model_that_is_to_be_learned():
    X = np.random.default_rng(0).random((12, 3))
    rbm = small(visible="truncated_gaussian", n_epochs=0)
    with pytest.raises(ValueError, match="between the bounds"):
        rbm.fit(X, validation_data=2 * X)
    rbm.fit(X.astype("f"), validation_data=X)
    rbm.fit(2 * X, validation_data=2 * X)
    with pytest.raises(ValueError, match="between the bounds"):
        rbm.fit(X, validation_data=2 * X)


@pytest.mark.parametrize(
    ("options", "X", "error", "message"),
    [
        ({}, 2 * patterns(), ValueError, r"in \[0, 1\], got 2 in row"),
        ({}, -patterns(), ValueError, r"in \[0, 1\], got -1 in row"),
        ({"visible": "ising"}, 3 * patterns(), ValueError, r"in \[-1, 1\], got 3"),
        ({"visible": "ising"}, patterns(), ValueError, r"0 and 1, .* give 2 \* X - 1"),
        (
            {"visible": Concatenated(Gaussian(np.zeros(3), 1.0), Bernoulli(np.zeros(5)))},
            np.outer(np.ones(4), [9, 9, 9, 0, 0, 9, 0, 0]),
            ValueError,
            "got 9 in row 0, column 5",
        ),
        ({}, patterns()[:0], ValueError, "sample"),
        ({}, np.full((9, 8), np.nan), ValueError, "a value in each row"),
        ({}, np.full((9, 8), np.inf), ValueError, "infinity"),
        ({"visible": "boltzmann"}, patterns(), ValueError, "visible must be one of.*'boltzmann'"),
        ({"hidden": "boltzmann"}, patterns(), ValueError, "hidden must be one of.*'boltzmann'"),
        ({"visible": 3}, patterns(), TypeError, "visible must be a unit prior"),
        ({"visible": Bernoulli(np.zeros(3))}, patterns(), ValueError, "visible must have 8 units"),
        ({"hidden": Bernoulli(np.zeros(3))}, patterns(), ValueError, "hidden must have 4 units"),
        ({"weight_scale": -1.0}, patterns(), ValueError, "weight_scale"),
        ({"gradient": "tap3"}, patterns(), ValueError, "gradient must be one of"),
        ({"learning_rate": -1.0}, patterns(), ValueError, "learning_rate"),
        ({"early_stopping": 0}, patterns(), ValueError, "early_stopping must be at least 1"),
        ({"early_stopping": True}, patterns(1), ValueError, "set some aside"),
    ],
)
def test_bad_input(options, X, error, message):
    with pytest.raises(error, match=message):
        small(**options).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either flip_probability or noise_variance"),
        ({"flip_probability": 0.1, "noise_variance": 0.1}, "either"),
        ({"flip_probability": 1.1}, "flip_probability must be in"),
        ({"flip_probability": np.nan}, "flip_probability must be in"),
        ({"noise_variance": 0.0}, "noise_variance must be positive"),
        ({"flip_probability": 0.1, "n_starts": 0}, "n_starts"),
        ({"flip_probability": "a tenth"}, "flip_probability must be a number"),
        ({"flip_probability": 0.1, "n_starts": 1.5}, "n_starts must be an integer"),
        ({"flip_probability": 0.1, "candidates": np.ones((4, 7))}, "expecting 8 features"),
        ({"flip_probability": 0.1, "candidates": np.full((4, 8), 2.0)}, "must"),
        ({"flip_probability": 0.1, "candidates": np.full((4, 8), np.nan)}, "NaN"),
    ],
)
def test_bad_channel(trained, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        trained.denoise(patterns()[:3], **options)


def test_bad_numbers_of_samples(trained):
    for n_samples in (0, -1, 2.5):
        with pytest.raises((ValueError, TypeError), match="n_samples must be"):
            trained.sample(n_samples)
    with pytest.raises(ValueError, match="start must be one of"):
        trained.sample(start="noise")
    with pytest.raises(ValueError, match="init must have 3 rows"):
        trained.sample(3, init=patterns()[:2])


def test_observations_must_be_states(trained):
    with pytest.raises(ValueError, match="one of"):
        trained.denoise(np.full((2, 8), 0.5), flip_probability=0.1)
    gaussian = small(visible="gaussian", n_epochs=0).fit(patterns())
    with pytest.raises(ValueError, match="two-valued"):
        gaussian.denoise(patterns(), flip_probability=0.1)


def test_one_sample_one_feature_one_component():
    rbm = GeneralizedRBM(1, n_epochs=1, random_state=0).fit([[1.0]])
    assert rbm.transform([[0.0]]).shape == (1, 1)
    assert np.isfinite(rbm.score([[1.0]]))


@pytest.mark.parametrize("n_copies", [1, 8, 60])
def test_default_rates_and_batches_by_the_noise_of_steps(n_copies):
    """The noise is the rate times the variance of the first component over the rows of a step."""
    X = np.random.default_rng(0).integers(0, 2, (300, 2)).repeat([n_copies, 1], axis=1)
    machine = GeneralizedRBM(3, gradient="tap", n_epochs=1, random_state=0).fit(X)
    largest = max(1.0, np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1])
    rows = 14 * largest / 4
    assert machine.history_["learning_rate"][0] == pytest.approx(0.05 * max(1, 20 / rows), rel=0.02)
