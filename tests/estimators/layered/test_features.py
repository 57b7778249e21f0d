"""Features of any unit: conditional RBMs learn from them as from standardised ones."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import fastmf as mf
from fastmf.estimators.layered.conditional_rbm import FeatureScale

RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=(400, 3))
Y = (PLAIN @ RNG.normal(size=(3, 4)) + RNG.logistic(size=(400, 4)) > 0).astype(int)
UNITS = {
    "thousandths": PLAIN * [1e-3, 1, 1],
    "far": PLAIN + 50,
    "years": PLAIN * [12, 1, 1] + [1970, 0, 0],
    "large": PLAIN * 1e20,
    "constant": np.c_[PLAIN, np.full(400, 7.0)],
    "single": (PLAIN * [100, 1, 1] + 50).astype(np.float32),
}
OPTIONS = {"random_state": 0, "n_epochs": 25}


def model():
    return mf.CRBM(*(RNG.normal(size=s) for s in ((4, 2), (4, 3), (2, 3), (4,), (2,))))


@cache
def of_plain_features(objective):
    """Probabilities of a machine of the standard deviations, and the score of regressions."""
    regressions = [LogisticRegression().fit(PLAIN[:200], y[:200]) for y in Y.T]
    right = [r.score(PLAIN[200:], y[200:]) for r, y in zip(regressions, Y.T, strict=True)]
    same = mf.ConditionalRBM(4, objective=objective, **OPTIONS).fit(PLAIN[:200], Y[:200])
    return same.predict_proba(PLAIN[200:]), np.mean(right)


@pytest.mark.parametrize(
    "unit, objective",
    [
        *((unit, "logistic") for unit in UNITS),
        pytest.param("far", "likelihood", marks=pytest.mark.slow),
    ],
)
def test_units_do_not_matter(unit, objective):
    """As good as scikit-learn's regressions on the standard deviations, of which it is one."""
    X = UNITS[unit]
    learned = mf.ConditionalRBM(4, objective=objective, **OPTIONS).fit(X[:200], Y[:200])
    expected, right = of_plain_features(objective)
    assert learned.score(X[200:], Y[200:]) > right - 0.01
    assert learned.model_.dtype == np.float64  # features far from zero, also in single precision
    np.testing.assert_allclose(learned.predict_proba(X[200:]), expected, atol=1e-3)


def test_without_standardising_divergence_is_said():
    X = UNITS["years"]
    with pytest.warns(ConvergenceWarning, match="learning has diverged: .* standardize=True"):
        mf.ConditionalRBM(2, objective="logistic", standardize=False, **OPTIONS).fit(X, Y)
    with pytest.raises(TypeError, match="standardize must be True or False"):
        mf.ConditionalRBM(2, standardize="yes").fit(X, Y)


def test_the_model_is_of_features_as_they_are_given():
    X, start = UNITS["years"], model()
    scale = FeatureScale.of(X)
    raw = scale.undone(scale.model(start))
    for name in ("visible_weights", "hidden_weights", "visible_bias", "hidden_bias"):
        np.testing.assert_allclose(getattr(raw, name), getattr(start, name), rtol=1e-9)
    for found, expected in zip(
        scale.model(start).fields(scale.standardised(X)), start.fields(X), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    machine = mf.ConditionalRBM(2, init=start, n_epochs=0, random_state=0).fit(X, Y)
    np.testing.assert_allclose(machine.model_.visible_weights, start.visible_weights, rtol=1e-9)
    seen = []
    machine = mf.ConditionalRBM(2, callbacks=[seen.append], **(OPTIONS | {"n_epochs": 2}))
    machine.fit(X, Y)
    last = seen[-1].model
    np.testing.assert_array_equal(last.visible_weights, machine.model_.visible_weights)


def test_moments():
    X, weights = UNITS["years"], RNG.integers(1, 4, 400)
    scale, repeated = FeatureScale.of(X, weights), np.repeat(X, weights, axis=0)
    np.testing.assert_allclose(scale.offset, repeated.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scale.scale, repeated.std(0), rtol=1e-9)
    rows = sparse.random_array((50, 6), density=0.3, rng=RNG, format="csr")
    rows.data *= np.array([1, 1e3, 1e-3, 1, 1, 1])[rows.indices]
    scale = FeatureScale.of(rows)
    assert not scale.offset.any()
    repeated = FeatureScale.of(sparse.csr_array(np.repeat(rows.toarray(), [1, 3] * 25, axis=0)))
    np.testing.assert_allclose(FeatureScale.of(rows, np.array([1, 3] * 25)).scale, repeated.scale)
    np.testing.assert_allclose(scale.scale, np.sqrt((rows.toarray() ** 2).mean(0)))
    made = scale.standardised(rows)
    assert sparse.issparse(made) and made.nnz == rows.nnz
    np.testing.assert_allclose((made.toarray() ** 2).mean(0), 1)
    constant = FeatureScale.of(np.full((5, 2), [7.0, 0.1]))
    np.testing.assert_array_equal(constant.scale, 1)
    assert not constant.standardised(np.full((5, 2), [7.0, 0.1])).any()
    for made in (np.full((4, 1), 1e200), sparse.csr_array([[1e200], [0.0]])):
        made[0, 0] = -made[0, 0]
        with pytest.raises(ValueError, match=r"squares are finite.* column 0: divide"):
            FeatureScale.of(made)
        with pytest.raises(ValueError, match=r"not rounded to 0.* column 0: multiply"):
            FeatureScale.of(made * 1e-200 * 1e-155)


def test_sparse_features_of_any_unit():
    X, options = sparse.random_array((200, 5), density=0.4, rng=RNG, format="csr"), OPTIONS.copy()
    options["n_epochs"] = 5
    labels = (X @ RNG.normal(size=(5, 3)) > 0).astype(int)
    wide = X.copy()
    wide.data *= np.array([1e3, 1, 1, 1, 1e-3])[wide.indices]
    found, expected = (mf.ConditionalRBM(2, **options).fit(x, labels) for x in (wide, X))
    np.testing.assert_allclose(found.predict_proba(wide), expected.predict_proba(X), atol=1e-9)
