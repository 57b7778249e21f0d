"""Learning from rows with missing values, NaN."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.inference.sampling.gibbs import gibbs

RNG = np.random.default_rng(0)
WEIGHTS = 1.5 * np.array([[1, 1, 1, 1, -1, -1, -1, -1], [1, 1, -1, -1, 1, 1, -1, -1]]).T
TRUE = mf.RBM(WEIGHTS, mf.Bernoulli(np.zeros(8)), mf.Ising(np.zeros(2)))
ROWS = gibbs(TRUE, np.zeros((2000, 8)), 50, RNG)[0]
TRAIN, TEST = ROWS[:1000], ROWS[1000:]
OPTIONS = {"n_components": 2, "n_epochs": 40, "l2": 0.0, "random_state": 0}


def lacking(X, fraction, seed=0):
    """Rows without a fraction of their entries, none of them empty."""
    missing = np.random.default_rng(seed).random(X.shape) < fraction
    missing[missing.all(1), 0] = False
    return np.where(missing, np.nan, X)


@pytest.mark.parametrize("gradient", ["exact", pytest.param("pcd", marks=pytest.mark.slow)])
def test_held_out_rows_are_nearly_as_probable_as_after_complete_ones(gradient):
    options = OPTIONS | {"gradient": gradient, "learning_rate": (0.5, 0.02)}
    options["n_epochs"] = 25 if gradient == "exact" else 200
    X = lacking(TRAIN, 0.25)
    complete = mf.GeneralizedRBM(**options).fit(TRAIN).score(TEST)
    found = mf.GeneralizedRBM(**options).fit(X)
    alone = mf.GeneralizedRBM(**options | {"n_epochs": 0}).fit(TRAIN).score(TEST)
    assert complete > alone + 0.5
    assert found.score(TEST) > complete - 0.1 * (complete - alone)
    # Zeros in the place of what is missing are worse.
    assert found.score(TEST) > mf.GeneralizedRBM(**options).fit(np.nan_to_num(X)).score(TEST) + 0.1
    assert np.isfinite(found.history_["log_likelihood"]).all()
    assert not np.isnan(found.starts_).any()


@pytest.mark.parametrize("hidden", ["bernoulli", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_raw_wine_is_imputed(hidden):
    X = load_wine().data
    Y = lacking(X, 0.2)
    rbm = mf.GeneralizedRBM(4, visible="gaussian", hidden=hidden, n_epochs=30, random_state=0)
    error = (rbm.fit(Y).impute(Y) - X) / X.std(0)
    assert np.sqrt(np.square(error[np.isnan(Y)]).mean()) < 0.85
    np.testing.assert_allclose(
        rbm.pointwise_.moments(0.0, 0.0)[0], np.nanmean(Y, axis=0), rtol=1e-10
    )
    np.testing.assert_allclose(rbm.pointwise_.precision, 1 / np.nanvar(Y, axis=0), rtol=1e-10)


@pytest.mark.parametrize("gradient", ["exact", "tap", "pcd"])
def test_weights_are_rows_for_any_number_of_threads(gradient):
    X = lacking(TRAIN[:150], 0.3)
    X[:3] = np.nan
    weights = np.arange(150) > 2
    options = OPTIONS | {"gradient": gradient, "n_epochs": 3}
    found = mf.GeneralizedRBM(**options, n_threads=1).fit(X, sample_weight=weights)
    expected = mf.GeneralizedRBM(**options, n_threads=2).fit(X[3:])
    np.testing.assert_array_equal(found.weights_, expected.weights_)


@pytest.mark.parametrize(
    "options",
    [{"gradient": "exact"}, {"gradient": "pcd"}, {"gradient": "tap"}, {"early_stopping": True}],
)
def test_runs_resume_bit_by_bit(options, tmp_path):
    X = lacking(TRAIN[:150], 0.3)
    options = OPTIONS | {"n_epochs": 4, "batch_size": 40} | options
    expected = mf.GeneralizedRBM(**options).fit(X)

    class Interrupted(Exception):
        pass

    def interrupt(state):
        if state.epoch == 2:
            raise Interrupted

    checkpoint = mf.evaluation.Checkpoint(tmp_path / "run.npz")
    with pytest.raises(Interrupted):
        mf.GeneralizedRBM(**options, callbacks=[checkpoint, interrupt]).fit(X)
    found = mf.GeneralizedRBM(**options, callbacks=[checkpoint]).fit(X)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    np.testing.assert_array_equal(found.starts_, expected.starts_)
    assert found.history_ == expected.history_


@pytest.mark.parametrize(
    "form", [pytest.param("negative", marks=pytest.mark.slow), "nan", "one-hot"]
)
def test_missing_labels(form):
    first = RNG.integers(0, 3, 400)
    labels = np.stack([first, first, (first + 1) % 3, RNG.integers(0, 3, 400)], 1)
    X = labels.copy()
    X[RNG.random(X.shape) < 0.25] = -1
    X[(X < 0).all(1), 0] = 0
    visible, given = "categorical", X if form == "negative" else np.where(X < 0, np.nan, X)
    if form == "one-hot":
        visible = mf.Categorical(np.zeros((4, 3)))
        given = visible.one_hot(X)
    options = {"learning_rate": 0.3, "n_epochs": 16, "batch_size": 50, "random_state": 0}
    rbm = mf.GeneralizedRBM(6, visible=visible, **options).fit(given)
    filled = rbm.impute(given)
    filled = filled if form != "one-hot" else visible.labels(filled)
    known = (X[:, 1] < 0) & ((X[:, 0] >= 0) | (X[:, 2] >= 0))
    assert (filled[known, 1] == labels[known, 1]).mean() > 0.95
    assert rbm.transform(given).shape == (400, 6)
    assert np.isfinite(rbm.score_samples(given)).all()
    assert np.exp(rbm.score_samples(rbm.sample(4, random_state=0))).max() <= 1


def test_steps_on_batches_take_missing_values():
    batches = np.split(lacking(TRAIN, 0.25), 10)
    again, rbm = (mf.GeneralizedRBM(2, gradient="pcd", random_state=0) for _ in range(2))
    for batch in batches:
        again.partial_fit(batch)
        rbm.partial_fit(batch)
    np.testing.assert_array_equal(again.weights_, rbm.weights_)
    for batch in batches * 19:
        rbm.partial_fit(batch)
    assert rbm.score(TEST) > mf.GeneralizedRBM(2, n_epochs=0).fit(TRAIN).score(TEST)
    with pytest.raises(ValueError, match="a value in each row"):
        rbm.partial_fit(np.full((2, 8), np.nan))


def test_observations_may_lack_values():
    rbm = mf.GeneralizedRBM(**OPTIONS | {"n_epochs": 10}).fit(TRAIN)
    Y = TEST[:50].copy()
    Y[:, 3] = np.nan
    # Without noise the channel leaves nothing but the conditional means.
    restored = rbm.denoise(Y, flip_probability=0.0)
    np.testing.assert_allclose(restored, rbm.impute(Y, method="tap", n_starts=1), atol=0.01)
    real = mf.GeneralizedRBM(2, visible="gaussian", n_epochs=5, random_state=0).fit(TRAIN)
    for n_starts in (1, 3):
        found = real.denoise(Y, noise_variance=1e-6, n_starts=n_starts, random_state=0)
        np.testing.assert_allclose(found, real.impute(Y), atol=0.03)


@pytest.mark.slow
def test_deep_machines():
    X = lacking(TRAIN, 0.25)
    options = {"n_epochs": 50, "random_state": 0, "learning_rate": 0.5, "gradient": "pcd"}
    dbm = mf.DeepBoltzmannMachine((4, 2), **options).fit(X)
    complete = mf.DeepBoltzmannMachine((4, 2), **options).fit(TRAIN).score(TEST)
    alone = mf.GeneralizedRBM(2, n_epochs=0).fit(TRAIN).score(TEST)
    assert complete > alone + 0.5
    assert dbm.score(TEST) > complete - 0.1 * (complete - alone)
    assert dbm.transform(X).shape == (1000, 2) and np.isfinite(dbm.score_samples(X)).all()


@pytest.mark.parametrize("estimator", [mf.GeneralizedRBM(2), mf.DeepBoltzmannMachine((2, 2))])
def test_rows_and_columns_without_values_are_named(estimator):
    X = TRAIN[:20].copy()
    X[5] = np.nan
    with pytest.raises(ValueError, match=r"a value in each row, got 1 rows .* row 5: leave"):
        estimator.fit(X)
    X[5] = 1
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="a value in each column, got none in column 2"):
        estimator.fit(X)
    labels = np.array([[0, 1, 1, -1], [-1] * 4]).T
    with pytest.raises(ValueError, match="a value in each row"):
        mf.GeneralizedRBM(2, visible="categorical").fit(labels)


def test_what_cannot_be_missing():
    with pytest.raises(ValueError, match="X has missing values"):
        mf.GeneralizedRBM(2).fit(csr_array(lacking(TRAIN[:9], 0.2)))
    prior = mf.Categorical(np.zeros((2, 3)))
    X = np.array([[1.0, 0, 0, 0, np.nan, 0], [0, 1, 0, 0, 0, 1]])
    with pytest.raises(ValueError, match="all states of a categorical unit, or in none"):
        mf.GeneralizedRBM(2, visible=prior).fit(X)


def bits(seed, n_rows, share):
    """Columns that copy one bit with errors of 10 %, and what is seen of them."""
    rng = np.random.default_rng(seed)
    X = (rng.integers(0, 2, (n_rows, 1)) ^ (rng.random((n_rows, 30)) < 0.1)).astype(float)
    seen = np.where(rng.random(X.shape) < share, X, np.nan)
    present = ~np.isnan(seen).all(1)
    return X[present], seen[present]


def test_columns_of_which_most_is_missing_are_learned():
    """The error of the conditional means under the mixture of two products that made the rows."""
    _, train = bits(0, 600, 0.15)
    X, seen = bits(1, 300, 0.15)
    machine = mf.GeneralizedRBM(2, n_epochs=25, random_state=0).fit(train)
    hole = np.isnan(seen)
    odds = np.log(9) * np.where(hole, 0, 2 * seen - 1).sum(1)
    right = (0.1 + 0.8 / (1 + np.exp(-odds)))[:, None]
    best, means, found = (
        np.sqrt(((filled - X)[hole] ** 2).mean())
        for filled in (right, np.nanmean(train, 0), machine.impute(seen))
    )
    assert found < (best + means) / 2


def test_a_fit_that_has_gained_nothing_says_so():
    X, _ = bits(0, 300, 1.0)
    machine = mf.GeneralizedRBM(13, learning_rate=1e-9, batch_size=300, random_state=0)
    with pytest.warns(ConvergenceWarning, match="has hardly begun"):
        machine.fit(X)
    # Independent columns have nothing to gain.
    machine.fit((np.random.default_rng(0).random((300, 30)) < 0.3).astype(float))


def test_labels_have_modes_means_and_probabilities():
    weights = np.array([[0.5], [-1.0], [0.3], [2.0], [0.1]])
    units = mf.Categorical([[0.2, 0.0, 0.9], [0.5, -0.5]])
    X = np.array([[-1, 1], [2, -1], [0, 0]])
    init = mf.RBM(weights, units, mf.Bernoulli(np.zeros(1)))
    machine = mf.GeneralizedRBM(init=init, gradient="tap", learning_rate=0.0, n_epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(np.tile([[0, 0], [1, 1], [2, 1]], (10, 1)))

    def joint(i, j):
        of_hidden = np.log1p(np.exp(weights[i] + weights[3 + j]))[0]
        return units.field[i] + units.field[3 + j] + of_hidden

    table = np.exp([[joint(i, j) for j in range(2)] for i in range(3)])
    first = table[:, 1] / table[:, 1].sum()
    second = table[2] / table[2].sum()
    found = machine.impute(X, labels="probabilities")
    expected = [[*first, 0, 1], [0, 0, 1, *second], [1, 0, 0, 1, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    found = machine.impute(X.astype(float), labels="mean")
    np.testing.assert_allclose(found, [[first @ [0, 1, 2], 1], [2, second[1]], [0, 0]], atol=1e-9)
    assert machine.impute(X).tolist() == [[first.argmax(), 1], [2, second.argmax()], [0, 0]]
    with pytest.raises(ValueError, match="labels"):
        machine.impute(X, labels="modes")


def test_single_precision_far_from_zero():
    X = RNG.normal(size=(200, 2)) * [50, 1] + [1e6, 0]
    options = {"visible": "gaussian", "n_epochs": 3, "random_state": 0}
    single, double = (mf.GeneralizedRBM(2, **options).fit(X.astype(t)) for t in ("f4", "f8"))
    assert single.score(X) == pytest.approx(double.score(X), abs=1e-3)
    X[0, 1] = np.nan
    for rows in (X, X.tolist(), pytest.importorskip("pandas").DataFrame(X)):
        np.testing.assert_array_equal(np.asarray(single.impute(rows))[:, 0], X[:, 0])


@pytest.mark.parametrize(("sizes", "bound"), [(2, np.inf), (2, 9.0), ((2, 2), np.inf)])
def test_results_do_not_depend_on_the_origin_of_columns(sizes, bound, tmp_path):
    X = np.rint(256 * RNG.normal(size=(60, 3)) @ np.tri(3)) / 256  # exact at each origin
    lacks, results = lacking(X, 0.3), []
    for c in np.zeros(3), np.array([2.0**31, 0, -(2.0**20)]):
        visible = mf.TruncatedGaussian(c / 4, np.full(3, 0.25), c - 9, c + bound)
        machine = mf.DeepBoltzmannMachine(sizes, visible=visible, n_epochs=3, random_state=0)
        scores = machine.fit(X + c, validation_data=lacks + c).score_samples(X + c)
        machine.save(tmp_path / "machine.npz")
        loaded, drawn = machine.load(tmp_path / "machine.npz"), machine.sample(4, random_state=0)
        np.testing.assert_array_equal(loaded.score_samples(X + c), scores)
        np.testing.assert_allclose(machine.score_samples(csr_array(X + c)), scores, atol=1e-9)
        assert np.isfinite(machine.score_samples(drawn)).all()
        restored = machine.denoise(X + c, noise_variance=np.array(0.5))
        rows = restored, machine.impute(lacks + c), machine.solutions().visible, drawn
        scores = scores, machine.score_samples(lacks + c), machine.transform(lacks + c)
        history = machine.history_["validation_log_likelihood"]
        results.append([*scores, history, *(values - c for values in rows)])
    for near, far in zip(*results, strict=True):
        np.testing.assert_allclose(far, near, atol=1e-4)


@pytest.mark.parametrize("unit", [1.0, 1e-5, 1e5])
def test_phases_are_told_apart_in_any_unit_of_measurement(unit):
    """An observed value that leaves two phases, against sums over the hidden states."""
    visible = mf.TruncatedGaussian(np.zeros(12), 0.01 / unit**2, -unit, unit)
    model = mf.RBM(np.full((12, 12), 0.25 / unit), visible, mf.Ising(np.full(12, 0.002)))
    X = unit * RNG.uniform(0, 1, (40, 12)) * np.resize([1, -1], (40, 1))
    machine = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(X)
    row = np.append(0.05 * unit, np.full(11, np.nan))[None]
    exact, means = (machine.impute(row, method=name) / unit for name in ("exact", "tap"))
    assert exact[0, 1] < 0.5
    np.testing.assert_allclose(means, exact, atol=0.02)


def test_means_of_binary_units_beside_missing_values():
    X = lacking(np.clip(TRAIN[:60] * 0.9, 0, 1), 0.2)
    for gradient in ("exact", "tap", "pcd"):
        rbm = mf.GeneralizedRBM(**OPTIONS | {"gradient": gradient, "n_epochs": 2}).fit(X)
        assert np.isfinite(rbm.score_samples(X)).all()
    wide = mf.GeneralizedRBM(40, n_epochs=2, random_state=0).fit(np.tile(X, (1, 4)))
    assert np.isfinite(wide.score_samples(np.tile(X, (1, 4)))).all()
