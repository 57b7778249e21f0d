"""Data frames in and out: names of features in results, `set_output`."""

import sys
from functools import partial

import numpy as np
import pytest

import fastmf as mf
from fastmf.estimators.common.reports import feature_names

pd = pytest.importorskip("pandas")

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def chain():
    """A fitted machine of a Markov chain, fitted to a data frame."""
    rng = np.random.default_rng(0)
    X = np.cumprod(np.where(rng.random((200, 4)) < 0.75, 1, -1), axis=1)
    return mf.FullyVisibleBoltzmannMachine().fit(pd.DataFrame(X, columns=NAMES))


def test_tests_of_couplings_name_the_features(chain):
    tests, frame = chain.test_couplings(), chain.test_couplings(as_frame=True)
    assert list(frame.columns) == list(tests._fields)
    assert list(zip(frame["first"], frame["second"], strict=True))[:3] == [
        ("a", "b"), ("a", "c"), ("a", "d"),
    ]  # fmt: skip
    for name in ("coupling", "standard_error", "z", "p_value", "adjusted"):
        np.testing.assert_array_equal(frame[name], getattr(tests, name))
    line = frame.set_index(["first", "second"]).loc["b", "c"]
    assert line.coupling == chain.couplings_[1, 2]


def regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    return pd.DataFrame(X, columns=NAMES), 2 * X[:, 1] + 0.1 * rng.normal(size=30)


def test_coefficients_name_the_features():
    X, y = regression()
    fitted = mf.SpikeSlabRegressor().fit(X, y)
    frame = fitted.as_frame()
    assert list(frame.index) == NAMES
    assert frame.coef["b"] == fitted.coef_[1] == pytest.approx(2, abs=0.2)
    np.testing.assert_array_equal(frame.standard_deviation, np.sqrt(fitted.coef_var_))
    np.testing.assert_array_equal(frame.inclusion_probability, fitted.inclusion_probability_)
    assert list(mf.SpikeSlabRegressor().fit(X.to_numpy(), y).as_frame().index) == [
        "x0", "x1", "x2", "x3",
    ]  # fmt: skip


def test_coefficients_of_classes():
    X, y = regression()
    classes = mf.SpikeSlabClassifier(slab_variance=1, inclusion_probability=0.3).fit(X, y > 0)
    frame = classes.as_frame()
    assert list(frame.index) == NAMES and frame.coef["b"] == classes.coef_[0, 1]


def test_without_pandas_the_error_says_what_to_install(chain, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        chain.test_couplings(as_frame=True)
    assert list(feature_names(chain)) == NAMES


SMALL = {"n_epochs": 1, "random_state": 0}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    "machine",
    [mf.GeneralizedRBM(3, **SMALL), mf.DeepBoltzmannMachine((3, 3), pretraining_epochs=1, **SMALL)],
)
def test_transformers_take_and_return_data_frames(machine, library):
    frames = pytest.importorskip(library)
    values = (np.random.default_rng(0).random((20, 4)) < 0.5).astype(float)
    X = frames.DataFrame({name: values[:, j] for j, name in enumerate(NAMES)})
    features = machine.fit(X).set_output(transform=library).transform(X)
    assert isinstance(features, frames.DataFrame)
    assert list(machine.feature_names_in_) == NAMES
    assert list(features.columns) == list(machine.get_feature_names_out())
    expected = machine.set_output(transform="default").transform(X)
    np.testing.assert_array_equal(features.to_numpy(), expected)


def test_queries_of_polars_are_refused():
    X = pytest.importorskip("polars").DataFrame(np.eye(4), schema=NAMES)
    for kind in (mf.PottsMachine, mf.GeneralizedRBM, mf.SpikeSlabClassifier, mf.ConditionalRBM):
        fit = partial(kind().fit, *[X] * (kind in (mf.SpikeSlabClassifier, mf.ConditionalRBM)))
        with pytest.raises(TypeError, match=r"a LazyFrame .* pass its `.collect\(\)`"):
            fit(X.lazy())


OF_FEATURES = {
    "inclusion_probability": [0.05, 0.1, 0.2, 0.3], "groups": list("ppqq"), "blocks": [0, 0, 1, 1],
    "unpenalised": [True, False, False, False],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["SpikeSlabRegressor", "SpikeSlabClassifier"])
@pytest.mark.parametrize("option", OF_FEATURES)
def test_series_of_features_have_their_order(kind, option):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 4)), columns=NAMES)
    y = X["b"] + 0.3 * rng.normal(size=40)
    y = y if kind == "SpikeSlabRegressor" else y > 0
    values = np.array(OF_FEATURES[option])
    given = pd.Series(values, index=NAMES)
    model = getattr(mf, kind)(**{option: given}).fit(X, y)
    expected = getattr(mf, kind)(**{option: values}).fit(X, y)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    with pytest.raises(ValueError, match=f"^{option} must name the features in the order of X"):
        model.set_params(**{option: given.iloc[::-1]}).fit(X, y)
    if option != "unpenalised":
        model.set_params(**{option: pd.Series(values)}).fit(X, y)  # numbered, not named
        np.testing.assert_array_equal(model.coef_, expected.coef_)
