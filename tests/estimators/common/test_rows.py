"""Rows that are sparse or integers: estimators do with them what they do with dense ones."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

import fastmf as mf
from fastmf._common import rows
from fastmf.priors import Categorical, TruncatedGaussian, _values

RNG = np.random.default_rng(0)
X = (RNG.random((60, 24)) < 0.08).astype(float)
SMALL = {"n_epochs": 2, "batch_size": 16, "random_state": 0}
OPTIONS = {
    "tap": {},
    "tap_few": {"n_starts": 5, "starts": "persistent"},
    "tap_noise": {"starts": "noise"},
    "tap_random": {"starts": "random"},
    "pcd": {"gradient": "pcd", "n_starts": 5},
    "cd": {"gradient": "cd"},
    "not_centred": {"centred": False, "gradient": "mean_field"},
    "adaptive_tap": {"gradient": "adaptive_tap"},
}


@pytest.fixture(params=[1, 0], ids=["sparse_products", "dense_batches"])
def max_density(request, monkeypatch):
    monkeypatch.setattr(_values, "MAX_DENSITY", request.param)


def rbm(**options):
    return mf.GeneralizedRBM(4, **SMALL | options)


def assert_same(found, expected, rtol=1e-9):
    """Two fitted machines are the same, to rounding unless rtol is 0."""
    for x, y in zip(found.model_.couplings, expected.model_.couplings, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * 1e-3)
        assert x.dtype == y.dtype
    for name in ("log_likelihood", "validation_log_likelihood"):
        theirs = expected.history_.get(name, [])
        np.testing.assert_allclose(found.history_.get(name, []), theirs, rtol=rtol)
    np.testing.assert_array_equal(found.starts_, expected.starts_)
    np.testing.assert_allclose(found.pointwise_, expected.pointwise_, rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sparse_rows_teach_what_dense_ones_do(options, max_density):
    assert_same(rbm(**options).fit(csr_array(X)), rbm(**options).fit(X))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tap", np.int8), ("tap", bool), ("tap", np.uint16), ("tap_noise", np.int8), ("pcd", bool),
     ("cd", np.uint16), ("not_centred", np.int8), ("adaptive_tap", bool)],
)  # fmt: skip
def test_integers_teach_bitwise_what_floats_do(name, kind):
    options = OPTIONS[name]
    assert_same(rbm(**options).fit(X.astype(kind)), rbm(**options).fit(X), rtol=0)


@pytest.mark.parametrize("visible", ["gaussian", "gauss_bernoulli", "binomial"])
@pytest.mark.parametrize("make", [csr_array, lambda X: X.astype(np.int8)], ids=["csr", "int8"])
def test_other_units_learn_from_them(visible, make):
    # Sparse columns of real values are not centred: here their means are 0.
    data = np.vstack([3 * X, -3 * X]) if visible == "gaussian" else 3 * X
    learn = rbm(visible=visible, learning_rate=0.01)
    found, expected = learn.fit(make(data)), rbm(visible=visible, learning_rate=0.01).fit(data)
    assert_same(found, expected, rtol=1e-8)
    for mine, theirs in zip(found.visible_, expected.visible_, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    scores = [expected.score_samples(data), expected.score_samples(make(data))]
    np.testing.assert_allclose(*scores, rtol=1e-9)


@pytest.mark.parametrize(
    "make", [csr_array, lambda X: X.astype(np.int8), lambda X: X > 0], ids=["csr", "int8", "bool"]
)
def test_methods_take_them(make, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 100)
    learned, given = rbm().fit(X), make(X)
    np.testing.assert_allclose(learned.transform(given), learned.transform(X), rtol=1e-12)
    np.testing.assert_allclose(learned.score_samples(given), learned.score_samples(X), rtol=1e-12)
    assert np.isclose(learned.score(given), learned.score(X))
    np.testing.assert_array_equal(learned.solutions(given).visible, learned.solutions(X).visible)
    drawn = [learned.sample(60, n_sweeps=2, init=init, random_state=0) for init in (given, X)]
    np.testing.assert_array_equal(*drawn)
    restored = [learned.denoise(Y, flip_probability=0.1, candidates=Y) for Y in (given, X)]
    np.testing.assert_array_equal(*restored)


def test_float32_sparse_rows_are_computed_in_float32():
    data = csr_array(X.astype(np.float32))
    learned = rbm().fit(data)
    assert learned.weights_.dtype == learned.transform(data).dtype == np.float32
    assert learned.transform(csr_array(X)).dtype == learned.transform(X > 0).dtype == np.float32


@pytest.mark.parametrize("options", [{"n_starts": 5, "gradient": "pcd"}, {}], ids=["pcd", "tap"])
def test_validation_weights_and_early_stopping(options):
    weights = RNG.random(60)
    for made in (csr_array(X), X.astype(np.int8)):
        for more in ({"validation_data": made[:20]}, {"sample_weight": weights}):
            dense = more | ({"validation_data": X[:20]} if "validation_data" in more else {})
            assert_same(rbm(**options).fit(made, **more), rbm(**options).fit(X, **dense))
        stop = options | {"early_stopping": True}
        assert_same(rbm(**stop).fit(made), rbm(**stop).fit(X))


@pytest.mark.parametrize("make", [csr_array, lambda X: X.astype(np.int8)], ids=["csr", "int8"])
def test_deep_machines_take_them(make):
    options = SMALL | {"pretraining_epochs": 1}
    found = mf.DeepBoltzmannMachine((4, 3), **options).fit(make(X))
    expected = mf.DeepBoltzmannMachine((4, 3), **options).fit(X)
    assert_same(found, expected)
    np.testing.assert_allclose(found.transform(make(X)), expected.transform(X), rtol=1e-9)
    np.testing.assert_allclose(found.score_samples(make(X)), expected.score_samples(X), rtol=1e-9)


LABELS = RNG.integers(0, 3, (60, 5)).astype(np.int8)


def test_integer_labels_teach_what_floating_point_ones_do():
    learn = rbm(visible="categorical")
    found, expected = learn.fit(LABELS), rbm(visible="categorical").fit(LABELS.astype(float))
    assert_same(found, expected, rtol=0)
    np.testing.assert_allclose(
        found.transform(LABELS), expected.transform(LABELS.astype(float)), rtol=1e-12
    )
    missing = LABELS.copy()
    missing[0, 0] = -1
    assert found.impute(missing)[0, 0] in (0, 1, 2)
    np.testing.assert_array_equal(found.transform(missing)[1:], found.transform(LABELS)[1:])


def test_sparse_one_hot_rows_of_categorical_units():
    prior = Categorical(np.zeros((5, 3)))
    flat = prior.one_hot(LABELS)
    found, expected = rbm(visible=prior).fit(csr_array(flat)), rbm(visible=prior).fit(flat)
    assert_same(found, expected)
    np.testing.assert_allclose(
        found.score_samples(csr_array(flat)), expected.score_samples(flat), rtol=1e-12
    )


# --- errors ---------------------------------------------------------------------------------------


def with_entry(value):
    wrong = X.copy()
    wrong[7, 3] = value
    return csr_array(wrong)


@pytest.mark.parametrize("bad, message", [
    (with_entry(np.nan), "NaN"),
    (with_entry(np.inf), "infinity"),
    (with_entry(2), r"got 2 in row 7, column 3"),
    (with_entry(-1), r"got -1 in row 7, column 3"),
    (with_entry(7).astype(np.int8).toarray(), r"got 7 in row 7, column 3"),
    (csr_array((0, 24)), "0 sample"),
    (csr_array((9, 0)), "0 feature"),
    (np.zeros((0, 24), np.int8), "0 sample"),
    (coo_array(np.ones(3)), "two dimensions"),
])  # fmt: skip
def test_bad_rows_are_refused_by_fit(bad, message):
    with pytest.raises(ValueError, match=message):
        rbm().fit(bad)


@pytest.mark.parametrize("method", ["transform", "score_samples", "partial_fit", "solutions"])
def test_bad_rows_are_refused_by_methods(method):
    call = getattr(rbm().fit(X), method)
    for bad in (csr_array(X[:, 1:]), X[:, 1:].astype(np.int8)):
        with pytest.raises(ValueError, match="23 features"):
            call(bad)
    with pytest.raises(ValueError, match="row 7, column 3"):
        call(with_entry(2))
    negative = csr_array(X)
    negative.indices[0] = -1
    with pytest.raises(ValueError, match="wrong indices"):
        call(negative)


def test_zeros_that_are_not_stored_count():
    bounds = TruncatedGaussian(np.zeros(24), np.ones(24), np.full(24, 0.5), np.full(24, 2.0))
    full = np.ones((3, 24))
    assert rbm(visible=bounds).fit(csr_array(full)).n_iter_ == 2
    full[1, 5] = 0
    with pytest.raises(ValueError, match=r"got 0 \(a zero that is not stored\) in row 1, column 5"):
        rbm(visible=bounds).fit(csr_array(full))
    observed = rbm(visible="ising").fit(2 * X - 1)
    with pytest.raises(ValueError, match="not stored"):
        observed.denoise(csr_array(X), flip_probability=0.1)


def test_sparse_labels_and_missing_values_are_refused():
    with pytest.raises(ValueError, match="dense array of labels"):
        rbm(visible="categorical").fit(csr_array(LABELS))
    with pytest.raises(ValueError, match="one-hot rows of 15 columns"):
        rbm(visible=Categorical(np.zeros((5, 3)))).fit(csr_array(LABELS))
    with pytest.raises(TypeError, match="NaN for missing values, got a sparse matrix"):
        rbm().fit(X).impute(csr_array(X))


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["pcd", pytest.param("tap", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind, density", [("csr", 1), ("csr", 0), ("int8", 0)])
def test_rows_are_never_all_dense(gradient, kind, density, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 2**14)
    monkeypatch.setattr(_values, "MAX_DENSITY", density)
    data = csr_array((np.ones(8000), (np.arange(8000), np.arange(8000) % 200)))
    dense_size = 8 * np.prod(data.shape)
    if kind == "int8":
        data = data.toarray().astype(np.int8)
    learn = rbm(n_starts=4, gradient=gradient, n_epochs=1, batch_size=100)
    for use in (learn.fit, learn.transform, learn.score_samples):
        use(data)  # compiles, and loads modules
    tracemalloc.start()
    try:
        learn.fit(data)
        learn.transform(data)
        learn.score_samples(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < dense_size / 2
