"""Tables as users have them: unused categories, sparse columns, codes and patterns of missing."""

import warnings

import numpy as np
import pytest

import fastmf as mf

pandas = pytest.importorskip("pandas")


def bits(n=200, d=4):
    return (np.random.default_rng(0).random((n, d)) < 0.4).astype(int)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_category_that_nobody_has_is_named(ordered):
    frame = pandas.DataFrame(np.array(["no", "yes"])[bits()], columns=list("abcd")).apply(
        lambda column: pandas.Categorical(column, ["no", "maybe", "yes"], ordered=ordered)
    )
    with pytest.raises(ValueError, match=r"column 0 \('a'\), of which no row has \['maybe'\]"):
        mf.FullyVisibleBoltzmannMachine().fit(frame)


@pytest.mark.parametrize(("dtype", "zero"), [("int64", 0), ("bool", False)])
def test_sparse_columns_are_those_of_the_dense_frame(dtype, zero):
    X = pandas.DataFrame(bits(), columns=list("abcd")).astype(dtype)
    sparse = X.astype(pandas.SparseDtype(dtype, zero))
    for machine in (mf.FullyVisibleBoltzmannMachine(), mf.PottsMachine(l2=0.01, l2_field=0.01)):
        np.testing.assert_array_equal(machine.fit(sparse).couplings_, machine.fit(X).couplings_)
        assert list(machine.feature_names_in_) == list("abcd")
    crbm = mf.ConditionalRBM(2, n_epochs=1, random_state=0)
    weights = crbm.fit(bits(d=3), X).model_.weights
    np.testing.assert_array_equal(crbm.fit(bits(d=3), sparse).model_.weights, weights)


@pytest.mark.parametrize(
    "kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine]
)
def test_patterns_of_missing_values_are_named(kind):
    rng, X = np.random.default_rng(0), bits(100, 20).astype(float)
    X[np.arange(100)[:, None], rng.permuted(np.tile(np.arange(20), (100, 1)), axis=1)[:, :13]] = (
        np.nan
    )
    with (
        pytest.raises(ValueError, match=r"up to 4,096, and all rows have more"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        kind(missing="em", l2=0.1).fit(X)
    forms = bits(300, 4).astype(float)
    forms[:150, 3], forms[150:, 0] = np.nan, np.nan
    with pytest.warns(UserWarning, match="columns of 1 pairs, such as 0 and 3"):
        kind(missing="em", l2=0.1).fit(forms)
    chain = {"graph": [(0, 1), (1, 2), (2, 3)]} if kind is not mf.OrdinalMachine else None
    if chain:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(missing="em", l2=0.1, **chain).fit(forms)


def test_codes_of_missing_values_after_the_fit():
    X = np.random.default_rng(0).normal(5, 1, (150, 3))
    rbm = mf.GeneralizedRBM(2, visible="gaussian", n_epochs=2, random_state=0).fit(X)
    new = X[:3].copy()
    new[0, 1], new[1, 0] = -999, np.nan
    for method in (rbm.impute, rbm.score_samples, rbm.transform):
        with pytest.warns(UserWarning, match="-999 in column 1"):
            method(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbm.score_samples(X[:1])
    coded = np.where(np.random.default_rng(1).random(X.shape) < 0.1, -999, X)
    with pytest.warns(UserWarning, match="-999 in column"):
        mf.GeneralizedRBM(2, visible="gaussian", n_epochs=1, random_state=0).fit(coded)


def test_codes_of_n_categories_begin_at_zero_if_some_entry_does():
    rng = np.random.default_rng(0)
    X = rng.integers(1, 5, (300, 3))
    lacking = X[(X < 4).all(1)]
    machines = [mf.OrdinalMachine(n_categories=4, l2_field=0.1).fit(x) for x in (X, lacking)]
    for machine in machines:
        assert [known.tolist() for known in machine.categories_] == [[1, 2, 3, 4]] * 3
    assert np.isfinite(mf.compare_groups(*machines).std).all()
    zero = mf.OrdinalMachine(n_categories=4, l2_field=0.1).fit(lacking - 1)
    assert zero.categories_[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_likelihoods_of_single_precision_far_from_zero(shift):
    X = (np.random.default_rng(0).normal(size=(150, 4)) + shift).astype(np.float32)
    rbm = mf.GeneralizedRBM(2, visible="gaussian", n_epochs=3, random_state=0).fit(X)
    W, v, h = rbm.weights_.astype(float), rbm.visible_, rbm.hidden_
    # Sums over the four hidden states, each a Gaussian about its own mean.
    logs, precision = [], np.asarray(v.precision, float)
    mean = np.asarray(v.field, float) / precision
    for state in np.ndindex(2, 2):
        s = np.array(state, float)
        centre = mean + W @ s / precision
        weight = s @ np.asarray(h.field, float) + (precision * (centre**2 - mean**2)).sum() / 2
        logs.append((weight, -(precision * (X - centre) ** 2).sum(1) / 2 + weight))
    weights, terms = np.array([w for w, _ in logs]), np.array([t for _, t in logs])
    top = weights.max()
    expected = np.log(np.exp(terms - top).sum(0)) - np.log(np.exp(weights - top).sum())
    expected += np.log(precision / (2 * np.pi)).sum() / 2
    np.testing.assert_allclose(rbm.score_samples(X), expected, atol=0.02)


def test_columns_of_single_precision_that_vary_little_are_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    y = X[:, 0] - 0.5 * X[:, 3] + 0.5 * rng.normal(size=120)
    rows = (X + 1e6).astype(np.float32)
    found, right = (mf.SpikeSlabRegressor().fit(A, y) for A in (rows, rows.astype(float)))
    np.testing.assert_allclose(
        found.inclusion_probability_, right.inclusion_probability_, atol=0.05
    )


@pytest.mark.parametrize("visible", ["bernoulli", "gaussian"])
def test_a_checkpoint_of_exact_learning_in_single_precision_is_resumed(tmp_path, visible):
    X = bits().astype(np.float32)
    options = {"visible": visible, "gradient": "exact", "random_state": 0}
    for n_epochs in (2, 4):
        rbm = mf.GeneralizedRBM(
            2,
            n_epochs=n_epochs,
            callbacks=[mf.evaluation.Checkpoint(tmp_path / "c.npz")],
            **options,
        ).fit(X)
    again = mf.GeneralizedRBM(2, n_epochs=4, **options).fit(X)
    np.testing.assert_array_equal(rbm.weights_, again.weights_)


def test_categorical_columns_have_the_states_that_they_hold():
    """Answers from 1 to 4 beside others from 0 to 7, and one that nobody gives."""
    rng = np.random.default_rng(0)
    X = np.column_stack([
        rng.integers(0, 2, 300), rng.integers(1, 5, 300), 2 * rng.integers(0, 3, 300),
        rng.integers(0, 8, 300),
    ])  # fmt: skip
    rbm = mf.GeneralizedRBM(2, visible="categorical", n_epochs=3, random_state=0).fit(X)
    samples = rbm.sample(3000, random_state=1)
    for j in range(4):
        assert set(samples[:, j]) <= set(X[:, j])
    states = np.stack(np.meshgrid(*(np.unique(x) for x in X.T), indexing="ij"), -1).reshape(-1, 4)
    assert np.exp(rbm.score_samples(states)).sum() == pytest.approx(1, abs=1e-5)
